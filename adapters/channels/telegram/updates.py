"""What Telegram tells a bot, read as messages and pressed buttons. Nothing is asked here: the same update is always
read the same way. Everything in an update is somebody else's word; what does not fit is a MalformedError."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.channel_port import ButtonPress, InboundMessage, Received
from adapters.errors import MalformedError

# The kinds of updates that are read; Telegram is asked for no others.
KINDS: Final = ("message", "callback_query")
MAX_NAME: Final = 200

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
        said = self._said(text, entities)
        if said is None or not (said or attachments):
            return None
        mentioned = self._is_named(text, entities) or self._is_answered(message)
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

    def _is_named(self, text: str, entities: list[_Entity]) -> bool:
        for entity in entities:
            word = _part(text, entity).lower()
            if entity.type == "text_mention" and entity.user is not None and str(entity.user.id) == self.id:
                return True
            if entity.type == "mention" and self.username and word == f"@{self.username}".lower():
                return True
            if entity.type == "bot_command" and self.username and word.endswith(f"@{self.username}".lower()):
                return True
        return False

    def _is_answered(self, message: _Message) -> bool:
        original = message.reply_to_message
        if original is None or original.sender is None:
            return False
        # Everything in a topic of a forum is a reply to the message that opened it.
        opened = message.is_topic_message and original.message_id == message.message_thread_id
        return not opened and str(original.sender.id) == self.id

    def _said(self, text: str, entities: list[_Entity]) -> str | None:
        """In groups Telegram's clients write `/clear@our_bot now` for `/clear now`; None: it is another bot's command.
        What follows `/start` comes from a link, t.me/our_bot?start=…, and is what that link was made to say."""
        first = next((one for one in entities if one.type == "bot_command" and one.offset == 0), None)
        if first is None:
            return text
        word, rest = _part(text, first), text[len(_part(text, first)) :]
        command, at, name = word.partition("@")
        if at and self.username and name.lower() != self.username.lower():
            return None
        ours = command if self.username else word
        return rest.strip() or ours if command == "/start" else ours + rest


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
