"""What Discord posts to an interactions endpoint, and what it wants to hear within three seconds. Nothing is sent here,
and everything that is read may be hostile: types are checked, and unknown fields ignored."""

import json
import re
import time
from collections.abc import Iterator
from typing import Annotated, Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from adapters.channel_port import Answer, ButtonPress, InboundMessage, InboundRequest, Received
from adapters.errors import MalformedError, SignatureError

SIGNATURE: Final = "x-signature-ed25519"
TIMESTAMP: Final = "x-signature-timestamp"
TOLERANCE_SECONDS: Final = 300
EPHEMERAL: Final = 64  # only whoever pressed or asked sees it
QUIET: Final[dict[str, Any]] = {"parse": []}  # nobody is pinged, whatever the text says

_PING, _COMMAND, _COMPONENT = 1, 2, 3
_PONG, _MESSAGE, _DEFERRED_UPDATE = 1, 4, 6
_STRING, _ATTACHMENT = 3, 11  # kinds of options
_THREADS: Final = (10, 11, 12)  # kinds of channels: of announcements, public, private
_BOT_DM, _OTHERS_CHAT = 1, 2  # contexts
_PASSED_ON: Final = "Passed on. If you may talk to the agent here, its answer comes as a message in this channel."
_NOT_THERE: Final = "I cannot write in this chat. Ask me in a channel of a server, or in a direct message to me."

Snowflake = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,20}$")]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _User(_Part):
    id: Snowflake
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class _Member(_Part):
    user: _User
    nick: str | None = None


class _Place(_Part):
    id: Snowflake
    type: int = 0
    parent_id: Snowflake | None = None


class _Option(_Part):
    type: int
    value: str | int | float | bool | None = None
    options: list["_Option"] = Field(default_factory=list)


class _File(_Part):
    filename: str
    url: str


class _Resolved(_Part):
    attachments: dict[str, _File] = Field(default_factory=dict)


class _Data(_Part):
    name: str = ""
    options: list[_Option] = Field(default_factory=list)
    resolved: _Resolved = _Resolved()
    custom_id: str | None = Field(None, max_length=100)


class _Message(_Part):
    id: Snowflake


class _Interaction(_Part):
    id: Snowflake
    application_id: Snowflake
    type: int
    token: str = Field("", max_length=1000)
    data: _Data = _Data()
    guild_id: Snowflake | None = None
    channel_id: Snowflake | None = None
    channel: _Place | None = None
    member: _Member | None = None
    user: _User | None = None
    context: int | None = None
    message: _Message | None = None


def check_signature(key: Ed25519PublicKey, request: InboundRequest) -> None:
    at, given = request.headers.get(TIMESTAMP, ""), request.headers.get(SIGNATURE, "")
    if not re.fullmatch(r"[0-9]{1,15}", at) or not re.fullmatch(r"[0-9a-fA-F]{128}", given):
        raise SignatureError(f"the request needs {SIGNATURE} (128 hexadecimal digits) and {TIMESTAMP} (seconds)")
    if abs(time.time() - int(at)) > TOLERANCE_SECONDS:
        raise SignatureError("the signature is too old or from the future: check this machine's clock")
    try:
        key.verify(bytes.fromhex(given), at.encode() + request.body)
    except InvalidSignature:
        raise SignatureError("the signature does not fit the body") from None


def read_interaction(body: bytes) -> Received:
    try:
        said = _Interaction.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:100] or "body"
        raise MalformedError(f"{where}: {first['msg']}") from None
    if said.type == _PING:
        return Received(answer=_answer({"type": _PONG}))
    if said.type not in (_COMMAND, _COMPONENT):
        raise MalformedError(f"type: interactions of type {said.type} are not asked for by this channel"[:200])
    user = said.member.user if said.member is not None else said.user
    if user is None:
        raise MalformedError("member, user: it does not say who it is from")
    if said.channel_id is None:
        raise MalformedError("channel_id: it does not say where it is from")
    if user.bot:
        return Received()
    return _command(said, user, said.channel_id) if said.type == _COMMAND else _press(said, user, said.channel_id)


def _command(said: _Interaction, user: _User, channel_id: str) -> Received:
    if said.context == _OTHERS_CHAT:  # a chat of other people, where the application is only a guest
        return Received(answer=_private(_NOT_THERE))
    words = " ".join(_words(said.data.options)).strip()
    # A command without words is one of the fleet's own, registered under its name: /clear, /status.
    text = words or (f"/{said.data.name}" if said.data.name else "")
    if not text:
        raise MalformedError("data: the command has neither a name nor words")
    files = [{"name": file.filename, "url": file.url} for file in said.data.resolved.attachments.values()]
    platform_id, thread_id = _where(said, channel_id)
    message = InboundMessage(
        platform_id=platform_id,
        platform_message_id=said.id,
        content={"text": text} | ({"attachments": files} if files else {}),
        thread_id=thread_id,
        sender_id=user.id,
        sender_name=_name(said, user),
        is_mention=True,  # a command is always to us
        is_direct=said.context == _BOT_DM or (said.context is None and said.guild_id is None),
    )
    return Received(messages=(message,), answer=_private(_PASSED_ON))


def _press(said: _Interaction, user: _User, channel_id: str) -> Received:
    if not said.data.custom_id or not said.token:
        raise MalformedError("data.custom_id, token: a press without them cannot be answered")
    platform_id, thread_id = _where(said, channel_id)
    press = ButtonPress(
        token=said.data.custom_id,
        platform_id=platform_id,
        sender_id=user.id,
        sender_name=_name(said, user),
        thread_id=thread_id,
        platform_message_id=said.message.id if said.message is not None else None,
        handle=f"{said.application_id}/{said.token}",
    )
    return Received(presses=(press,), answer=_answer({"type": _DEFERRED_UPDATE}))


def _where(said: _Interaction, channel_id: str) -> tuple[str, str | None]:
    """A thread is a channel of its own on Discord; here it is a thread of the channel it hangs on."""
    place = said.channel
    if place is not None and place.type in _THREADS and place.parent_id is not None and place.id == channel_id:
        return place.parent_id, channel_id
    return channel_id, None


def _words(options: list[_Option]) -> Iterator[str]:
    """What was typed, also into the options of subcommands."""
    for option in options:
        if option.type == _STRING and isinstance(option.value, str):
            yield option.value
        yield from _words(option.options)


def _name(said: _Interaction, user: _User) -> str | None:
    nick = said.member.nick if said.member is not None else None
    for name in (nick, user.global_name, user.username):
        shown = "".join(char for char in name or "" if char.isprintable()).strip()
        if shown:
            return shown[:200]
    return None


def _private(text: str) -> Answer:
    return _answer({"type": _MESSAGE, "data": {"content": text, "flags": EPHEMERAL, "allowed_mentions": QUIET}})


def _answer(what: dict[str, Any]) -> Answer:
    return Answer(json.dumps(what).encode())
