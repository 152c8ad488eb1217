"""The ledger of killed turns sees each kind of fault: without this, kills that find nothing would prove nothing."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.boundaries.ledger import Death
from tests.support.boundaries.ledger_turns import TurnEvidence
from tests.support.boundaries.marks import (
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
from tests.support.boundaries.plan_turns import ANSWER, MODEL_CALLS, ROUNDS, SAID, TOOLS, round_text
from workers.toolbox import EFFECT_UNKNOWN

NAMES = [tool.name for tool in TOOLS]
COST = 0.25
Row = SimpleNamespace


def _commit(name: str) -> list[str]:
    return [BEFORE_COMMIT + name, AFTER_COMMIT + name]


def _run(tool: str) -> list[str]:
    return [*_commit(f"{BEGIN} {tool}"), BEFORE_EFFECT + tool, AFTER_EFFECT + tool]


def _call(number: int, record: str) -> list[str]:
    return [f"{ASKING}{number}", f"{FIRST_PIECE}{number}", *_commit(record)]


def _steps(unknown: str | None = None) -> list[Row]:
    calls = [Row(kind="model", name="m", id=f"m{n}", status="finished", output={}) for n in range(1, MODEL_CALLS + 1)]
    tools = [Row(kind="tool", name=n, id=n, status="failed" if n == unknown else "finished", output={}) for n in NAMES]
    for number, step in enumerate(steps := [*calls, *tools], 1):
        step.number = number
    return steps


def _begun(name: str, status: str) -> Row:
    return Row(kind="tool", name=name, status=status)


def _transcript(unknown: str | None = None) -> list[Row]:
    items = [Row(role="user", type="text", content={"text": "go"})]
    for number, calls in enumerate(ROUNDS, 1):
        items.append(Row(role="assistant", type="thinking", content={}))
        items.append(Row(role="assistant", type="text", content={"text": round_text(number)}))
        items += [Row(role="assistant", type="tool_call", content={"id": t.name, "name": t.name}) for t in calls]
        for tool in calls:
            text = EFFECT_UNKNOWN if tool.name == unknown else tool.result
            items.append(
                Row(role="tool", type="tool_result", content={"id": tool.name, "name": tool.name, "text": text})
            )
    return [*items, Row(role="assistant", type="text", content={"text": ANSWER})]


def _events() -> list[Row]:
    kinds = ["turn_started", "turn_started", *["message"] * len(ROUNDS), *["usage"] * MODEL_CALLS, "result"]
    events = [Row(type=kind, payload={}) for kind in kinds]
    events += [Row(type=kind, payload={"name": name}) for kind in ("tool_call", "tool_result") for name in NAMES]
    events.append(Row(type="turn_ended", payload={}))
    for number, event in enumerate(events, 1):
        event.seq, event.session_id = number, "s"
    return events


def _good(unknown: str | None = None) -> TurnEvidence:
    """Killed after the effect of t02, which may be run again; or of t01, which may not."""
    trace = [*_commit("wake"), *_call(1, RECORD), *_run("t01")]
    steps = [_begun("t01", "started")]
    effects = list(NAMES)
    if unknown is None:
        trace += [*_commit(f"{END} t01"), *_call(2, f"{RECORD} #2"), *_run("t02")]
        steps = [_begun("t01", "finished"), _begun("t02", "started")]
        effects = ["t01", "t02", *NAMES[1:]]
    events = _events()
    sent = {"channel_type": "local", "session_id": "s", "status": "delivered", "error": None}
    return TurnEvidence(
        deaths=[Death(trace[-1], trace, effects[: len(steps)], steps)],
        effects=effects,
        shown=[{"key": text, "place": "terminal", "text": text} for text in SAID],
        sessions=[Row(id="s", lease_owner=None, lease_expires_at=None, resume_after=None, event_seq=len(events))],
        inbox=[Row(session_id="s", seq=1, content={"text": "go"}, status="completed", error=None)],
        outbox=[Row(seq=n, content={"text": text}, idempotency_key=text, **sent) for n, text in enumerate(SAID, 2)],
        turns=[Row(id="t", status="completed", attempt=2, error=None)],
        steps=_steps(unknown),
        transcript=_transcript(unknown),
        events=events,
        usage=[Row(id=f"m{number}", cost_usd=COST) for number in range(1, MODEL_CALLS + 1)],
        days=[Row(spent_usd=COST * MODEL_CALLS, reserved_usd=0.0)],
        requests=[*["{}"] * (MODEL_CALLS - 1), EFFECT_UNKNOWN if unknown else "{}"],
    )


GOOD, UNKNOWN = _good(), _good("t01")


@pytest.mark.parametrize("good", [GOOD, UNKNOWN])
def test_a_turn_that_kept_the_contract_has_no_complaints(good: TurnEvidence) -> None:
    assert good.complaints() == []


def _without(rows: Any, index: int) -> list[Any]:
    return [row for number, row in enumerate(rows) if number != index % len(rows)]


def _changed(rows: Any, index: int, **changes: Any) -> list[Any]:
    return [Row(**(vars(row) | changes)) if number == index % len(rows) else row for number, row in enumerate(rows)]


def _killed(**changes: Any) -> dict[str, Any]:
    """With something else to be seen after the kill."""
    return {"deaths": [replace(GOOD.deaths[0], **changes)]}


STRANGE = {"id": "x", "name": "t01", "text": ""}
_T09 = [(event.type, event.payload.get("name")) for event in _events()].index(("tool_result", "t09"))
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a finished tool run again": (
        {"effects": [*GOOD.effects, "t01"]},
        "runs of t01 (finished at the kill, 1 before): 2, not 1",
    ),
    "a tool that had not begun run twice": (
        {"effects": [*GOOD.effects, "t09"]},
        "runs of t09 (none at the kill, 0 before): 2, not 1",
    ),
    "a tool never run": (
        {"effects": [name for name in GOOD.effects if name != "t10"]},
        "runs of t10 (none at the kill, 0 before): 0, not 1",
    ),
    "a begun tool not run again": ({"effects": NAMES}, "runs of t02 (started at the kill, 1 before): 1, not 2"),
    "a finished tool that was not run": (
        _killed(effects=["t02"]),
        "runs of t01 (finished at the kill) until then: 0, not 1 to 1",
    ),
    "an effect without an intent": (
        _killed(effects=["t01", "t02", "t03"]),
        "runs of t03 before its intent was on record: 1, not 0",
    ),
    "a result lost": (
        _killed(steps=[_begun("t01", "started"), _begun("t02", "started")]),
        "the step of t01 at the kill, by its row: started, not finished",
    ),
    "a step left open": ({"steps": _changed(GOOD.steps, -1, status="started")}, "(t10: {}): started, not finished"),
    "a step missing": ({"steps": _without(GOOD.steps, -1)}, "steps of tools:"),
    "a model call missing": ({"steps": _without(GOOD.steps, 3)}, "model calls on record: 7"),
    "a call paid twice": ({"usage": [*GOOD.usage, GOOD.usage[0]]}, "usage rows of model calls: ['m1', 'm1'"),
    "a call asked again without need": ({"requests": [*GOOD.requests, "{}"]}, "requests to the model: 9, not 8 to 8"),
    "two answers": ({"outbox": [*GOOD.outbox, GOOD.outbox[-1]]}, "it said:"),
    "no answer": ({"outbox": GOOD.outbox[:-1]}, "it said:"),
    "not sent": ({"outbox": _changed(GOOD.outbox, -1, status="pending")}, "pending, not delivered"),
    "not delivered": ({"shown": GOOD.shown[:-1]}, "delivered was:"),
    "delivered twice": ({"shown": [*GOOD.shown, GOOD.shown[-1]]}, "keys of what was shown"),
    "a note sent twice": ({"outbox": [GOOD.outbox[0], *GOOD.outbox]}, "numbers given out twice: [2]"),
    "a note lost": ({"outbox": GOOD.outbox[1:]}, "it said:"),
    "a message left": (
        {"inbox": _changed(GOOD.inbox, 0, status="processing")},
        "the message {'text': 'go'} (None): processing, not completed",
    ),
    "a turn left": ({"turns": _changed(GOOD.turns, 0, status="running")}, "running, not completed"),
    "a turn begun anew": ({"turns": _changed(GOOD.turns, 0, attempt=1)}, "attempts at the turn: [1]"),
    "a second turn": ({"turns": [*GOOD.turns, *GOOD.turns]}, "attempts at the turn: [2, 2]"),
    "a lease kept": (
        {"sessions": _changed(GOOD.sessions, 0, lease_owner="w", lease_expires_at=1)},
        "session s: ('w', 1, None)",
    ),
    "a call without a result": ({"transcript": _without(GOOD.transcript, 4)}, "calls that were answered"),
    "results in another order": (
        {"transcript": [*GOOD.transcript[:-3], GOOD.transcript[-2], GOOD.transcript[-3]]},
        "the transcript:",
    ),
    "one result for two calls": (
        {"transcript": _changed(GOOD.transcript, 4, content=STRANGE)},
        "calls that were answered: ['x'",
    ),
    "a gap in the events": ({"events": _without(GOOD.events, 2)}, "event numbers of a session"),
    "a number given out for nothing": (
        {"sessions": _changed(GOOD.sessions, 0, event_seq=99)},
        "event numbers of a session",
    ),
    "a result shown twice": (
        {"events": [*GOOD.events, Row(type="result", payload={}, seq=99, session_id="s")]},
        "result events: 2, not 1 to 1",
    ),
    "a tool's result shown to nobody": ({"events": _without(GOOD.events, _T09)}, "tools with a tool_result event"),
    "a tool's result told twice": (
        {"events": [*GOOD.events, GOOD.events[_T09]]},
        "tool_result events too many: {'t09'}",
    ),
    "money held": ({"reservations": [Row()]}, "reservations left: 1"),
    "money lost": ({"days": _changed(GOOD.days, 0, spent_usd=COST)}, "spent by the budget: 0.25, not 2.0"),
    "money held without a reservation": (
        {"days": _changed(GOOD.days, 0, reserved_usd=COST)},
        "held by the budget: 0.25, not 0",
    ),
    "refused by the vendor": ({"problems": ["tool_use without result"]}, "complains"),
    "told of an unknown effect for nothing": (
        {"requests": [*GOOD.requests[:-1], EFFECT_UNKNOWN]},
        "unknown effects the model was told of: 1, not 0",
    ),
    "not come to the end": ({"last": ["asking: 8"]}, "passed at last: ['asking: 8']"),
}
FAULTS_OF_THE_UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "run again": ({"effects": ["t01", *UNKNOWN.effects]}, "runs of t01 (started at the kill, 1 before): 2, not 1"),
    "the model was not told": ({"requests": ["{}"] * MODEL_CALLS}, "unknown effects the model was told of: 0, not 1"),
    "the transcript does not say so": ({"transcript": _transcript()}, "the transcript:"),
    "taken for finished": ({"steps": _steps()}, "(t01: {}): finished, not failed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_ledger_sees(name: str) -> None:
    _check_complaints(GOOD, *FAULTS[name])


@pytest.mark.parametrize("name", FAULTS_OF_THE_UNKNOWN)
def test_the_ledger_sees_of_an_unknown_effect(name: str) -> None:
    _check_complaints(UNKNOWN, *FAULTS_OF_THE_UNKNOWN[name])


def _check_complaints(good: TurnEvidence, changes: dict[str, Any], expected: str) -> None:
    complaints = replace(good, **changes).complaints()
    assert any(expected in what for what in complaints), complaints
