"""What Telegram tells a bot, read as messages and pressed buttons. Nothing is asked here: the same update is always
read the same way. Everything in an update is somebody else's word; what does not fit is a MalformedError."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.channel_port import ButtonPress, InboundMessage, Received
from adapters.errors import MalformedError
from adapters.markup.layout import utf16_length

# The kinds of updates that are read; Telegram is asked for no others.
KINDS: Final = ("message", "callback_query")
MAX_NAME: Final = 200
# What a link to the bot may say in the name of whoever follows it: a one-time code, as `workers/intake/codes.py`
# makes them, and nothing else.
_CODE: Final = re.compile(r"LS(?:-[0-9A-Z]{4}){3}", re.IGNORECASE)

Number = Annotated[int, Field(ge=-(2**53), le=2**53)]  # Telegram promises 52 bits


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class _User(_Part):
    id: Number
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str | None:
        return f"{self.first_name} {self.last_name}".strip()[:MAX_NAME] or self.username[:MAX_NAME] or None


class _Chat(_Part):
    id: Number
    type: str


class _Entity(_Part):
    type: str
    offset: Annotated[int, Field(ge=0, le=2**31)]  # in UTF-16 units
    length: Annotated[int, Field(ge=0, le=2**31)]
    user: _User | None = None  # of a text_mention


class _File(_Part):
    file_id: str = Field(min_length=1, max_length=500)
    file_name: str | None = None
    mime_type: str | None = None
    file_size: Number | None = None
    width: Number = 0
    height: Number = 0


class _Original(_Part):
    message_id: Number
    sender: _User | None = Field(None, alias="from")


class _Place(_Part):
    """A message as a pressed button knows it: one that is too old is little more than its number."""

    message_id: Number
    chat: _Chat
    message_thread_id: Number | None = None
    is_topic_message: bool = False

    @property
    def thread_id(self) -> str | None:
        # Replies outside of forums have a thread number too; it names no place one could write to.
        return str(self.message_thread_id) if self.is_topic_message and self.message_thread_id is not None else None


class _Message(_Place):
    sender: _User | None = Field(None, alias="from")
    sender_chat: _Chat | None = None  # written in the name of a channel or of the group
    reply_to_message: _Original | None = None
    forward_origin: Any = None
    forward_date: Any = None  # of servers that are older than forward_origin
    text: str = ""
    entities: list[_Entity] = Field(default_factory=list)
    caption: str = ""
    caption_entities: list[_Entity] = Field(default_factory=list)
    photo: list[_File] = Field(default_factory=list)  # one picture in several sizes
    document: _File | None = None
    voice: _File | None = None
    audio: _File | None = None
    video: _File | None = None
    video_note: _File | None = None


class _Callback(_Part):
    id: str = Field(min_length=1, max_length=100)
    sender: _User = Field(alias="from")
    message: _Place | None = None
    data: str | None = Field(None, max_length=64)


class _Update(_Part):
    update_id: Number
    message: _Message | None = None
    callback_query: _Callback | None = None


# What a file is called that has no name of its own, and what it is unless its message says so.
_UNNAMED: Final = {
    "document": ("document", "application/octet-stream"),
    "voice": ("voice.ogg", "audio/ogg"),
    "audio": ("audio.mp3", "audio/mpeg"),
    "video": ("video.mp4", "video/mp4"),
    "video_note": ("video.mp4", "video/mp4"),
}


@dataclass(frozen=True)
class Bot:
    """Who the bot is: its number ("" if there is no token), and its name without the @ ("" if nobody has said)."""

    id: str
    username: str

    def read(self, update: bytes | dict[str, Any]) -> Received:
        """One update, raw or as JSON has it. Most kinds of updates bring nothing."""
        try:
            read = _Update.model_validate_json(update) if isinstance(update, bytes) else _Update.model_validate(update)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "update"
            raise MalformedError(f"a Telegram update at {where}: {first['msg']}") from None
        if read.message is not None:
            message = self._message(read.message)
            return Received((message,) if message is not None else ())
        press = _press(read.callback_query) if read.callback_query is not None else None
        return Received(presses=(press,) if press is not None else ())

    def _message(self, message: _Message) -> InboundMessage | None:
        """None: it says nothing (somebody came, left, or pinned something), or not to us."""
        text, entities = message.text or message.caption, message.entities or message.caption_entities
        attachments = _attachments(message)
        forwarded = message.forward_origin is not None or message.forward_date is not None
        said = _quoted(text) if forwarded else self._said(text, entities)
        if said is None or not (said or attachments):
            return None
        mentioned = any(self._is_named(text, entity) for entity in entities) or self._is_answered(message)
        # A bot, a channel or an unnamed administrator is nobody who could have a role here.
        person = message.sender if message.sender_chat is None else None
        person = person if person is not None and not person.is_bot else None
        return InboundMessage(
            platform_id=str(message.chat.id),
            platform_message_id=str(message.message_id),
            thread_id=message.thread_id,
            sender_id=str(person.id) if person is not None else None,
            sender_name=person.name if person is not None else None,
            content={"text": said} | ({"attachments": attachments} if attachments else {}),
            is_mention=mentioned,
            is_direct=message.chat.type == "private",
        )

    def _is_named(self, text: str, entity: _Entity) -> bool:
        if entity.type == "text_mention":
            return entity.user is not None and str(entity.user.id) == self.id
        word, name = _part(text, entity).lower(), f"@{self.username}".lower()
        named = word == name if entity.type == "mention" else entity.type == "bot_command" and word.endswith(name)
        return bool(self.username) and named

    def _is_answered(self, message: _Message) -> bool:
        original = message.reply_to_message
        if original is None or original.sender is None:
            return False
        # Everything in a topic of a forum is a reply to the message that opened it.
        opened = message.is_topic_message and original.message_id == message.message_thread_id
        return not opened and str(original.sender.id) == self.id

    def _said(self, text: str, entities: list[_Entity]) -> str | None:
        """Without the mention it begins with, if more follows. In groups Telegram's clients write `/clear@our_bot now`
        for `/clear now`; None: it is another bot's command. What follows `/start` comes from a link,
        t.me/our_bot?start=…, which anybody can make."""
        called = next((one for one in entities if one.offset == 0 and one.type.endswith("mention")), None)
        if called is not None and self._is_named(text, called):
            said = text[len(_part(text, called)) :].lstrip(" \n,:") or text
        else:
            said = text
        begins = utf16_length(text[: len(text) - len(said)])
        first = next((one for one in entities if one.type == "bot_command" and one.offset == begins), None)
        if first is None:
            return said
        word, rest = _part(text, first), said[len(_part(text, first)) :]
        command, at, name = word.partition("@")
        if at and self.username and name.lower() != self.username.lower():
            return None
        ours = command if self.username else word
        if command == "/start":
            return rest.strip() if _CODE.fullmatch(rest.strip()) else ours
        return ours + rest


def _quoted(text: str) -> str:
    """What somebody passes on is another's: neither a command of theirs nor a code nor an answer."""
    return "\n".join(f"> {line}" for line in text.split("\n")) if text else ""


