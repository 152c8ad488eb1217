"""`slack`: the Events API and interactivity in, the Web API out. docs/channels/slack.md sets it up.

A message carries its idempotency key where people do not see it (in its metadata, or as a block's id when files come
with it), so Slack can be asked what arrived."""

import time
from contextlib import suppress
from typing import Any, Final

from adapters.channel_port import (
    Button,
    ButtonPress,
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundMessage,
    Rate,
    Receipt,
    Received,
)
from adapters.channels.base import PlainChannel
from adapters.channels.slack.api import RESPONSE_HOSTS, SlackApi
from adapters.channels.slack.events import check_signature, read
from adapters.channels.slack.messages import blocks_of, carries, emoji_name, metadata_of
from adapters.channels.variables import ADDRESS, FOLDER, KEY, variable
from adapters.errors import ChannelError, SignatureError
from adapters.markup.layout import utf16_length
from adapters.markup.slack import escape, to_mrkdwn

DEFAULT_API: Final = "https://slack.com/api"
# A section block holds so much, and a text that can be changed later 4,000: one limit for messages with and without
# buttons, and no text is cut by anybody who does not know what a code block is.
MAX_TEXT: Final = 3000
MAX_STATUS: Final = 100
# How far back it is looked for a message nobody knows about: a fleet that was down over a holiday is not too late.
LOOK_BACK_SECONDS: Final = 7 * 86400
PAGE_MESSAGES: Final = 100
MAX_PAGES: Final = 10
MAX_PAGE_BYTES: Final = 8 << 20

_TOKEN: Final = (r"(?:xoxe\.)?xoxb-[A-Za-z0-9-]{1,1000}", "a bot token, which begins with xoxb-")
_TEAM: Final = (r"[TE][A-Z0-9]{1,50}", "the id of a workspace, which begins with T")
_USER: Final = (r"[UW][A-Z0-9]{1,50}", "the id of a user, which begins with U or W")


