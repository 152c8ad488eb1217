"""What happens in a turn, as other services read it from Redis: frozen, typed, with a versioned JSON form.

Providers emit `ProviderEvent`s. The fleet adds its own about a turn's life. `Envelope` says where and when."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from adapters.errors import ErrorClass

VERSION: Final = 1
PREVIEW_LIMIT: Final = 200


def _written(value: Any) -> Any:
    match value:
        case str():
            if value.isascii() and "\x00" not in value:
                return value
            return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
        case tuple() | list():
            return type(value)(_written(item) for item in value)
        case dict():
            return {_written(key): _written(item) for key, item in value.items()}
        case _:
            return value


Tokens = Annotated[int, Field(ge=0, lt=2**63)]


class _Event(BaseModel):
    # Built when one is first made or read: who has none to tell does without.
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    @field_validator("*")
    @classmethod
    def _writable(cls, value: Any) -> Any:
        """A model may say what no UTF-8 can hold (half a surrogate pair), or a NUL, which ends texts elsewhere."""
        return _written(value)


class SessionStarted(_Event):
    """The provider has a conversation; `continuation` is how it finds it again."""

    type: Literal["session_started"] = "session_started"
    continuation: str | None = None
    version: str | None = None


class TextDelta(_Event):
    """A piece of text as it is written. Not kept: the whole text follows as a Message or Result. `offset`: so many
    characters of the same text came before it, as the fleet counts them; who has fewer has missed some."""

    type: Literal["text_delta"] = "text_delta"
    text: str
    offset: int | None = None


class Thinking(_Event):
    type: Literal["thinking"] = "thinking"
    text: str


class ToolCall(_Event):
    type: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    preview: str = ""

    @field_validator("preview")
    @classmethod
    def _shorten(cls, value: str) -> str:
        value = " ".join(value.split())
        return value if len(value) <= PREVIEW_LIMIT else value[: PREVIEW_LIMIT - 1] + "…"


class ToolProgress(_Event):
    """A tool still runs. `elapsed` is in seconds."""

    type: Literal["tool_progress"] = "tool_progress"
    id: str
    name: str
    elapsed: float


class ToolResult(_Event):
    type: Literal["tool_result"] = "tool_result"
    id: str
    name: str
    ok: bool


class ApprovalRequested(_Event):
    type: Literal["approval_requested"] = "approval_requested"
    id: str = ""  # by which it is decided (`longshore approve`)
    category: str
    summary: str
    risk: Literal["low", "medium", "high"]
    context: dict[str, Any] = Field(default_factory=dict)


class FilesTouched(_Event):
    type: Literal["files_touched"] = "files_touched"
    paths: tuple[str, ...]


class DiffAvailable(_Event):
    type: Literal["diff_available"] = "diff_available"
    summary: str = ""


class Message(_Event):
    """A whole piece of text the agent said on the way; not an answer to deliver."""

    type: Literal["message"] = "message"
    text: str


class Result(_Event):
    """An answer: becomes an outbound message. A turn may have several."""

    type: Literal["result"] = "result"
    text: str


class UsageReport(_Event):
    """What one model call took. `input_tokens` were read anew; those that came from a cache, or were put into one, are
    counted beside them and not among them, whatever the vendor's own counts mean."""

    type: Literal["usage"] = "usage"
    model: str | None = None
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cache_read_tokens: Tokens = 0
    cache_write_tokens: Tokens = 0
    cost_usd: float | None = Field(None, ge=0, lt=10**6, allow_inf_nan=False)

    @property
    def read_tokens(self) -> int:
        """All that the model was given; people are shown this."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


class Stderr(_Event):
    type: Literal["stderr"] = "stderr"
    text: str


class ScreenChanged(_Event):
    """What a program's terminal shows: whole lines from the top, without their trailing blanks. `row` and `column`
    (from 0) are where its cursor stands."""

    type: Literal["screen_changed"] = "screen_changed"
    lines: tuple[str, ...]
    row: int = 0
    column: int = 0


Mode = Literal["agent-led", "human-led", "delegated"]


class ControlChanged(_Event):
    """Who types into a program's terminal from now on, and who said so."""

    type: Literal["control_changed"] = "control_changed"
    mode: Mode
    by: str


