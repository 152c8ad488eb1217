"""What a turn that was killed once must look like in the end: the contract of the journal. The first worker's trace
says what was on record when it died; from that alone follows how often each tool must have been run and what the agent
was told."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.support.boundaries.ledger import Death, Evidence, Fact, within
from tests.support.boundaries.marks import (
    AFTER_COMMIT,
    ASKING,
    BEFORE_COMMIT,
    BEGIN,
    COMPLETE,
    END,
    FIRST_PIECE,
    RECORD,
)
from tests.support.boundaries.plan_turns import ANSWER, MODEL_CALLS, ROUNDS, SAID, TOOLS, PlannedTool, round_text
from workers.toolbox import EFFECT_UNKNOWN

State = Literal["none", "started", "finished"]
CENT = 0.01


@dataclass
class TurnEvidence(Evidence):
    """`requests`: what the model server was asked; `problems`: what it would have refused."""

    channel = "local"

    requests: Sequence[Any] = ()
    problems: Sequence[str] = ()

    @property
    def first(self) -> Death:
        """What the first worker left. Nobody was killed: all there is."""
        return self.deaths[0] if self.deaths else Death("", self.last, self.effects, self.steps)

    def state(self, tool: PlannedTool) -> State:
        """What was on record of a tool's call when the first worker died."""
        ended, begun = self._committed(f"{END} {tool.name}"), self._committed(f"{BEGIN} {tool.name}")
        if ended is None or begun is None:
            return self._row_state(tool)
        return "finished" if ended else "started" if begun else "none"

    def _committed(self, name: str) -> bool | None:
        """None: the kill fell between sending a COMMIT and hearing of it, at a boundary of a neighbour."""
        if AFTER_COMMIT + name in self.first.trace:
            return True
        under_way = BEFORE_COMMIT + name in self.first.trace and self.first.boundary != BEFORE_COMMIT + name
        return None if under_way else False

    def _row_state(self, tool: PlannedTool) -> State:
        for step in self.first.steps:
            if step.kind == "tool" and step.name == tool.name:
                return "started" if step.status == "started" else "finished"
        return "none"

    def unknown(self) -> set[str]:
        return {tool.name for tool in TOOLS if not tool.idempotent and self.state(tool) == "started"}

    def facts(self) -> Iterator[Fact]:
        for facts in (self._tools, self._calls, self._said, self._transcript, self._events, self._money, self._wire):
            yield from facts()

    def _tools(self) -> Iterator[Fact]:
        runs = Counter(self.effects)
        for tool in TOOLS:
            state, before = self.state(tool), self.first.effects.count(tool.name)
            yield f"the step of {tool.name} at the kill, by its row", self._row_state(tool), state
            if state == "none":
                yield f"runs of {tool.name} before its intent was on record", before, 0
            else:
                least = 1 if state == "finished" else 0
                yield f"runs of {tool.name} ({state} at the kill) until then", before, within(before, least, 1)
            again = state == "none" or (state == "started" and tool.idempotent)
            yield f"runs of {tool.name} ({state} at the kill, {before} before)", runs[tool.name], before + again
        rows = Counter(step.name for step in self.steps if step.kind == "tool")
        yield "steps of tools", rows, Counter(tool.name for tool in TOOLS)
        yield "numbers of steps", sorted(step.number for step in self.steps), list(range(1, len(self.steps) + 1))

    def _calls(self) -> Iterator[Fact]:
        calls = sorted(step.id for step in self.steps if step.kind == "model")
        yield "model calls on record", len(calls), MODEL_CALLS
        yield "usage rows of model calls", sorted(row.id for row in self.usage), calls
        least, most = self._repeated()
        asked = len(self.requests)
        yield "requests to the model", asked, within(asked, MODEL_CALLS + least, MODEL_CALLS + most)

    def _repeated(self) -> tuple[int, int]:
        """How many requests the kill has cost, at least and at most: that of the call under way, if it was sent."""
        if not self.deaths:
            return 0, 0
        trace = self.first.trace
        asked, heard, recorded = (
            sum(mark.startswith(name) for mark in trace) for name in (ASKING, FIRST_PIECE, AFTER_COMMIT + RECORD)
        )
        recorded += AFTER_COMMIT + COMPLETE in trace
        return max(heard - recorded, 0), max(asked - recorded, 0)

    def _said(self) -> Iterator[Fact]:
        yield "it said", [row.content["text"] for row in self.outbox], SAID
        yield "delivered was", self.texts_shown(), SAID
        trace = self.first.trace
        resumed = bool(self.deaths) and f"{AFTER_COMMIT}wake" in trace and AFTER_COMMIT + COMPLETE not in trace
        yield "attempts at the turn", [turn.attempt for turn in self.turns], [2 if resumed else 1]

    def _transcript(self) -> Iterator[Fact]:
        unknown = self.unknown()
        expected: list[tuple[str, ...]] = [("user", "text")]
        for number, calls in enumerate(ROUNDS, 1):
            expected.append(("assistant", "text", round_text(number)))
            expected += [("assistant", "tool_call", tool.name) for tool in calls]
            expected += [
                ("tool", "tool_result", tool.name, EFFECT_UNKNOWN if tool.name in unknown else tool.result)
                for tool in calls
            ]
        expected.append(("assistant", "text", ANSWER))
        yield "the transcript", [_line(item) for item in self.transcript if item.type != "thinking"], expected
        called = [item.content["id"] for item in self.transcript if item.type == "tool_call"]
        yield "calls with ids of their own", len(set(called)), len(TOOLS)
        results = [item.content["id"] for item in self.transcript if item.type == "tool_result"]
        yield "calls that were answered", results, called

    def _events(self) -> Iterator[Fact]:
        kinds = Counter(event.type for event in self.events)
        started, repeated = sum(turn.attempt for turn in self.turns), self._repeated()[1]
        for kind, least, most in (
            ("turn_started", started, started),
            ("result", 1, 1),
            ("turn_ended", 1, 1),
            ("usage", MODEL_CALLS, MODEL_CALLS + repeated),
            ("message", len(ROUNDS), len(ROUNDS) + repeated),
        ):
            yield f"{kind} events", kinds[kind], within(kinds[kind], least, most)
        for kind, most in (("tool_call", 1 + repeated), ("tool_result", 1)):
            of_tool = Counter(event.payload["name"] for event in self.events if event.type == kind)
            yield f"tools with a {kind} event", set(of_tool), {tool.name for tool in TOOLS}
            yield f"{kind} events too many", {name for name in of_tool if of_tool[name] > most}, set()

    def _money(self) -> Iterator[Fact]:
        cost = sum(float(row.cost_usd) for row in self.usage)
        spent, held = sum(day.spent_usd for day in self.days), sum(abs(day.reserved_usd) for day in self.days)
        yield "reservations left", len(self.reservations), 0
        yield "spent by the budget", spent, spent if self.days and abs(spent - cost) <= CENT * cost else cost
        yield "held by the budget", held, held if held <= CENT * cost else 0

    def _wire(self) -> Iterator[Fact]:
        yield "the model server complains", list(self.problems), []
        told = json.dumps(self.requests[-1:]).count(EFFECT_UNKNOWN)
        yield "unknown effects the model was told of", told, len(self.unknown())


def _line(item: Any) -> tuple[str, ...]:
    content = item.content
    match item.type:
        case "tool_call":
            return item.role, item.type, content["name"]
        case "tool_result":
            return item.role, item.type, content["name"], content["text"]
        case _:
            return (item.role, item.type) if item.role == "user" else (item.role, item.type, content["text"])