class SlackChannel(PlainChannel):
    channel_type = "slack"
    capabilities = ChannelCapabilities(
        idempotent=False,
        findable=True,
        edits=True,
        reactions=True,
        typing=True,
        files=True,
        buttons=True,
        direct_messages=True,
        max_text=MAX_TEXT,
        per_chat=Rate(1, 1.0),
    )

    def __init__(
        self,
        *,
        token: str | None = None,
        signing_secret: str | None = None,
        api: str | None = None,
        bot_user: str | None = None,
        team: str | None = None,
        agent: str | None = None,
    ) -> None:
        """What is not given is read from the environment; what is not there either is found missing when it is used."""
        self._secret = variable("LONGSHORE_SLACK_SIGNING_SECRET", signing_secret, KEY)
        self._bot_user = variable("LONGSHORE_SLACK_BOT_USER", bot_user, _USER)
        self._team = variable("LONGSHORE_SLACK_TEAM", team, _TEAM)
        self._agent = variable("LONGSHORE_SLACK_AGENT", agent, FOLDER)
        url = variable("LONGSHORE_SLACK_API", api, ADDRESS, DEFAULT_API)
        self._api = SlackApi(url.rstrip("/"), variable("LONGSHORE_SLACK_TOKEN", token, _TOKEN))

    # --- in ---

    @property
    def receives(self) -> bool:
        return bool(self._secret)

    def verify(self, request: InboundRequest) -> None:
        if not self._secret:
            raise SignatureError("LONGSHORE_SLACK_SIGNING_SECRET is not set: no request can be checked")
        check_signature(self._secret, request)

    def receive(self, request: InboundRequest) -> Received:
        return read(request, self._bot_user, self._team)

    def accepts(self, message: InboundMessage) -> bool:
        """Only people: bots have other ids (B…), we among them; Slackbot and a user we post as are the exceptions."""
        sender = message.sender_id or ""
        return sender.startswith(("U", "W")) and sender not in ("USLACKBOT", self._bot_user)

    async def fetch(self, reference: str, limit: int) -> bytes:
        return await self._api.download(reference, limit)

    # --- out ---

    def length(self, text: str) -> int:
        """In UTF-16 units, the larger of the ways to count characters: Slack does not say which is its own."""
        return utf16_length(to_mrkdwn(text))

    async def deliver(self, message: OutboundMessage) -> Receipt:
        text = to_mrkdwn(str(message.content.get("text") or ""))
        if message.files:
            return await self._share(message, text)
        # Nobody's server is to be asked for a preview of what an agent wrote: the address may hold what it has read.
        said = {"text": text, "metadata": metadata_of(message.idempotency_key), "unfurl_links": False}
        said |= {"unfurl_media": False} | ({"blocks": blocks_of(text, message.buttons)} if message.buttons else {})
        answer = await self._api.call("chat.postMessage", _where(message.destination) | said)
        return Receipt(_text(answer.get("ts")))

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        text = to_mrkdwn(str(content.get("text") or ""))
        # Said each time: blocks that are not mentioned may stay, and texts would be parsed in another way than sent.
        said = {"text": text, "blocks": blocks_of(text, buttons) if buttons else [], "parse": "none"}
        await self._api.call("chat.update", {"channel": destination.platform_id, "ts": platform_message_id} | said)

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        reaction = {"channel": destination.platform_id, "timestamp": platform_message_id, "name": emoji_name(emoji)}
        await self._api.call("reactions.add", reaction, fine=("already_reacted",))

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        """Slack shows it in threads only, and takes it away after two minutes or when something is said."""
        if destination.thread_id is None:
            return
        status = (doing or "is thinking…")[:MAX_STATUS] if on else ""
        where = {"channel_id": destination.platform_id, "thread_ts": destination.thread_id}
        with suppress(ChannelError):
            await self._api.call("assistant.threads.setStatus", where | {"status": status})

    async def tell(self, press: ButtonPress, text: str) -> None:
        thread = {"thread_ts": press.thread_id} if press.thread_id else {}
        said = {"text": to_mrkdwn(text)} | thread
        if self._api.owns(press.handle, RESPONSE_HOSTS):
            only_them = {"response_type": "ephemeral", "replace_original": False}
            await self._api.respond(press.handle, said | only_them)
        else:
            where = {"channel": press.platform_id, "user": press.sender_id}
            await self._api.call("chat.postEphemeral", where | said)

    async def open_dm(self, user_id: str) -> str | None:
        nobody = ("user_not_found", "users_not_found", "user_disabled", "cannot_dm_bot", "user_not_visible")
        answer = await self._api.call("conversations.open", {"users": user_id}, fine=nobody)
        channel = answer.get("channel")
        return _text(channel.get("id")) if isinstance(channel, dict) else None

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        """ChannelError when so much was said since that it was not found nor ruled out."""
        where: dict[str, Any] = {"channel": destination.platform_id}
        method = "conversations.history"
        if destination.thread_id is not None:
            where["ts"], method = destination.thread_id, "conversations.replies"
        oldest = f"{time.time() - LOOK_BACK_SECONDS:.6f}"
        asked = where | {"limit": PAGE_MESSAGES, "include_all_metadata": "true", "oldest": oldest}
        for _ in range(MAX_PAGES):
            page = await self._api.call(method, asked, form=True, limit=MAX_PAGE_BYTES)
            messages = page.get("messages")
            if not isinstance(messages, list):
                raise ChannelError("slack does not say what was said there")
            for message in messages:
                if isinstance(message, dict) and carries(message, idempotency_key):
                    return Receipt(_text(message.get("ts")))
            more = page.get("response_metadata")
            cursor = _text(more.get("next_cursor")) if isinstance(more, dict) else None
            if not cursor:
                return None
            asked["cursor"] = cursor
        raise ChannelError(f"slack: not among the last {MAX_PAGES * PAGE_MESSAGES} messages there, and there are more")

    async def close(self) -> None:
        await self._api.close()

    async def _share(self, message: OutboundMessage, text: str) -> Receipt:
        """Files are put on Slack's servers one by one and shown all at once, with the text."""
        uploaded = [{"id": await self._api.upload(file), "title": file.name} for file in message.files]
        text = text or escape(", ".join(file.name for file in message.files))
        blocks = blocks_of(text, message.buttons, key=message.idempotency_key)
        where = _where(message.destination)
        where["channel_id"] = where.pop("channel")
        answer = await self._api.call("files.completeUploadExternal", where | {"files": uploaded, "blocks": blocks})
        shown = answer.get("files")
        several = [file for file in shown if isinstance(file, dict)] if isinstance(shown, list) else []
        places = [link for file in several if (link := _text(file.get("permalink")))]
        # Slack does not say which message it made of them; it is delivered all the same.
        found = None
        with suppress(ChannelError):
            found = await self.find_receipt(message.destination, message.idempotency_key)
        return Receipt(found.platform_message_id if found else None, {"files": places} if places else {})


def _where(destination: Destination) -> dict[str, Any]:
    thread = {"thread_ts": destination.thread_id} if destination.thread_id is not None else {}
    return {"channel": destination.platform_id} | thread


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
