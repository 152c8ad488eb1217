"""The ledger of killed turns sees each kind of fault: without this, kills that find nothing would prove nothing."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.boundary_ledger import Evidence
from tests.support.boundary_marks import (
    AFTER_COMMIT,
    AFTER_EFFECT,
    ASKING,
    BEFORE_COMMIT,
    BEFORE_EFFECT,
    BEGIN,
    END,
    FIRST_PIECE,
    RECORD,
)
from tests.support.boundary_plan import ANSWER, MODEL_CALLS, ROUNDS, TOOLS
from workers.toolbox import EFFECT_UNKNOWN

NAMES = [tool.name for tool in TOOLS]
NOTES = [tool.note for tool in TOOLS if tool.sends]
COST = 0.25
Row = SimpleNamespace


def _commit(name: str) -> list[str]:
    return [BEFORE_COMMIT + name, AFTER_COMMIT + name]


def _run(tool: str) -> list[str]:
    return [*_commit(f"{BEGIN} {tool}"), BEFORE_EFFECT + tool, AFTER_EFFECT + tool]


def _call(number: int, record: str) -> list[str]:
    return [f"{ASKING}{number}", f"{FIRST_PIECE}{number}", *_commit(record)]


def _steps(unknown: str | None = None) -> list[Row]:
    calls = [Row(kind="model", name="m", id=f"m{n}", status="finished") for n in range(1, MODEL_CALLS + 1)]
    tools = [Row(kind="tool", name=n, id=n, status="failed" if n == unknown else "finished") for n in NAMES]
    steps = [*calls, *tools]
    for number, step in enumerate(steps, 1):
        step.number = number
    return steps


def _transcript(unknown: str | None = None) -> list[Row]:
    items = [Row(role="user", type="text", content={"text": "go"})]
    for number, calls in enumerate(ROUNDS, 1):
        items.append(Row(role="assistant", type="thinking", content={}))
        items.append(Row(role="assistant", type="text", content={"text": f"On to round {number}, one moment."}))
        items += [Row(role="assistant", type="tool_call", content={"id": t.name, "name": t.name}) for t in calls]
        for tool in calls:
            content = {"id": tool.name, "name": tool.name, "text": tool.result}
            content["text"] = EFFECT_UNKNOWN if tool.name == unknown else tool.result
            items.append(Row(role="tool", type="tool_result", content=content))
    return [*items, Row(role="assistant", type="text", content={"text": ANSWER})]


def _events() -> list[Row]:
    kinds = ["turn_started", "turn_started", *["message"] * len(ROUNDS), *["usage"] * MODEL_CALLS, "result"]
    events = [Row(type=kind, payload={}) for kind in kinds]
    events += [Row(type=kind, payload={"name": name}) for kind in ("tool_call", "tool_result") for name in NAMES]
    events.append(Row(type="turn_ended", payload={}))
    for number, event in enumerate(events, 1):
        event.seq, event.turn_id = number, "t"
    return events


def _good(unknown: str | None = None) -> Evidence:
    """Killed after the effect of t02, which may be run again; or of t01, which may not."""
    trace = [*_commit("wake"), *_call(1, RECORD), *_run("t01")]
    steps_before = {"t01": "started"}
    effects = list(NAMES)
    if unknown is None:
        trace += [*_commit(f"{END} t01"), *_call(2, f"{RECORD} #2"), *_run("t02")]
        steps_before = {"t01": "finished", "t02": "started"}
        effects = ["t01", "t02", *NAMES[1:]]
    events = _events()
    texts = [*NOTES, ANSWER]
    return Evidence(
        boundary=trace[-1],
        trace=trace,
        effects_before=effects[:1] if unknown else effects[:2],
        effects=effects,
        steps_before=steps_before,
        session=Row(lease_owner=None, lease_expires_at=None, event_seq=len(events)),
        inbox=[Row(status="completed", error=None, error_class=None)],
        outbox=[Row(content={"text": text}) for text in texts],
        turns=[Row(status="completed", attempt=2)],
        steps=_steps(unknown),
        transcript=_transcript(unknown),
        events=events,
        usage=[Row(id=f"m{number}", cost_usd=COST) for number in range(1, MODEL_CALLS + 1)],
        days=[Row(spent_usd=COST * MODEL_CALLS, reserved_usd=0.0)],
        shown=texts,
        told=[*["{}"] * (MODEL_CALLS - 1), EFFECT_UNKNOWN if unknown else "{}"],
    )


@pytest.mark.parametrize("unknown", [None, "t01"])
def test_a_turn_that_kept_the_contract_has_no_complaints(unknown: str | None) -> None:
    assert _good(unknown).complaints() == []


def _without(rows: Any, index: int) -> list[Any]:
    return [row for number, row in enumerate(rows) if number != index % len(rows)]


def _changed(rows: Any, index: int, **changes: Any) -> list[Any]:
    return [Row(**(vars(row) | changes)) if number == index % len(rows) else row for number, row in enumerate(rows)]


STRANGE = {"id": "x", "name": "t01", "text": ""}
_T09 = [(event.type, event.payload.get("name")) for event in _events()].index(("tool_result", "t09"))
Fault = Callable[[Evidence], Evidence]
FAULTS: dict[str, tuple[Fault, str]] = {
    "a finished tool run again": (
        lambda good: replace(good, effects=[*good.effects, "t01"]),
        "t01 (finished at the kill) was run 1 times before and 2 in all, not 1",
    ),
    "a tool that had not begun run twice": (
        lambda good: replace(good, effects=[*good.effects, "t09"]),
        "t09 (none at the kill) was run 0 times before and 2 in all",
    ),
    "a tool never run": (
        lambda good: replace(good, effects=[name for name in good.effects if name != "t10"]),
        "t10 (none at the kill) was run 0 times before and 0 in all",
    ),
    "a begun tool not run again": (
        lambda good: replace(good, effects=NAMES),
        "t02 (started at the kill) was run 1 times before and 1 in all, not 2",
    ),
    "an effect without an intent": (
        lambda good: replace(good, effects_before=["t01", "t02", "t03"]),
        "t03 was run before its intent",
    ),
    "a result lost": (
        lambda good: replace(good, steps_before={"t01": "started", "t02": "started"}),
        "t01: its step was started, the trace says finished",
    ),
    "a step left open": (
        lambda good: replace(good, steps=_changed(good.steps, -1, status="started")),
        "(t10) is started",
    ),
    "a step missing": (lambda good: replace(good, steps=_without(good.steps, -1)), "steps of tools"),
    "a model call missing": (lambda good: replace(good, steps=_without(good.steps, 3)), "7 model calls are on record"),
    "a call paid twice": (
        lambda good: replace(good, usage=[*good.usage, good.usage[0]]),
        "9 usage rows for 8 model calls",
    ),
    "a call asked again without need": (
        lambda good: replace(good, told=[*good.told, "{}"]),
        "9 requests for 8 model calls",
    ),
    "two answers": (
        lambda good: replace(good, outbox=[*good.outbox, good.outbox[-1]], shown=[*good.shown, ANSWER]),
        "2 answers",
    ),
    "no answer": (lambda good: replace(good, outbox=good.outbox[:-1], shown=good.shown[:-1]), "0 answers"),
    "not delivered": (lambda good: replace(good, shown=good.shown[:-1]), "delivered was"),
    "delivered twice": (lambda good: replace(good, shown=[*good.shown, ANSWER]), "delivered was"),
    "a note sent twice": (
        lambda good: replace(good, outbox=[good.outbox[0], *good.outbox]),
        "2 messages of t06",
    ),
    "a note lost": (lambda good: replace(good, outbox=good.outbox[1:]), "0 messages of t06"),
    "a message left": (
        lambda good: replace(good, inbox=_changed(good.inbox, 0, status="processing")),
        "the message is processing",
    ),
    "a turn left": (lambda good: replace(good, turns=[Row(status="running", attempt=2)]), "not one completed"),
    "a turn begun anew": (lambda good: replace(good, turns=[Row(status="completed", attempt=1)]), "in attempt 2"),
    "a second turn": (lambda good: replace(good, turns=[*good.turns, *good.turns]), "not one completed"),
    "a lease kept": (
        lambda good: replace(good, session=Row(lease_owner="w", lease_expires_at=1, event_seq=len(good.events))),
        "the lease is still w's",
    ),
    "a call without a result": (
        lambda good: replace(good, transcript=_without(good.transcript, 4)),
        "the transcript has",
    ),
    "results in another order": (
        lambda good: replace(good, transcript=[*good.transcript[:-3], good.transcript[-2], good.transcript[-3]]),
        "the transcript has",
    ),
    "one result for two calls": (
        lambda good: replace(good, transcript=_changed(good.transcript, 4, content=STRANGE)),
        "were answered by",
    ),
    "a gap in the events": (lambda good: replace(good, events=_without(good.events, 2)), "event numbers have gaps"),
    "a number given out for nothing": (
        lambda good: replace(good, session=Row(lease_owner=None, lease_expires_at=None, event_seq=99)),
        "the last given out was 99",
    ),
    "a result shown twice": (
        lambda good: replace(good, events=[*good.events, Row(type="result", payload={}, seq=99, turn_id="t")]),
        "2 result events",
    ),
    "a tool's result shown to nobody": (
        lambda good: replace(good, events=_without(good.events, _T09)),
        "no tool_result event of t09",
    ),
    "money held": (lambda good: replace(good, reservations=[Row()]), "1 reservations were left"),
    "money lost": (
        lambda good: replace(good, days=[Row(spent_usd=COST, reserved_usd=0.0)]),
        "the budget says 0.25, usage says 2.0",
    ),
    "money held without a reservation": (
        lambda good: replace(good, days=_changed(good.days, 0, reserved_usd=COST)),
        "the budget still holds",
    ),
    "refused by the vendor": (lambda good: replace(good, problems=["tool_use without result"]), "complains"),
    "told of an unknown effect for nothing": (
        lambda good: replace(good, told=[*good.told[:-1], EFFECT_UNKNOWN]),
        "told of 1 unknown effects",
    ),
}  # fmt: skip
FAULTS_OF_THE_UNKNOWN: dict[str, tuple[Fault, str]] = {
    "run again": (
        lambda good: replace(good, effects=["t01", *good.effects]),
        "t01 (started at the kill) was run 1 times before and 2 in all, not 1",
    ),
    "the model was not told": (lambda good: replace(good, told=["{}"] * MODEL_CALLS), "told of 0 unknown effects"),
    "the transcript does not say so": (
        lambda good: replace(good, transcript=_transcript()),
        "the transcript has",
    ),
    "taken for finished": (lambda good: replace(good, steps=_steps()), "(t01) is finished"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_ledger_sees(name: str) -> None:
    break_it, expected = FAULTS[name]
    _sees(break_it(_good()), expected)


@pytest.mark.parametrize("name", FAULTS_OF_THE_UNKNOWN)
def test_the_ledger_sees_of_an_unknown_effect(name: str) -> None:
    break_it, expected = FAULTS_OF_THE_UNKNOWN[name]
    _sees(break_it(_good("t01")), expected)


def _sees(evidence: Evidence, expected: str) -> None:
    complaints = evidence.complaints()
    assert any(expected in what for what in complaints), complaints
