"""What a turn that was killed once must look like in the end, whatever the boundary: the contract of the journal.

The first worker's trace says what was on record when it died; from that alone follows how often each tool must have
been run and what the agent was told. The judgement needs no database: `tests/chaos/test_boundary_ledger.py` shows that
it sees each kind of fault."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.boundary_marks import (
    AFTER_COMMIT,
    ASKING,
    BEFORE_COMMIT,
    BEGIN,
    COMPLETE,
    END,
    FIRST_PIECE,
    RECORD,
)
from tests.support.boundary_plan import ANSWER, MODEL_CALLS, ROUNDS, TOOLS, Planned
from workers.toolbox import EFFECT_UNKNOWN

State = Literal["none", "started", "finished"]
CENT = 0.01


@dataclass
class Evidence:
    """`trace` and `effects_before`: what the first worker passed and did. `steps_before`: the status of each tool's
    step when it was dead. `boundary` None: nobody was killed."""

    boundary: str | None
    trace: Sequence[str]
    effects_before: Sequence[str] = ()
    effects: Sequence[str] = ()
    steps_before: dict[str, str] = field(default_factory=dict)
    session: Any = None
    inbox: Sequence[Any] = ()
    outbox: Sequence[Any] = ()
    turns: Sequence[Any] = ()
    steps: Sequence[Any] = ()
    transcript: Sequence[Any] = ()
    events: Sequence[Any] = ()
    usage: Sequence[Any] = ()
    reservations: Sequence[Any] = ()
    days: Sequence[Any] = ()
    shown: Sequence[str] = ()
    # What came to the model server: each request's results of tools, and what it would have refused.
    told: Sequence[str] = ()
    problems: Sequence[str] = ()

    @property
    def runs(self) -> Counter[str]:
        return Counter(self.effects)

    def state(self, tool: Planned) -> State:
        """What was on record of a tool's call when the first worker died."""
        ended, begun = self._committed(f"{END} {tool.name}"), self._committed(f"{BEGIN} {tool.name}")
        if ended is None or begun is None:
            found = self.steps_before.get(tool.name, "none")
            return "started" if found == "started" else "none" if found == "none" else "finished"
        return "finished" if ended else "started" if begun else "none"

    def _committed(self, name: str) -> bool | None:
        """None: the kill fell between sending a COMMIT and hearing of it, at a boundary of a neighbour."""
        if AFTER_COMMIT + name in self.trace:
            return True
        under_way = BEFORE_COMMIT + name in self.trace and self.boundary != BEFORE_COMMIT + name
        return None if under_way else False

    def unknown(self) -> list[Planned]:
        """Tools of which the agent must be told that nobody knows."""
        return [tool for tool in TOOLS if not tool.idempotent and self.state(tool) == "started"]

    def complaints(self) -> list[str]:
        checks = (
            self._found(), self._tools(), self._model_calls(), self._said(), self._ended(), self._transcript(),
            self._events(), self._money(), self._wire(),
        )  # fmt: skip
        return [f"[{self.boundary or 'no kill'}] {what}" for check in checks for what in check]

    def _found(self) -> Iterator[str]:
        """What the first worker left is what its trace says, and nothing was done before it was written down."""
        begun = [tool for tool in TOOLS if self.state(tool) != "none"]
        for tool in TOOLS:
            found = self.steps_before.get(tool.name, "none")
            if found != self.state(tool):
                yield f"{tool.name}: its step was {found}, the trace says {self.state(tool)}"
            if tool.name in self.effects_before and tool not in begun:
                yield f"{tool.name} was run before its intent was on record"

    def _tools(self) -> Iterator[str]:
        for tool in TOOLS:
            before, now, state = self.effects_before.count(tool.name), self.runs[tool.name], self.state(tool)
            expected = before if state == "finished" or (state == "started" and not tool.idempotent) else before + 1
            if before > 1 or now != expected:
                runs = f"{before} times before and {now} in all, not {expected}"
                yield f"{tool.name} ({state} at the kill) was run {runs}"
            if state == "finished" and before != 1:
                yield f"{tool.name} was on record as finished after {before} runs"
        rows = Counter(step.name for step in self.steps if step.kind == "tool")
        if rows != Counter(tool.name for tool in TOOLS):
            yield f"steps of tools: {dict(rows)}"
        unknown = {tool.name for tool in self.unknown()}
        for step in self.steps:
            expected_status = "failed" if step.name in unknown else "finished"
            if step.status != expected_status:
                yield f"step {step.number} ({step.name}) is {step.status}"
        if sorted(step.number for step in self.steps) != list(range(1, len(self.steps) + 1)):
            yield "the steps' numbers have gaps"

    def _model_calls(self) -> Iterator[str]:
        calls = [step for step in self.steps if step.kind == "model"]
        if len(calls) != MODEL_CALLS:
            yield f"{len(calls)} model calls are on record"
        if sorted(row.id for row in self.usage) != sorted(step.id for step in calls):
            yield f"{len(self.usage)} usage rows for {len(calls)} model calls"
        least, most = self._repeated()
        if not MODEL_CALLS + least <= len(self.told) <= MODEL_CALLS + most:
            yield f"{len(self.told)} requests for {MODEL_CALLS} model calls, of which {least} to {most} were repeated"

    def _repeated(self) -> tuple[int, int]:
        """How many requests the kill has cost, at least and at most: that of the call under way, if it was sent."""
        if self.boundary is None:
            return 0, 0
        asked = sum(mark.startswith(ASKING) for mark in self.trace)
        heard = sum(mark.startswith(FIRST_PIECE) for mark in self.trace)
        recorded = sum(mark.startswith(f"{AFTER_COMMIT}{RECORD}") for mark in self.trace)
        recorded += AFTER_COMMIT + COMPLETE in self.trace
        return max(heard - recorded, 0), max(asked - recorded, 0)

    def _said(self) -> Iterator[str]:
        texts = [row.content["text"] for row in self.outbox]
        if texts.count(ANSWER) != 1:
            yield f"{texts.count(ANSWER)} answers"
        for tool in TOOLS:
            if texts.count(tool.note) != int(bool(tool.sends)):
                yield f"{texts.count(tool.note)} messages of {tool.name}"
        if len(texts) != 1 + sum(bool(tool.sends) for tool in TOOLS) or texts[-1] != ANSWER:
            yield f"it said {texts}"
        if list(self.shown) != texts:
            yield f"delivered was {list(self.shown)}"

    def _ended(self) -> Iterator[str]:
        for row in self.inbox:
            if row.status != "completed":
                yield f"the message is {row.status} ({row.error_class}: {row.error})"
        opened = self.boundary is not None and any(mark == f"{AFTER_COMMIT}wake" for mark in self.trace)
        attempts = 2 if opened and AFTER_COMMIT + COMPLETE not in self.trace else 1
        found = [(turn.status, turn.attempt) for turn in self.turns]
        if found != [("completed", attempts)]:
            yield f"turns: {found}, not one completed in attempt {attempts}"
        if self.session.lease_owner is not None or self.session.lease_expires_at is not None:
            yield f"the lease is still {self.session.lease_owner}'s"

    def _transcript(self) -> Iterator[str]:
        unknown = {tool.name for tool in self.unknown()}
        expected: list[tuple[str, ...]] = [("user", "text")]
        for number, calls in enumerate(ROUNDS, 1):
            expected.append(("assistant", "text", f"On to round {number}, one moment."))
            expected += [("assistant", "tool_call", tool.name) for tool in calls]
            expected += [
                ("tool", "tool_result", tool.name, EFFECT_UNKNOWN if tool.name in unknown else tool.result)
                for tool in calls
            ]
        expected.append(("assistant", "text", ANSWER))
        found = [_line(item) for item in self.transcript if item.type != "thinking"]
        if found != expected:
            odd = [pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]][:1]
            yield f"the transcript has {len(found)} items for {len(expected)}; found and expected differ first at {odd}"
        calls_made = [item.content["id"] for item in self.transcript if item.type == "tool_call"]
        results = [item.content["id"] for item in self.transcript if item.type == "tool_result"]
        if calls_made != results or len(set(calls_made)) != len(TOOLS):
            yield f"calls {calls_made} were answered by {results}"

    def _events(self) -> Iterator[str]:
        numbers = [event.seq for event in self.events if event.turn_id is not None]
        if [event.seq for event in self.events] != list(range(1, self.session.event_seq + 1)):
            yield f"event numbers have gaps: {numbers}, the last given out was {self.session.event_seq}"
        kinds = Counter(event.type for event in self.events)
        started, repeated = len(self.turns) and self.turns[0].attempt, self._repeated()[1]
        for kind, least, most in (
            ("turn_started", started, started),
            ("result", 1, 1),
            ("turn_ended", 1, 1),
            ("usage", MODEL_CALLS, MODEL_CALLS + repeated),
            ("message", len(ROUNDS), len(ROUNDS) + repeated),
        ):
            if not least <= kinds[kind] <= most:
                yield f"{kinds[kind]} {kind} events, not {least} to {most}"
        called, returned = self._events_of("tool_call"), self._events_of("tool_result")
        if set(called) != {tool.name for tool in TOOLS} or max(called.values()) > 1 + repeated:
            yield f"tool_call events: {dict(called)}"
        if max(returned.values(), default=0) > 1:
            yield f"tool_result events: {dict(returned)}"
        for tool in TOOLS:
            if returned[tool.name] == 0:
                yield f"no tool_result event of {tool.name}"

    def _events_of(self, kind: str) -> Counter[str]:
        return Counter(event.payload["name"] for event in self.events if event.type == kind)

    def _money(self) -> Iterator[str]:
        if self.reservations:
            yield f"{len(self.reservations)} reservations were left"
        spent, cost = sum(day.spent_usd for day in self.days), sum(float(row.cost_usd) for row in self.usage)
        if not self.days or abs(spent - cost) > CENT * cost:
            yield f"the budget says {spent}, usage says {cost}"
        if any(abs(day.reserved_usd) > CENT * cost for day in self.days):
            yield f"the budget still holds {[day.reserved_usd for day in self.days]}"

    def _wire(self) -> Iterator[str]:
        yield from (f"the model server complains: {problem}" for problem in self.problems)
        told = self.told[-1].count(EFFECT_UNKNOWN) if self.told else 0
        if told != len(self.unknown()):
            yield f"the model was told of {told} unknown effects, not of {[tool.name for tool in self.unknown()]}"


def _line(item: Any) -> tuple[str, ...]:
    content = item.content
    match item.type:
        case "tool_call":
            return item.role, item.type, content["name"]
        case "tool_result":
            return item.role, item.type, content["name"], content["text"]
        case _:
            return (item.role, item.type) if item.role == "user" else (item.role, item.type, content["text"])
