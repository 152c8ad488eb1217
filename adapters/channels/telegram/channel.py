"""`telegram`: a bot of Telegram's, over its Bot API. docs/channels/telegram.md takes a newcomer through it.

With LONGSHORE_TELEGRAM_SECRET, Telegram sends its updates to the gateway; without, they are asked for (`listen`). The
token is a part of every address: no address is ever shown or stored."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import structlog

from adapters.channel_port import (
    Batch,
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
from adapters.channels.signing import same
from adapters.channels.telegram.api import VARIABLE, BotApi, keyboard, where, which
from adapters.channels.telegram.updates import KINDS, Bot
from adapters.channels.variables import ADDRESS, FOLDER, variable
from adapters.errors import ChannelError, DeliveryError, MalformedError, SignatureError
from adapters.markup.emoji import emoji_of
from adapters.markup.layout import utf16_length
from adapters.markup.telegram import Formatted, to_telegram

log = structlog.get_logger()

SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"  # noqa: S105 - where it is, not what it is
POLL_SECONDS: Final = 25
MAX_CAPTION: Final = 1024  # UTF-16 units
MAX_TOAST: Final = 200
_TOKEN: Final = (r"[0-9]{1,20}:[A-Za-z0-9_-]{8,200}", "a token of @BotFather")
_SECRET: Final = (r"[A-Za-z0-9_-]{1,256}", "1 to 256 of A-Z, a-z, 0-9, _ and -")
_USERNAME: Final = (r"@?[A-Za-z0-9_]{3,40}", "the bot's name, like my_longshore_bot")
# Telegram has a fixed list of reactions; this is what comes nearest to some that are not on it.
_NEAREST: Final = {"✅": "👍", "✔": "👍", "❌": "👎", "😂": "🤣", "😆": "🤣", "😄": "😁"}


class TelegramChannel(PlainChannel):
    channel_type = "telegram"
    capabilities = ChannelCapabilities(
        idempotent=False,
        edits=True,
        reactions=True,
        typing=True,
        files=True,
        buttons=True,
        direct_messages=True,
        max_text=4096,
        # What groups let through. A person's chat would take one a second; both take short bursts, and a long answer
        # in parts is one.
        per_chat=Rate(20, 60.0),
        overall=Rate(30, 1.0),
    )

    def __init__(
        self,
        token: str | None = None,
        secret: str | None = None,
        *,
        username: str | None = None,
        api: str | None = None,
        agent: str | None = None,
        poll_seconds: int = POLL_SECONDS,
    ) -> None:
        """What is not given is read from LONGSHORE_TELEGRAM_TOKEN, _SECRET, _USERNAME, _API and _AGENT."""
        token = variable(f"{VARIABLE}_TOKEN", token, _TOKEN)
        self._secret = variable(f"{VARIABLE}_SECRET", secret, _SECRET)
        name = variable(f"{VARIABLE}_USERNAME", username, _USERNAME)
        self._api = BotApi(token, variable(f"{VARIABLE}_API", api, ADDRESS))
        self._agent = variable(f"{VARIABLE}_AGENT", agent, FOLDER)
        self._bot = Bot(token.partition(":")[0], name.removeprefix("@"))
        self._poll_seconds = poll_seconds

    # --- in ---

    @property
    def receives(self) -> bool:
        return bool(self._secret)

    def verify(self, request: InboundRequest) -> None:
        if not self._secret:
            raise SignatureError(f"{VARIABLE}_SECRET is not set: requests of Telegram cannot be told from others")
        if not same(request.headers.get(SECRET_HEADER, ""), self._secret):
            raise SignatureError(f"the {SECRET_HEADER} header is not the secret_token of setWebhook")

    def receive(self, request: InboundRequest) -> Received:
        return self._bot.read(request.body)

    def accepts(self, message: InboundMessage) -> bool:
        """Only people: of bots, channels and unnamed administrators no sender is read."""
        return message.sender_id is not None

    def listens(self) -> str | None:
        return f"telegram:{self._bot.id}" if self._bot.id and not self._secret else None

    async def listen(self, cursor: Mapping[str, Any] | None) -> AsyncIterator[Batch]:
        """Asking with an offset makes Telegram forget what came before it: so only after that was taken."""
        offset = cursor.get("offset") if cursor is not None else None
        while True:
            known = {"offset": offset} if isinstance(offset, int) else {}
            updates = await self._api.updates({"allowed_updates": list(KINDS)} | known, self._poll_seconds)
            if updates:
                offset = updates[-1]["update_id"] + 1
                yield Batch(self._read_all(updates), {"offset": offset})

    async def fetch(self, reference: str, limit: int) -> bytes:
        return await self._api.download(reference, limit)

    # --- out ---

    def length(self, text: str) -> int:
        return utf16_length(_rendered(text).text)

    async def deliver(self, message: OutboundMessage) -> Receipt:
        place, said = where(message.destination), _rendered(str(message.content.get("text") or ""))
        buttons = keyboard(message.buttons) if message.buttons else {}
        captioned = len(message.files) == 1 and utf16_length(said.text) <= MAX_CAPTION
        sent: Receipt | None = None
        if not message.files or (said.text and not captioned):
            fields = {"text": said.text, "entities": said.entities}
            sent = _receipt(await self._api.ask("sendMessage", place | fields | buttons))
        for file in message.files:
            caption = {"caption": said.text, "caption_entities": said.entities} if captioned and said.text else {}
            try:
                answer = await self._api.upload(place | caption | (buttons if sent is None else {}), file)
            except DeliveryError as error:
                if sent is None:
                    raise
                raise _half_sent(error, file) from error
            sent = sent or _receipt(answer)
        assert sent is not None
        return sent

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        said = _rendered(str(content.get("text") or ""))
        changed = which(destination, platform_message_id) | keyboard(buttons)
        try:
            try:
                await self._api.ask("editMessageText", changed | {"text": said.text, "entities": said.entities})
            except DeliveryError as error:
                if "no text in the message" not in str(error):
                    raise
                # It went out under a file.
                caption = {"caption": said.text, "caption_entities": said.entities}
                await self._api.ask("editMessageCaption", changed | caption)
        except DeliveryError as error:
            if "message is not modified" not in str(error):
                raise

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        wanted = emoji_of(emoji)
        reaction = [{"type": "emoji", "emoji": _NEAREST.get(wanted, wanted)}]
        try:
            await self._api.ask("setMessageReaction", which(destination, platform_message_id) | {"reaction": reaction})
        except DeliveryError as error:
            if "REACTION_INVALID" not in str(error):
                raise
            raise ChannelError(f"Telegram has no reaction {emoji!r}; among others it has 👍 👎 ❤ 🎉 🤔 👀") from error

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        """Telegram takes the sign away by itself, after five seconds or when a message comes."""
        if on:
            try:
                await self._api.ask("sendChatAction", where(destination) | {"action": "typing"})
            except ChannelError as error:
                log.debug("telegram.no_typing", error=str(error))

    async def tell(self, press: ButtonPress, text: str) -> None:
        try:
            await self._api.ask("answerCallbackQuery", {"callback_query_id": press.handle, "text": text[:MAX_TOAST]})
        except DeliveryError as error:
            if "query is too old" not in str(error):  # then nobody looks at the button any more
                raise

    async def open_dm(self, user_id: str) -> str | None:
        """A person's chat has the person's number. The bot can write there once the person has written to it."""
        return user_id if re.fullmatch(r"[0-9]{1,20}", user_id) else None

    async def close(self) -> None:
        await self._api.close()

    def _read_all(self, updates: list[dict[str, Any]]) -> Received:
        heard: list[Received] = []
        for update in updates:
            try:
                heard.append(self._bot.read(update))
            except MalformedError as error:  # it stays as it is: asking again would hold up all others for ever
                log.warning("telegram.unreadable_update", update=update["update_id"], error=str(error))
        return Received(
            tuple(message for one in heard for message in one.messages),
            tuple(press for one in heard for press in one.presses),
        )


def _rendered(markdown: str) -> Formatted:
    """Halves of surrogate pairs, which no wire carries, are shown as question marks."""
    return to_telegram(markdown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _receipt(sent: Any) -> Receipt:
    number = sent.get("message_id") if isinstance(sent, dict) else None
    return Receipt(str(number) if isinstance(number, int) else None)


def _half_sent(error: DeliveryError, file: OutboundFile) -> DeliveryError:
    """A part of it is there: all of it must not be sent again."""
    return DeliveryError(
        f"what goes before {file.name} was sent, the file was not: {error}",
        retryable=error.retryable,
        retry_after=error.retry_after,
        may_have_arrived=error.retryable or error.may_have_arrived,
    )
