"""Which date follows a run: compared with a walk from date to date, and lived through with downtimes and long runs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.series import CATCH_UPS, OVERLAPS, CatchUp, Overlap
from scheduler import following, recurrence
from scheduler.following import LATE_SECONDS, Run, backoff_seconds, is_missed, next_date
from scheduler.recurrence import next_after
from tests.support.reference_cron import clock_changes

NOON = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
POLICIES = st.tuples(st.sampled_from(CATCH_UPS), st.sampled_from(OVERLAPS))
EXPRESSIONS = st.sampled_from(
    ["* * * * *", "*/10 * * * *", "0 * * * *", "5 */2 * * *", "30 2 * * *", "0 9 * * 1-5", "0,30 1-3 * * *"]
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
# None, seconds, minutes, days.
STRETCH = st.one_of(
    st.just(0), st.integers(0, 90), st.integers(0, 200).map(lambda n: n * 60), st.integers(0, 2 * 86400)
)


def _run(scheduled: datetime, *stretches: float) -> Run:
    """Each so many seconds after the one before."""
    moments = [scheduled]
    for seconds in stretches:
        moments.append(moments[-1] + timedelta(seconds=seconds))
    return Run(*moments)


def _by_walking(expression: str, zone: str, run: Run, catch_up: str, overlap: str, not_before: datetime | None) -> Any:
    """What happened to each date in turn, until one that is run."""
    date = run.scheduled
    while True:
        date = next_after(expression, date, zone)
        if date <= run.could_begin:
            missed_too = catch_up == "skip" and (run.began - run.could_begin).total_seconds() > 900
            taken = catch_up == "all" or (overlap == "queue" and not missed_too)
        elif date <= run.began:
            taken = catch_up == "all"
        elif date <= run.ended:
            taken = overlap == "queue"
        else:
            taken = not_before is None or date >= not_before
        if taken:
            return date


@pytest.mark.spec("S3")
@given(
    EXPRESSIONS,
    ZONES,
    st.integers(2020, 2035),
    st.integers(-86400, 7200),
    st.tuples(STRETCH, STRETCH, STRETCH),
    POLICIES,
    st.none() | STRETCH,
)
def test_the_date_is_the_one_that_a_walk_from_date_to_date_comes_to(
    expression: str,
    zone: str,
    year: int,
    offset: int,
    stretches: tuple[int, int, int],
    policy: tuple[CatchUp, Overlap],
    wait: int | None,
) -> None:
    change = next(iter(clock_changes(zone, year)), datetime(year, 6, 1, tzinfo=UTC))
    scheduled = next_after(expression, change + timedelta(seconds=offset), zone)
    run = _run(scheduled, *stretches)
    not_before = None if wait is None else run.ended + timedelta(seconds=wait)
    catch_up, overlap = policy
    date = next_date(expression, zone, run, catch_up=catch_up, overlap=overlap, not_before=not_before)
    assert date == _by_walking(expression, zone, run, catch_up, overlap, not_before)
    assert date > scheduled
    # Of a schedule, and the same whoever asks.
    assert next_after(expression, date - timedelta(microseconds=1), zone) == date


@pytest.mark.spec("S3")
@pytest.mark.parametrize(
    ("catch_up", "overlap", "run", "expected"),
    [
        # On time and short: the next, whatever the policy. (Hours; the task comes at each full hour.)
        *((catch_up, overlap, (0, 0, 0.1), 1) for catch_up, overlap in product(CATCH_UPS, OVERLAPS)),
        # Nobody ran it for ten hours and a half.
        ("one", "skip", (0, 10.5, 0.1), 11),
        ("one", "queue", (0, 10.5, 0.1), 11),
        ("all", "skip", (0, 10.5, 0.1), 1),
        ("all", "queue", (0, 10.5, 0.1), 1),
        ("skip", "skip", (0, 10.5, 0), 11),
        ("skip", "queue", (0, 10.5, 0), 11),
        # It ran for three hours and a half.
        ("one", "skip", (0, 0, 3.5), 4),
        ("one", "queue", (0, 0, 3.5), 1),
        ("all", "skip", (0, 0, 3.5), 4),
        ("all", "queue", (0, 0, 3.5), 1),
        ("skip", "skip", (0, 0, 3.5), 4),
        ("skip", "queue", (0, 0, 3.5), 1),
        # Its row was written three hours and a half late, in a backlog.
        ("one", "skip", (3.5, 0, 0.1), 4),
        ("one", "queue", (3.5, 0, 0.1), 1),
        ("all", "skip", (3.5, 0, 0.1), 1),
        ("skip", "queue", (3.5, 0, 0.1), 1),
        # So it was, and was then not run for two hours more.
        ("skip", "queue", (3.5, 2, 0), 6),
        # A date that comes at the very moment its row is written, or it begins, came before.
        ("one", "queue", (1, 0, 0.1), 1),
        ("one", "queue", (0, 1, 0.1), 2),
        ("all", "skip", (0, 1, 0.1), 1),
        # One that comes at the very moment it ends came while it ran.
        ("one", "skip", (0, 0, 1), 2),
        ("one", "queue", (0, 0, 1), 1),
    ],
)
def test_what_is_made_up_for_and_what_is_passed_over(
    catch_up: CatchUp, overlap: Overlap, run: tuple[float, float, float], expected: float
) -> None:
    hours = _run(NOON, *(hours * 3600 for hours in run))
    assert next_date("@hourly", "UTC", hours, catch_up=catch_up, overlap=overlap) == NOON + timedelta(hours=expected)


@pytest.mark.spec("S3")
@pytest.mark.parametrize(("catch_up", "overlap"), list(product(CATCH_UPS, OVERLAPS)))
def test_a_year_of_minutes_costs_a_few_looks(
    monkeypatch: pytest.MonkeyPatch, catch_up: CatchUp, overlap: Overlap
) -> None:
    looks = []

    def counted(*given: Any) -> datetime:
        looks.append(given)
        return next_after(*given)

    monkeypatch.setattr(following, "next_after", counted)
    monkeypatch.setattr(recurrence, "next_after", counted)
    year = 365 * 86400
    for stretches in product((0, year), repeat=3):
        run = _run(NOON, *stretches)
        not_before = run.ended + timedelta(seconds=90)
        next_date("* * * * *", "Europe/Berlin", run, catch_up=catch_up, overlap=overlap, not_before=not_before)
        assert 1 <= len(looks) <= 4
        looks.clear()


@pytest.mark.spec("S3")
def test_dates_soon_after_a_failure_are_passed_over_and_those_made_up_for_are_not() -> None:
    run = _run(NOON, 0, 0, 30)
    wait = run.ended + timedelta(minutes=4)
    assert next_date("* * * * *", "UTC", run, catch_up="one", overlap="skip", not_before=wait) == NOON.replace(minute=5)
    exactly = NOON.replace(minute=4)
    assert next_date("* * * * *", "UTC", run, catch_up="one", overlap="skip", not_before=exactly) == exactly
    late = _run(NOON, 0, 3600, 30)
    assert next_date(
        "* * * * *", "UTC", late, catch_up="all", overlap="skip", not_before=late.ended + timedelta(hours=1)
    ) == NOON.replace(minute=1)


@pytest.mark.spec("S3")
def test_the_wait_after_failures_doubles_up_to_a_day() -> None:
    assert [backoff_seconds(failures) for failures in range(6)] == [0, 60, 120, 240, 480, 960]
    assert [backoff_seconds(failures) for failures in (11, 12, 17, 18, 5000)] == [61440, 86400, 86400, 86400, 86400]
    assert backoff_seconds(-1) == 0


@pytest.mark.spec("S3")
def test_a_run_is_missed_when_it_could_have_begun_more_than_a_quarter_of_an_hour_ago() -> None:
    limit = timedelta(seconds=LATE_SECONDS)
    instant = timedelta(microseconds=1)
    long_ago = NOON - timedelta(days=1)
    assert limit == timedelta(minutes=15)
    for dates in ((NOON, long_ago, long_ago), (long_ago, NOON, NOON), (long_ago, long_ago, NOON), (NOON, NOON, NOON)):
        assert not is_missed(*dates, NOON + limit)
        assert is_missed(*dates, NOON + limit + instant)
    assert not is_missed(NOON, long_ago, long_ago, NOON - timedelta(days=1))


@dataclass
class Lived:
    """What became of a series: its runs, those that were missed, and when the fleet was down."""

    runs: list[Run]
    missed: list[Run]


def _live(
    expression: str, catch_up: CatchUp, overlap: Overlap, downtimes: list[tuple[int, int]], lengths: list[int]
) -> Lived:
    """Two days of one series: a row at a time, as the sweep and the workers make and run them, in whole seconds.
    Nothing begins while the fleet is down, no row is written either, and a run that is on goes through."""
    lived = Lived([], [])
    down = [(NOON + timedelta(minutes=at), NOON + timedelta(minutes=at + length)) for at, length in downtimes]
    scheduled, created = NOON, NOON
    while scheduled < NOON + timedelta(days=2):
        could_begin = max(scheduled, created)
        began = _up(could_begin, down)
        if catch_up == "skip" and is_missed(scheduled, created, created, began):
            run = Run(scheduled, could_begin, began, began)
            lived.missed.append(run)
        else:
            length = lengths[len(lived.runs) % len(lengths)]
            run = Run(scheduled, could_begin, began, began + timedelta(seconds=length))
            lived.runs.append(run)
        created = _up(run.ended, down)
        scheduled = next_date(expression, "UTC", run, catch_up=catch_up, overlap=overlap)
    return lived


def _up(moment: datetime, down: list[tuple[datetime, datetime]]) -> datetime:
    """When the fleet is up, from then on."""
    for start, end in sorted(down):
        if start <= moment < end:
            moment = end
    return moment


@pytest.mark.spec("S3")
@given(
    st.sampled_from(["*/10 * * * *", "0 * * * *", "7,8,9 */3 * * *"]),
    POLICIES,
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 600)), max_size=4),
    st.lists(st.integers(1, 3 * 3600), min_size=1, max_size=5) | st.just([20]),
)
def test_a_life_with_downtimes_and_long_runs(
    expression: str, policy: tuple[CatchUp, Overlap], downtimes: list[tuple[int, int]], lengths: list[int]
) -> None:
    catch_up, overlap = policy
    lived = _live(expression, catch_up, overlap, downtimes, lengths)
    rows = sorted([*lived.runs, *lived.missed], key=lambda run: run.scheduled)
    assert rows == sorted(rows, key=lambda run: run.began), "in the order of their dates"
    assert all(one.scheduled < next_one.scheduled for one, next_one in pairwise(rows)), "no date twice"
    assert all(one.ended <= next_one.began for one, next_one in pairwise(rows)), "one at a time"
    assert all(run.began >= run.scheduled for run in rows), "none early"

    had = {run.scheduled for run in rows}
    passed_over = [date for date in _all_dates(expression, rows[-1].scheduled) if date not in had]
    if catch_up == "all":
        # Only what came while it was running may be left out, and not if that waits its turn.
        assert all(overlap == "skip" and _came_during(date, lived.runs) for date in passed_over)
    if not downtimes:
        assert not lived.missed
        assert all(overlap == "skip" and _came_during(date, lived.runs) for date in passed_over)
    if catch_up == "skip":
        assert all((run.began - run.could_begin).total_seconds() <= LATE_SECONDS for run in lived.runs)
    else:
        assert not lived.missed
    if catch_up != "all" and overlap == "skip":
        # However many were missed, at most one run is late: the next one is on time again.
        assert all(next_one.scheduled > one.ended for one, next_one in pairwise(rows))


def _all_dates(expression: str, until: datetime) -> list[datetime]:
    dates = [NOON]
    while dates[-1] < until:
        dates.append(next_after(expression, dates[-1]))
    return dates


def _came_during(date: datetime, runs: list[Run]) -> bool:
    return any(run.began < date <= run.ended for run in runs)
