"""`discord`: slash commands and buttons in over Discord's interactions endpoint, messages out over REST.

Without a gateway connection Discord tells an application nothing about ordinary messages: people ask with `/ask`. Set
LONGSHORE_DISCORD_TOKEN, _PUBLIC_KEY, _APPLICATION and, to register places by themselves, _AGENT."""

import asyncio
import hashlib
import json
import re
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from adapters.channel_port import (
    Button,
    ButtonPress,
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundFile,
    OutboundMessage,
    Rate,
    Receipt,
    Received,
)
from adapters.channels.base import PlainChannel
from adapters.channels.discord.interactions import EPHEMERAL, QUIET, check_signature, read_interaction
from adapters.channels.http import PlatformHttp, Reply
from adapters.channels.variables import ADDRESS, FOLDER, KEY, variable
from adapters.errors import ChannelError, DeliveryError, SignatureError
from adapters.markup.discord import to_discord
from adapters.markup.emoji import emoji_of
from adapters.markup.layout import utf16_length

API: Final = "https://discord.com/api/v10"
MAX_TEXT: Final = 2000
_ID: Final = (r"[0-9]{1,20}", "an id: a row of digits")
_PUBLIC_KEY: Final = (r"[0-9a-fA-F]{64}", "64 hexadecimal digits")
_ROW, _BUTTON, _LINK = 1, 2, 5
_STYLES: Final = {"plain": 1, "good": 3, "bad": 4}
_ROWS, _PER_ROW = 5, 5
_MAX_LABEL: Final = 80
_CUSTOM_EMOJI: Final = re.compile(r"[A-Za-z0-9_]{2,32}:[0-9]{1,20}")
# Discord knows these only with the sign that asks for their coloured form.
_COLOURED: Final = ("❤", "✔", "⚠")


class DiscordChannel(PlainChannel):
    channel_type = "discord"
    capabilities = ChannelCapabilities(
        idempotent=True,
        key_seconds=120.0,  # a nonce is compared with those of "the past few minutes"
        edits=True,
        reactions=True,
        typing=True,
        files=True,
        buttons=True,
        direct_messages=True,
        max_text=MAX_TEXT,
        per_chat=Rate(5, 5.0),
        overall=Rate(50, 1.0),
    )

    def __init__(
        self,
        *,
        token: str | None = None,
        public_key: str | None = None,
        api: str | None = None,
        application: str | None = None,
        agent: str | None = None,
    ) -> None:
        self._token = variable("LONGSHORE_DISCORD_TOKEN", token, KEY)
        key = variable("LONGSHORE_DISCORD_PUBLIC_KEY", public_key, _PUBLIC_KEY)
        self._public_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) if key else None
        self._api = variable("LONGSHORE_DISCORD_API", api, ADDRESS, API).rstrip("/")
        self._application = variable("LONGSHORE_DISCORD_APPLICATION", application, _ID)
        self._agent = variable("LONGSHORE_DISCORD_AGENT", agent, FOLDER)
        self._http = PlatformHttp("discord")

    # --- in ---

    @property
    def receives(self) -> bool:
        return self._public_key is not None

    def verify(self, request: InboundRequest) -> None:
        if self._public_key is None:
            raise SignatureError("LONGSHORE_DISCORD_PUBLIC_KEY is not set")
        check_signature(self._public_key, request)

    def receive(self, request: InboundRequest) -> Received:
        return read_interaction(request.body)

    def accepts(self, message: InboundMessage) -> bool:
        return not self._application or message.sender_id != self._application

    # --- out ---

    def length(self, text: str) -> int:
        """In UTF-16 units: never fewer than Discord counts, whichever way it does."""
        return utf16_length(to_discord(text))

    async def deliver(self, message: OutboundMessage) -> Receipt:
        path = f"/channels/{_place(message.destination)}/messages"
        said = _said(message.content, message.buttons) | {
            "nonce": hashlib.sha256(message.idempotency_key.encode("utf-8", "replace")).hexdigest()[:25],
            "enforce_nonce": True,
        }
        reply = await self._call("POST", path, said, message.files)
        return Receipt(_id_of(reply, "message"))

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        path = f"/channels/{_place(destination)}/messages/{_checked(platform_message_id, 'message')}"
        await self._call("PATCH", path, _said(content, buttons))

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        emoji = emoji_of(emoji) if emoji.isascii() else emoji.strip()
        emoji += "\ufe0f" if emoji in _COLOURED else ""
        # What is ASCII and no custom emoji is a name we do not know, or a piece of a path.
        if emoji.isascii() and not _CUSTOM_EMOJI.fullmatch(emoji):
            raise ChannelError(f"Discord has no emoji {emoji[:50]!r}: give the emoji itself")
        path = f"/channels/{_place(destination)}/messages/{_checked(platform_message_id, 'message')}/reactions"
        await self._call("PUT", f"{path}/{quote(emoji.encode('utf-8', 'replace'), safe='')}/@me")

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        """It ends by itself after ten seconds, or with the next message."""
        if on:
            with suppress(DeliveryError):
                await self._call("POST", f"/channels/{_place(destination)}/typing")

    async def tell(self, press: ButtonPress, text: str) -> None:
        """Through the press's own address, which Discord keeps for 15 minutes; no token goes there."""
        application, _, token = press.handle.partition("/")
        if not token:
            raise ChannelError("this press of a button cannot be answered: it has no handle")
        said = {"content": to_discord(text)[:MAX_TEXT], "flags": EPHEMERAL, "allowed_mentions": QUIET}
        path = f"/webhooks/{_checked(application, 'application')}/{quote(token, safe='')}"
        self._taken(await self._http.call("POST", self._api + path, headers=_HEADERS, json=said))

    async def open_dm(self, user_id: str) -> str | None:
        if not re.fullmatch(_ID[0], user_id):
            return None
        reply = await self._ask("POST", "/users/@me/channels", {"recipient_id": user_id})
        if reply.status in (400, 403, 404):  # there is no such person, or it is a bot
            return None
        return _id_of(self._taken(reply), "channel")

    async def close(self) -> None:
        await self._http.close()

    async def _call(
        self, method: str, path: str, said: dict[str, Any] | None = None, files: tuple[OutboundFile, ...] = ()
    ) -> Reply:
        return self._taken(await self._ask(method, path, said, files))

    async def _ask(
        self, method: str, path: str, said: dict[str, Any] | None = None, files: tuple[OutboundFile, ...] = ()
    ) -> Reply:
        if not self._token:
            raise DeliveryError("LONGSHORE_DISCORD_TOKEN is not set", retryable=False)
        headers = _HEADERS | {"authorization": f"Bot {self._token}"}
        what: dict[str, Any] = {}
        if files:
            what = {"data": {"payload_json": json.dumps(said)}, "files": await asyncio.to_thread(_parts, files)}
        elif said is not None:
            what = {"json": said}
        return await self._http.call(method, self._api + path, headers=headers, **what)

    def _taken(self, reply: Reply) -> Reply:
        if reply.ok:
            return reply
        said = reply.json()
        said = said if isinstance(said, dict) else {}
        words = str(said.get("message") or "")
        if self._token:
            words = words.replace(self._token, "…")
        wait = said.get("retry_after")
        seconds = float(wait) if isinstance(wait, int | float) and 0 <= wait < 1e6 else None
        raise self._http.failure(reply, words, seconds)