def _press(callback: _Callback) -> ButtonPress | None:
    """None: it is under no message of ours, or opens a game."""
    if callback.message is None or callback.data is None:
        return None
    return ButtonPress(
        token=callback.data,
        platform_id=str(callback.message.chat.id),
        sender_id=str(callback.sender.id),
        sender_name=callback.sender.name,
        thread_id=callback.message.thread_id,
        platform_message_id=str(callback.message.message_id),
        handle=callback.id,
    )


def _attachments(message: _Message) -> list[dict[str, Any]]:
    """By the number Telegram keeps them under; where they lie is only told to whoever has the token."""
    found: list[dict[str, Any]] = []
    if message.photo:
        largest = max(message.photo, key=lambda size: (size.width * size.height, size.file_size or 0))
        found.append(_attachment(largest, "photo.jpg", "image/jpeg"))
    for kind, (name, media_type) in _UNNAMED.items():
        file: _File | None = getattr(message, kind)
        if file is not None:
            found.append(_attachment(file, file.file_name or name, file.mime_type or media_type))
    return found


def _attachment(file: _File, name: str, media_type: str) -> dict[str, Any]:
    size = {"size": file.file_size} if file.file_size is not None else {}
    return {"name": name[:MAX_NAME], "media_type": media_type[:MAX_NAME], **size, "reference": file.file_id}


def _part(text: str, entity: _Entity) -> str:
    units = text.encode("utf-16-le")
    return units[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le", "replace")
