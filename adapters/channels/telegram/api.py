"""How Telegram's Bot API is asked, and what its refusals mean. The token is a part of every address: no address, and no
word of Telegram's that repeats the token, leaves this file."""

import asyncio
import json
import re
from typing import Any, Final
from urllib.parse import quote

from adapters.channel_port import Button, Destination, OutboundFile
from adapters.channels.http import PlatformHttp, Reply
from adapters.errors import ChannelError, DeliveryError

VARIABLE: Final = "LONGSHORE_TELEGRAM"
ADDRESS: Final = "https://api.telegram.org"
CONFLICT_SECONDS: Final = 30.0
MAX_UPDATES_BYTES: Final = 32 << 20  # a hundred long messages in a script that JSON escapes
MAX_UPLOAD_BYTES: Final = 50 << 20
MAX_PHOTO_BYTES: Final = 10 << 20
BUTTONS_IN_A_ROW: Final = 3
NARROW_LABEL: Final = 20  # characters: three longer ones do not fit on a telephone
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
_PUBLIC: Final = re.compile(r"@[A-Za-z0-9_]{3,40}")
_PHOTOS: Final = ("image/jpeg", "image/png", "image/webp")


class BotApi:
    """One bot. Without a token it refuses everything."""

    def __init__(self, token: str, address: str = "") -> None:
        self._token = token
        self._address = address.rstrip("/") or ADDRESS
        self._http = PlatformHttp("Telegram")

    async def ask(self, method: str, fields: dict[str, Any], **how: Any) -> Any:
        """Call a method and return its result; DeliveryError if there is none. `how`: files, a timeout, a limit."""
        if not self._token:
            raise DeliveryError(f"{VARIABLE}_TOKEN is not set", retryable=False)
        if "files" in how:  # a form, whose fields are texts
            how["data"] = {key: value if isinstance(value, str) else json.dumps(value) for key, value in fields.items()}
        else:
            how["json"] = fields
        reply = await self._http.call("POST", f"{self._address}/bot{self._token}/{method}", **how)
        answer = reply.json() if reply.ok else None
        if isinstance(answer, dict) and answer.get("ok") is True:
            return answer.get("result")
        raise self._failure(reply)

    async def updates(self, asked: dict[str, Any], seconds: int) -> list[dict[str, Any]]:
        """What is new, waited for up to so many seconds. Each has a number, `update_id`."""
        asked = asked | {"timeout": seconds}
        try:
            found = await self.ask("getUpdates", asked, timeout=seconds + 10.0, limit=MAX_UPDATES_BYTES)
        except DeliveryError as error:
            if "answered 409" not in str(error):
                raise
            why = (
                f"{error}. Somebody else takes this bot's updates: another program that polls (stop it), or a webhook "
                f"(set {VARIABLE}_SECRET if it is ours, else call deleteWebhook)"
            )
            raise DeliveryError(why, retryable=True, retry_after=CONFLICT_SECONDS) from error
        if not isinstance(found, list) or not all(
            isinstance(one, dict) and type(one.get("update_id")) is int for one in found
        ):
            raise DeliveryError("Telegram answered something else than updates", retryable=True)
        return found

    async def download(self, file_id: str, limit: int) -> bytes:
        found = await self.ask("getFile", {"file_id": file_id})
        path = found.get("file_path") if isinstance(found, dict) else None
        if not isinstance(path, str) or not path or ".." in path:
            raise ChannelError("Telegram does not say where this file is")
        address = f"{self._address}/file/bot{self._token}/{quote(path, errors='replace')}"
        reply = await self._http.call("GET", address, limit=limit + 1)
        if not reply.ok:
            raise self._failure(reply)
        if len(reply.body) > limit:
            raise ChannelError(f"it is larger than {limit} bytes")
        return reply.body

    async def upload(self, fields: dict[str, Any], file: OutboundFile) -> Any:
        """Send a file: as a picture if Telegram can show it as one."""
        if file.size > MAX_UPLOAD_BYTES:
            why = f"{file.name} has {file.size} bytes; Telegram takes {MAX_UPLOAD_BYTES >> 20} MB of a bot"
            raise DeliveryError(why, retryable=False)
        part = (file.name, await asyncio.to_thread(file.path.read_bytes), file.media_type)
        if file.media_type in _PHOTOS and file.size <= MAX_PHOTO_BYTES:
            try:
                return await self.ask("sendPhoto", fields, files={"photo": part})
            except DeliveryError as error:
                if not re.search(r"answered 400: .*(PHOTO|IMAGE)", str(error)):  # too long, too thin, not a picture
                    raise
        return await self.ask("sendDocument", fields, files={"document": part})

    async def close(self) -> None:
        await self._http.close()

    def _failure(self, reply: Reply) -> DeliveryError:
        if reply.ok:
            return DeliveryError("Telegram answered something unreadable", retryable=True, may_have_arrived=True)
        answer = reply.json()
        said = answer if isinstance(answer, dict) else {}
        given = said.get("parameters")
        parameters = given if isinstance(given, dict) else {}
        words = str(said.get("description") or "").replace(self._token, "…")
        if words in ("Unauthorized", "Not Found"):
            words += f": {VARIABLE}_TOKEN is none that @BotFather gave, or no longer"
        if isinstance(moved := parameters.get("migrate_to_chat_id"), int):
            words += f": it is {moved} now; wire the agent to that"
        wait = parameters.get("retry_after")
        return self._http.failure(reply, words, float(wait) if isinstance(wait, int) and 0 <= wait < 10**6 else None)


def where(destination: Destination) -> dict[str, Any]:
    platform_id, thread_id = destination.platform_id, destination.thread_id
    if not _NUMBER.fullmatch(platform_id) and not _PUBLIC.fullmatch(platform_id):
        why = f"{platform_id!r} is no chat of Telegram's: those are numbers, or @name for public ones"
        raise DeliveryError(why, retryable=False)
    chat = {"chat_id": int(platform_id) if _NUMBER.fullmatch(platform_id) else platform_id}
    return chat if thread_id is None else chat | {"message_thread_id": _numbered(thread_id, "topic")}


def which(destination: Destination, platform_message_id: str) -> dict[str, Any]:
    """A message that is there already; its topic needs no mention."""
    return where(Destination(destination.platform_id)) | {"message_id": _numbered(platform_message_id, "message")}


def _numbered(value: str, what: str) -> int:
    if not _NUMBER.fullmatch(value):
        raise DeliveryError(f"{value!r} is no {what} of Telegram's: those have numbers", retryable=False)
    return int(value)


def keyboard(buttons: tuple[Button, ...]) -> dict[str, Any]:
    keys = [
        {"text": one.label, "url": one.url} if one.url is not None else {"text": one.label, "callback_data": one.token}
        for one in buttons
    ]
    width = BUTTONS_IN_A_ROW if all(len(one.label) <= NARROW_LABEL for one in buttons) else 1
    return {"reply_markup": {"inline_keyboard": [keys[at : at + width] for at in range(0, len(keys), width)]}}