# Discord's front door turns away programs that do not call themselves a DiscordBot.
_HEADERS: Final = {"user-agent": "DiscordBot (longshore, 1)"}


def _said(content: dict[str, Any], buttons: tuple[Button, ...]) -> dict[str, Any]:
    if len(buttons) > _ROWS * _PER_ROW:
        raise DeliveryError(f"Discord shows at most {_ROWS * _PER_ROW} buttons, not {len(buttons)}", retryable=False)
    rows = [buttons[start : start + _PER_ROW] for start in range(0, len(buttons), _PER_ROW)]
    return {
        "content": to_discord(str(content.get("text") or "")),
        "allowed_mentions": QUIET,
        "components": [{"type": _ROW, "components": [_button(button) for button in row]} for row in rows],
    }


def _button(button: Button) -> dict[str, Any]:
    label = button.label if len(button.label) <= _MAX_LABEL else button.label[: _MAX_LABEL - 1] + "…"
    if button.url is not None:
        return {"type": _BUTTON, "style": _LINK, "label": label, "url": button.url}
    return {"type": _BUTTON, "style": _STYLES[button.style], "label": label, "custom_id": button.token}


def _parts(files: tuple[OutboundFile, ...]) -> list[tuple[str, tuple[str, bytes, str]]]:
    """Names on disk need not be text."""
    names = [file.name.encode("utf-8", "replace").decode() for file in files]
    return [
        (f"files[{number}]", (names[number], file.path.read_bytes(), file.media_type))
        for number, file in enumerate(files)
    ]


def _place(destination: Destination) -> str:
    """A thread is written to by its own id."""
    return _checked(destination.thread_id or destination.platform_id, "channel")


def _checked(given: str, kind: str) -> str:
    """Ids come from rows, and become a part of an address."""
    if not re.fullmatch(_ID[0], given):
        raise DeliveryError(f"{given[:50]!r} is no {kind} of Discord: an id is a row of digits", retryable=False)
    return given


def _id_of(reply: Reply, kind: str) -> str:
    said = reply.json()
    found = said.get("id") if isinstance(said, dict) else None
    if not isinstance(found, str) or not re.fullmatch(_ID[0], found):
        why = f"discord answered {reply.status}, but not with the id of a {kind}"
        raise DeliveryError(why, retryable=True, may_have_arrived=True)
    return found
