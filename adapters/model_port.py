"""The port of an API provider: one streamed model call. The tool loop, the journal, trimming and failover are ours and
exist once (`workers/tool_loop.py`); a provider of this kind only speaks its vendor's wire protocol."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from adapters.contracts import Detection, Manifest, Provider, ToolSpec
from adapters.events import TextDelta, Thinking, UsageReport
from adapters.transcript import Item, ReplyItem


@dataclass(frozen=True)
class ModelRequest:
    """One call. The same conversation one item longer gives the same bytes and then more: caches live on that."""

    model: str
    system: str
    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    conversation: str = ""  # the same for all calls of one conversation; a hint for the vendor's cache
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Allowance:
    """What the vendor said is left of a rate limit, and in how many seconds all of it is back."""

    kind: Literal["requests", "tokens", "input_tokens", "output_tokens"]
    limit: float
    remaining: float
    reset_seconds: float


@dataclass(frozen=True)
class ModelReply:
    """A whole message of the model.

    `end`: it is done. `tools`: it waits for the results of its calls. `length`: cut at `max_tokens`. `refused`: it
    declined. `interrupted`: the loop's own word for a message that somebody cut short."""

    items: tuple[ReplyItem, ...]
    stop: Literal["end", "tools", "length", "refused", "interrupted"]
    usage: UsageReport
    allowances: tuple[Allowance, ...] = ()


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model. Prices are US dollars per million tokens; None: nobody knows."""

    context_tokens: int
    input_usd: float | None = None
    output_usd: float | None = None


@runtime_checkable
class ModelProvider(Protocol):
    """Made once per process; `stream` is called on the process's event loop, many at a time."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def default_model(self) -> str: ...

    @property
    def account(self) -> str:
        """A fingerprint of the credentials in use, never the credentials: rate limits are counted by it."""

    async def detect(self) -> Detection: ...

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse a group's options with a reason, when they are configured rather than when they are used."""

    def facts(self, model: str, options: Mapping[str, Any]) -> ModelFacts: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | Thinking | ModelReply | None, None]:
        """Ask once. Yields pieces as they come (None: something came that has nothing to show yet), then exactly one
        ModelReply, and ends. Raises ProviderError with a class and, where the vendor gave one, `retry_after`; a stream
        that ends early raises it too. Closing the iterator closes the connection."""

    async def close(self) -> None: ...


AnyProvider = Provider | ModelProvider