class Progress(_Event):
    type: Literal["progress"] = "progress"
    text: str


class Failed(_Event):
    """The attempt failed. `retry_after` is in seconds."""

    type: Literal["failed"] = "failed"
    message: str
    error_class: ErrorClass = ErrorClass.INTERNAL
    retryable: bool = True
    retry_after: float | None = Field(None, ge=0, allow_inf_nan=False)
    asked: bool = True  # False: it was held back, and the provider never asked


class TurnStarted(_Event):
    type: Literal["turn_started"] = "turn_started"
    number: int
    attempt: int
    provider: str
    model: str | None = None
    messages: tuple[int, ...] = ()
    worker: str = ""


class MessagesJoined(_Event):
    """Messages that came while the turn ran, and that the agent now knows of."""

    type: Literal["messages_joined"] = "messages_joined"
    messages: tuple[int, ...]


class QuestionAsked(_Event):
    """The agent asks the people of the conversation. `seconds` is how long it waits for an answer."""

    type: Literal["question_asked"] = "question_asked"
    id: str
    title: str
    text: str
    options: tuple[str, ...] = ()
    seconds: float


class TurnEnded(_Event):
    """`retry_in` (seconds) is set when the turn goes on by itself. `parked`: it waits for a person. `handed_over`:
    another worker goes on at once; with `error` set, on another provider."""

    type: Literal["turn_ended"] = "turn_ended"
    status: Literal["completed", "failed", "cancelled", "waiting", "parked", "handed_over"]
    error: str | None = None
    error_class: ErrorClass | None = None
    retry_in: float | None = None


class DeliveryChanged(_Event):
    type: Literal["delivery"] = "delivery"
    message: int
    status: Literal["delivered", "failed", "unknown", "retrying"]
    channel: str
    files: tuple[str, ...] = ()  # where the platform put them, if it says so
    error: str | None = None


ProviderEvent = (
    SessionStarted
    | TextDelta
    | Thinking
    | ToolCall
    | ToolProgress
    | ToolResult
    | ApprovalRequested
    | FilesTouched
    | DiffAvailable
    | Message
    | Result
    | UsageReport
    | Stderr
    | ScreenChanged
    | ControlChanged
    | Progress
    | Failed
)
AnyEvent = ProviderEvent | TurnStarted | MessagesJoined | QuestionAsked | TurnEnded | DeliveryChanged

# Passing things: shown live, not kept.
LIVE_ONLY: Final = (SessionStarted, TextDelta, ToolProgress, ScreenChanged, DeliveryChanged)


def is_lasting(event: AnyEvent) -> bool:
    return not isinstance(event, LIVE_ONLY)


class Envelope(BaseModel):
    """An event on its way to a reader.

    A lasting event has `seq`, dense within the session. A live-only one has `after`: the last lasting number its
    sender knew, so that a reader can tell whether it missed something, and drop what it has already passed."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    v: int = VERSION
    session: str
    turn: str | None = None
    seq: int | None = None
    after: int | None = None
    at: datetime
    event: Annotated[AnyEvent, Field(discriminator="type")]

    def to_json(self) -> str:
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def from_json(cls, raw: str | bytes) -> "Envelope":
        return cls.model_validate_json(raw)


_ANY: Final[TypeAdapter[AnyEvent]] = TypeAdapter(
    Annotated[AnyEvent, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)


def event_from_dict(payload: dict[str, Any]) -> AnyEvent:
    return _ANY.validate_python(payload)


def event_to_dict(event: AnyEvent) -> dict[str, Any]:
    return event.model_dump(mode="json", exclude_none=True)


def event_schema() -> dict[str, Any]:
    """The published JSON Schema of what is on the wire."""
    return Envelope.model_json_schema()
