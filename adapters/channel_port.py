"""The channel port: what a platform for messages is to the fleet. A driver is one file or folder in `channels/` and
one entry point; it knows ids and texts of its platform, and nothing about agents, sessions or who may do what.

`channels/base.py` has what a driver does where its platform can do nothing, `channels/conformance.py` what each must
do."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Rate:
    """At most so many messages in so many seconds."""

    messages: int
    seconds: float


@dataclass(frozen=True)
class ChannelCapabilities:
    """What a platform can do; the fleet makes the best of the rest (`workers/delivery/`)."""

    # Sending twice with one key shows one message, so a doubtful sending is simply repeated; `key_seconds` says for how
    # long the platform remembers a key (None: for good).
    idempotent: bool
    key_seconds: float | None = None
    # `find_receipt` knows: when it finds nothing, nothing arrived.
    findable: bool = False
    edits: bool = False
    reactions: bool = False
    typing: bool = False
    files: bool = False
    buttons: bool = False
    direct_messages: bool = False
    max_text: int = 4000  # as `Channel.length` counts
    # What the platform lets through; the fleet keeps to it across all its workers.
    per_chat: Rate | None = None
    overall: Rate | None = None
    # Whoever sends requests is a program of somebody who reads our answers: it is told what was refused. Platforms are
    # not: they would only send it again.
    explains: bool = False
    # Whoever sends requests is a service of the operator's own: its messages count as a member's.
    trusted: bool = False
    # Anybody may be able to read what is written there: nothing is put there that is for approvers only.
    public: bool = False


# --- In ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InboundRequest:
    """A request from a platform, as it came: `body` is raw, because signatures are made over bytes."""

    headers: Mapping[str, str]  # lower-case names
    body: bytes


@dataclass(frozen=True)
class InboundMessage:
    """What a channel makes of a platform's event: ids and content, nothing about agents or sessions."""

    platform_id: str
    platform_message_id: str
    content: dict[str, Any]  # text, attachments (name, and url, data or reference)
    thread_id: str | None = None
    sender_id: str | None = None
    sender_name: str | None = None
    kind: str = "chat"
    is_mention: bool = False
    is_direct: bool = False  # a chat with one person


@dataclass(frozen=True)
class ButtonPress:
    """A person pressed a button of a message we sent. `handle` is what the platform needs to tell that person
    something; it means nothing to anybody else."""

    token: str
    platform_id: str
    sender_id: str
    sender_name: str | None = None
    thread_id: str | None = None
    platform_message_id: str | None = None
    handle: str = ""


@dataclass(frozen=True)
class Answer:
    """What a platform wants to hear at once."""

    body: bytes
    media_type: str = "application/json"


@dataclass(frozen=True)
class Received:
    """Everything one request, or one look at the platform, has brought. Nothing at all is fine."""

    messages: tuple[InboundMessage, ...] = ()
    presses: tuple[ButtonPress, ...] = ()
    answer: Answer | None = None


@dataclass(frozen=True)
class Batch:
    """What a listener heard, and where it goes on after that: the cursor is stored when the messages are."""

    received: Received
    cursor: dict[str, Any]


# --- Out ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Destination:
    platform_id: str
    thread_id: str | None = None


@dataclass(frozen=True)
class Button:
    """`token` comes back when it is pressed (ASCII, at most 60 characters). One with a `url` opens that instead."""

    label: str
    token: str = ""
    style: Literal["plain", "good", "bad"] = "plain"
    url: str | None = None


@dataclass(frozen=True)
class OutboundFile:
    """A file that goes with a message. It lies on the sender's disk until the message is delivered."""

    name: str
    path: Path
    media_type: str
    size: int


@dataclass(frozen=True)
class OutboundMessage:
    """`content["text"]` is Markdown, not longer than the channel's `max_text`; the driver renders it."""

    destination: Destination
    content: dict[str, Any]
    idempotency_key: str
    kind: str = "chat"
    files: tuple[OutboundFile, ...] = ()
    buttons: tuple[Button, ...] = ()  # only where the capabilities say so


@dataclass(frozen=True)
class Receipt:
    """What the platform said. `platform_message_id` is how to edit or react to it later."""

    platform_message_id: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Channel(Protocol):
    @property
    def channel_type(self) -> str: ...

    @property
    def capabilities(self) -> ChannelCapabilities: ...

    # --- in ---

    @property
    def receives(self) -> bool:
        """Whether there is a secret to check requests with. Without one there is no route for them at all."""

    def verify(self, request: InboundRequest) -> None:
        """Raise SignatureError unless the request is from the platform. Called before anything is parsed."""

    def receive(self, request: InboundRequest) -> Received:
        """Read a verified request; MalformedError if it cannot be read. The same request is read the same way."""

    def accepts(self, message: InboundMessage) -> bool:
        """The channel's own filter (echoes, bots, what it never forwards)."""

    def registers(self, message: InboundMessage, *, known: bool) -> str | None:
        """Which agent (by folder) a place gets that nobody has wired, because of this message; None: none. `known`: its
        sender is somebody to that agent."""

    def listens(self) -> str | None:
        """The name of what it listens to by itself, polling or holding a socket; None: it does not. One process at a
        time listens to one name."""

    def listen(self, cursor: Mapping[str, Any] | None) -> AsyncIterator[Batch]:
        """Go on hearing from where `cursor` says. Ends only by being closed; DeliveryError says when to come back."""

    async def fetch(self, reference: str, limit: int) -> bytes:
        """An attachment the platform keeps, by the `reference` its message carries; ChannelError if it cannot be had or
        is longer than `limit` bytes."""

    # --- out ---

    def length(self, text: str) -> int:
        """How long a Markdown text is on the platform."""

    async def deliver(self, message: OutboundMessage) -> Receipt:
        """Send, or raise DeliveryError."""

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        """Replace text and buttons of a message that was sent."""

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None: ...

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        """`doing`: what the agent is at, in words, for platforms that can show it."""

    async def tell(self, press: ButtonPress, text: str) -> None:
        """Tell whoever pressed a button what came of it; only them, where the platform can."""

    async def open_dm(self, user_id: str) -> str | None:
        """The platform id of a direct chat with a user, or None if there can be none."""

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        """Ask the platform whether a message of that key arrived; None if it did not, or (unless `findable`) if it
        cannot tell."""

    async def close(self) -> None: ...
