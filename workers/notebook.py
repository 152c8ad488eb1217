"""Where a tool loop writes down what it asks and what it hears, so that another worker can go on from there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapters.events import UsageReport
from adapters.model_port import ModelReply
from adapters.transcript import Item, Said


@dataclass(frozen=True)
class Opened:
    """A model call about to be made. `joined`: what users have said since the last one (first: the prompt). `reply`: it
    was made before, by an earlier attempt, and this is what came of it."""

    joined: tuple[Item, ...]
    reply: ModelReply | None = None


class Notebook(Protocol):
    """The story of one turn. Calls are numbered from 1; an attempt that begins anew goes through the same numbers and
    is handed what earlier attempts had finished."""

    @property
    def conversation(self) -> str:
        """The same for all turns of a conversation."""

    @property
    def history(self) -> tuple[Item, ...]:
        """What was said in earlier turns."""

    def name_call(self, number: int, index: int) -> str:
        """The id of a tool call: the same for every attempt, different from every other in the conversation."""

    async def begin(self, number: int, *, pushed: Sequence[str] = (), only_if_asked: bool = False) -> Opened:
        """Write the intent down, with what users have said meanwhile (`pushed`: handed in by the caller).

        `only_if_asked`: the agent has said its last word; unless users have said something since, nothing is written
        and `joined` is empty."""

    async def finish(self, number: int, reply: ModelReply) -> None:
        """Write the reply down. One with calls is on record before any of them runs."""

    async def compact(self, number: int, summary: str, archive: str, usage: UsageReport) -> None:
        """A call was made to sum up the history, on the way to call `number`. From now on the summary stands for it; an
        empty one changes nothing, but the call is on the bill."""


@dataclass
class MemoryNotebook:
    """A notebook that is not kept: for one process, in tests and in programs that need no fleet."""

    prompt: str
    conversation: str = "memory"
    history: tuple[Item, ...] = ()
    finished: dict[int, ModelReply] = field(default_factory=dict)
    joined: dict[int, tuple[Item, ...]] = field(default_factory=dict)

    def name_call(self, number: int, index: int) -> str:
        return f"call_{number}_{index}"

    async def begin(self, number: int, *, pushed: Sequence[str] = (), only_if_asked: bool = False) -> Opened:
        if number not in self.joined:
            texts = [self.prompt, *pushed] if number == 1 else list(pushed)
            if only_if_asked and not texts:
                return Opened(())
            self.joined[number] = tuple(Said("user", text) for text in texts)
        return Opened(self.joined[number], self.finished.get(number))

    async def finish(self, number: int, reply: ModelReply) -> None:
        self.finished[number] = reply

    async def compact(self, number: int, summary: str, archive: str, usage: UsageReport) -> None:
        if summary:
            self.history = remembered(summary)


def remembered(summary: str | None, items: Sequence[Item] = ()) -> tuple[Item, ...]:
    """A history whose beginning was compacted."""
    if summary is None:
        return tuple(items)
    text = f"<summary of the conversation so far>\n{summary}\n</summary of the conversation so far>"
    return (Said("user", text), *items)
