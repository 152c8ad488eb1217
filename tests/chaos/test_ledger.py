"""The ledger sees each kind of fault: without this, a storm that finds nothing would prove nothing."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.storm.ledger import Ledger, Place, Planned
from tests.support.storm.receiver import Arrival

PLACE = Place("plain", "ledger0", "thread00")


def _arrival(number: int, key: str, text: str, **changes: Any) -> Arrival:
    arrival = Arrival(number, key, PLACE.endpoint, PLACE.thread, "chat", text, True, "ok", 0.0)
    return replace(arrival, **changes)


def _in(word: str, seq: int, **changes: Any) -> SimpleNamespace:
    row = {
        "platform_message_id": word,
        "session_id": "s",
        "seq": seq,
        "status": "completed",
        "tries": 1,
        "turn_id": "t",
    }
    return SimpleNamespace(**(row | {"error": None, "error_class": None} | changes))


def _out(key: str, seq: int, text: str, **changes: Any) -> SimpleNamespace:
    row = {"idempotency_key": key, "seq": seq, "content": {"text": text}, "status": "delivered", "turn_id": "t"}
    return SimpleNamespace(**(row | {"kind": "chat", "platform_id": PLACE.endpoint, "error": None} | changes))


def _event(seq: int, kind: str, **payload: Any) -> SimpleNamespace:
    return SimpleNamespace(session_id="s", seq=seq, turn_id="t", type=kind, payload=payload)


def _good() -> Ledger:
    """Two messages, a note on the way, two answers; one of them had to be sent twice."""
    return Ledger(
        planned=[Planned("m0001", PLACE, "accept"), Planned("m0002", PLACE, "celery")],
        arrivals=[
            _arrival(1, "n1", "note: m0001"),
            _arrival(2, "k1", "answered: m0001", accepted=False, conduct="busy"),
            _arrival(3, "k1", "answered: m0001", conduct="drop"),
            _arrival(4, "k1", "answered: m0001"),
            _arrival(5, "k2", "answered: m0002"),
        ],
        max_tries=5,
        inbox=[_in("m0001", 1), _in("m0002", 2, turn_id="u")],
        outbox=[
            _out("n1", 3, "note: m0001"),
            _out("k1", 4, "answered: m0001"),
            _out("k2", 5, "answered: m0002", turn_id="u"),
        ],
        turns=[SimpleNamespace(id="t", status="completed"), SimpleNamespace(id="u", status="completed")],
        steps=[SimpleNamespace(turn_id="t", name="send_message", status="finished")],
        events=[
            _event(1, "turn_started", messages=[1]),
            _event(2, "tool_call", id="call-1"),
            _event(3, "turn_ended", status="completed"),
        ],
    )


def test_a_clean_ledger_has_no_complaints() -> None:
    ledger = _good()
    assert ledger.complaints() == []
    assert ledger.repeated_keys == 1


Fault = Callable[[Ledger], Ledger]
FAULTS: dict[str, tuple[Fault, str]] = {
    "lost": (lambda good: replace(good, arrivals=good.arrivals[:4]), "was answered 0 times"),
    "never accepted": (lambda good: replace(good, inbox=good.inbox[:1]), "m0002 has 0 rows"),
    "accepted twice": (lambda good: replace(good, inbox=[*good.inbox, _in("m0002", 9)]), "m0002 has 2 rows"),
    "a second session": (
        lambda good: replace(good, inbox=[good.inbox[0], _in("m0002", 2, session_id="z")]),
        "has 2 sessions",
    ),
    "answered twice": (
        lambda good: replace(good, arrivals=[*good.arrivals, _arrival(6, "k3", "answered: m0001")]),
        "was answered 2 times",
    ),
    "two bodies": (
        lambda good: replace(good, arrivals=[*good.arrivals, _arrival(6, "k2", "answered: m0002 again")]),
        "came with 2 bodies",
    ),
    "out of order": (
        lambda good: replace(good, arrivals=[*good.arrivals[:1], good.arrivals[4], *_renumbered(good.arrivals[1:4])]),
        "was answered after 2",
    ),
    "another chat": (
        lambda good: replace(good, arrivals=[*good.arrivals[:4], replace(good.arrivals[4], thread="thread01")]),
        "was answered in ledger0/thread01",
    ),
    "left open": (lambda good: replace(good, inbox=[good.inbox[0], _in("m0002", 2, status="pending")]), "is pending"),
    "given up": (
        lambda good: replace(good, outbox=[*good.outbox[:2], _out("k2", 5, "answered: m0002", status="failed")]),
        "is failed",
    ),
    "a receipt for nothing": (
        lambda good: replace(good, outbox=[*good.outbox, _out("k9", 9, "answered: m0002")]),
        "never arrived",
    ),
    "a ghost": (
        lambda good: replace(good, arrivals=[*good.arrivals, _arrival(6, "k9", "boo")]),
        "which no row has",
    ),
    "a tool run twice": (
        lambda good: replace(good, arrivals=[*good.arrivals, _arrival(6, "n2", "note: m0001")]),
        "a finished tool ran again",
    ),
    "a tool's message lost": (
        lambda good: replace(good, outbox=good.outbox[1:], arrivals=good.arrivals[1:]),
        "step finished, 0 notes",
    ),
    "a turn left open": (
        lambda good: replace(good, turns=[SimpleNamespace(id="t", status="running")]),
        "was left running",
    ),
    "events lost": (lambda good: replace(good, events=[good.events[0], good.events[2]]), "have gaps"),
    "written after the end": (
        lambda good: replace(good, events=[*good.events, _event(4, "result")]),
        "went on after its end",
    ),
    "two voices in one attempt": (
        lambda good: replace(good, events=[good.events[0], good.events[1], _event(3, "tool_call", id="call-1")]),
        "made call-1 twice",
    ),
    "poison answered": (
        lambda good: replace(good, planned=[good.planned[0], replace(good.planned[1], poison=True)]),
        "poison m0002 was answered",
    ),
    "poison given up too late": (
        lambda good: replace(
            good,
            planned=[good.planned[0], replace(good.planned[1], poison=True)],
            inbox=[good.inbox[0], _in("m0002", 2, turn_id="u", status="failed", tries=6)],
        ),
        "is failed after 6 tries",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_ledger_sees(name: str) -> None:
    break_it, expected = FAULTS[name]
    complaints = [complaint.what for complaint in break_it(_good()).complaints()]
    assert any(expected in what for what in complaints), complaints


def _renumbered(arrivals: Any) -> list[Arrival]:
    return [replace(arrival, number=arrival.number + 10) for arrival in arrivals]
