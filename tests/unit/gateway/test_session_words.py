"""How a session stands, in words."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.figures import span
from gateway.session_words import standing

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def words(**columns: Any) -> str:
    unknown = dict.fromkeys(("lease_expires_at", "resume_after", "woken_at", "activity", "activity_since"))
    row: Any = SimpleNamespace(**{"status": "active", "pending": 0, "last_active": moment(-90)} | unknown | columns)
    now = standing(row, NOON)
    return now.word + now.told(span(abs((NOON - now.moment).total_seconds())) if now.moment is not None else "")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "idle for 2 min"),
        ({"activity_since": moment(-5)}, "idle for 5 s"),
        ({"status": "closed", "activity_since": moment(-7200)}, "closed, 2 h ago"),
        ({"pending": 2, "woken_at": moment(-3)}, "waiting for a worker, for 3 s"),
        ({"pending": 1}, "waiting for a worker, for 2 min"),
    ],
)
def test_a_session_that_is_not_in_a_turn(columns: dict[str, Any], said: str) -> None:
    assert words(**columns) == said


@pytest.mark.parametrize(
    ("activity", "said"),
    [
        ("calling model", "at work: asking the model, for 12 s"),
        ("tool: run_command", "at work: running run_command, for 12 s"),
        ("resuming", "at work: going on where another worker stopped, for 12 s"),
        ("awaiting human", "at work: asking a person, for 12 s"),
        ("mending nets", "at work: mending nets, for 12 s"),
        (None, "at work: beginning, for 12 s"),
    ],
)
def test_a_session_at_work(activity: str | None, said: str) -> None:
    assert words(lease_expires_at=moment(30), activity=activity, activity_since=moment(-12)) == said


def test_a_session_whose_worker_is_lost() -> None:
    assert words(lease_expires_at=moment(-8)) == "worker lost: its time ran out 8 s ago; another takes over"


@pytest.mark.parametrize(
    ("activity", "said"),
    [
        ("awaiting human", "waits for a person, for 24 h at most"),
        ("awaiting human: the budget is spent", "waits for a person: the budget is spent, for 24 h at most"),
        ("rate limited", "rate limited: tries again in 24 h"),
        ("tries again after: provider_hang", "tries again in 24 h, after a failure (provider hang)"),
        (None, "waits for 24 h at most"),
    ],
)
def test_a_session_that_rests(activity: str | None, said: str) -> None:
    assert words(resume_after=moment(86_000), activity=activity) == said
