"""The provider port, and the tools a provider is given. Drivers implement it and know nothing else of ours.
(A channel is in `channel_port.py`, a tool in `tool_port.py`, a model API in `model_port.py`, a sandbox in
`sandbox/port.py`.)"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from adapters.events import ProviderEvent
from adapters.policy import Policy

if TYPE_CHECKING:
    from adapters.station import Station

# --- What a driver says about itself -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Capabilities:
    """What a provider can do; decides how the fleet uses it."""

    streaming: bool = False
    tools: bool = False
    resume: bool = False  # continues a conversation by its continuation
    push: bool = False  # takes a follow-up while it runs
    images: bool = False
    pdfs: bool = False
    mcp: bool = False
    approvals: bool = False
    structured_edits: Literal["none", "diff", "file_events"] = "none"
    plain_texts: bool = False  # is told people's words as they are, without the fleet's marks around them
    # A second attempt at a turn asks for the same tool calls under the same ids, so the journal answers for those
    # already done. Without it, a turn that has sent something is not run again.
    replays_steps: bool = False


@dataclass(frozen=True)
class Manifest:
    adapter_id: str
    version: str
    vendor: str
    kind: Literal["api", "cli", "scripted"]
    capabilities: Capabilities
    models: tuple[str, ...] = ()
    signature: str | None = None


@dataclass(frozen=True)
class Detection:
    installed: bool
    version: str | None = None
    details: str = ""


# --- Providers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ContentBlock:
    """A part of a prompt: text, or media by reference."""

    type: Literal["text", "image", "pdf"]
    text: str = ""
    media_type: str = ""
    path: str = ""


@dataclass(frozen=True)
class TaskSpec:
    title: str
    goal: str
    constraints: tuple[str, ...] = ()
    acceptance: tuple[str, ...] = ()


@dataclass(frozen=True)
class McpServer:
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """`seconds_silent` without any event count as a hang."""

    iterations: int = 50
    seconds_silent: float = 600.0


@dataclass(frozen=True)
class ToolSpec:
    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class ToolOutcome:
    """What the agent is told. A failed tool is an answer too."""

    text: str
    ok: bool = True
    replayed: bool = False  # answered from the journal: it was done before


class ParkedError(Exception):
    """A tool waits for a person: the turn is put away and goes on, on any worker, when the answer is there. Whoever
    runs tools lets this through. `seconds` is how long it waits at most."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason, seconds)
        self.reason = reason
        self.seconds = seconds


class ToolBox(Protocol):
    """The tools of one turn. Calling one is journaled: the same `call_id` is never run twice with effect."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome: ...


@dataclass(frozen=True)
class QueryInput:
    """Everything a provider gets for one attempt at a turn."""

    prompt: str | tuple[ContentBlock, ...]
    tools: ToolBox
    messages: tuple[str, ...] = ()  # the plain texts behind the prompt, in order
    raw: bool = False  # the prompt is a command to the program itself, by somebody who may give it one
    attempt: int = 1
    # The calls that earlier attempts at the turn have made, by their ids, for a provider that begins at its beginning:
    # what it said before the last of them is said.
    called: frozenset[str] = frozenset()
    model: str | None = None
    continuation: str | None = None
    resume_at: str | None = None
    cwd: str = "."
    extra_directories: tuple[str, ...] = ()
    system_prompt: str = ""
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    task: TaskSpec | None = None
    limits: Limits = Limits()
    options: Mapping[str, Any] = field(default_factory=dict)  # the group's own settings for this provider
    station: "Station | None" = None  # for a provider whose agent is a program (`adapters/station.py`)


QueryStatus = Literal["starting", "running", "ended", "aborted", "failed"]


class Query(Protocol):
    """One attempt under way. `events` ends when the provider is done; errors come as Failed, or are raised."""

    @property
    def events(self) -> AsyncIterator[ProviderEvent]: ...

    @property
    def status(self) -> QueryStatus: ...

    @property
    def pid(self) -> int | None: ...

    async def push(self, text: str) -> bool:
        """A follow-up, for providers whose capabilities say so. False: it came too late, and was not seen."""

    async def end(self) -> None:
        """No more input will come."""

    async def abort(self) -> None:
        """Stop now and leave nothing behind. Returns when it is gone; may be called twice."""


class Provider(Protocol):
    @property
    def manifest(self) -> Manifest: ...

    async def detect(self) -> Detection: ...

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse a group's options with a reason, when they are configured rather than when they are used."""

    def query(self, given: QueryInput) -> Query: ...
