"""A year of schedules in three time zones, each run ending late by another amount: the dates are exactly those that
looking at the clock on the wall gives, none twice, none missing, and nothing has drifted at the end.

The year is 2028, which has a 29th of February. Where the rows are the real ones, the times at which they were written
and ended are made up, or a year would take one; the days on which the clock is changed are lived through with nothing
made up, years late."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import MessageIn
from scheduler.following import Run, next_date
from scheduler.recurrence import ALIASES, upcoming
from scheduler.recurring import follow_finished
from tests.support.fleet import Fleet
from tests.support.reference_cron import Cron, clock_changes
from tests.support.task_runs import add_run, add_session, runs_of

pytestmark = pytest.mark.both_databases

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
START, END = datetime(2028, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC)
HALF_HOUR = timedelta(minutes=30)


def _dates(expression: str, zone: str) -> list[datetime]:
    """Those of the year, and the first of the next."""
    cron = Cron(ALIASES.get(expression, expression))
    dates = cron.dates(START, END + timedelta(days=40), zone, HALF_HOUR)
    return [date for date in dates if date <= END] + [date for date in dates if date > END][:1]


@pytest.mark.spec("S2", "S3")
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "@hourly", "0 9 * * 1-5", "@daily", "0,30 1,2 * * *"])
def test_a_year_of_dates_is_as_the_clock_on_the_wall_has_it(zone: str, expression: str) -> None:
    """On the usual terms; late by less than the next date takes to come."""
    dates, lateness = _dates(expression, zone), random.Random(f"{zone} {expression}")
    lived = dates[:1]
    for date, following in pairwise(dates):
        began = date + (following - date) * lateness.uniform(0, 0.5)
        run = Run(lived[-1], lived[-1], began, began + (following - began) * lateness.uniform(0, 0.99))
        lived.append(next_date(expression, zone, run, catch_up="one", overlap="skip"))
    assert lived == dates


@pytest.mark.spec("S2", "S3")
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "30 */3 * * *", "@daily"])
def test_a_year_of_dates_is_lived_through_however_late_if_each_is_to_be_kept(zone: str, expression: str) -> None:
    dates = Cron(ALIASES.get(expression, expression)).dates(START, END, zone, HALF_HOUR)
    lateness = random.Random(f"{zone} {expression}")
    lived, written = dates[:1], START
    for _ in dates[1:]:
        could_begin = max(lived[-1], written)
        began = could_begin + timedelta(hours=lateness.expovariate(0.25))
        run = Run(lived[-1], could_begin, began, began + timedelta(hours=lateness.expovariate(0.25)))
        lived.append(next_date(expression, zone, run, catch_up="all", overlap="queue"))
        written = run.ended
    assert lived == dates


@pytest.mark.spec("S2")
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("expression", "count"), [("0 0 29 2 *", 1), ("30 2 31 * *", 7), ("0 9 * * 5#5", 4)])
def test_rare_dates_come_as_often_as_the_calendar_has_them(zone: str, expression: str, count: int) -> None:
    dates = Cron(expression).dates(START, END, zone, HALF_HOUR)
    assert len(dates) == count
    assert upcoming(expression, START, zone, count) == dates


@pytest.mark.spec("S1", "S2", "S3")
async def test_a_year_of_rows_has_one_for_each_date(fleet: Fleet) -> None:
    """Month by month at the same time, each on from its first date to the first of the next: the row is all that a
    series has to remember. Each run is over up to 22 hours after its date."""
    await fleet.add_group()
    expected: dict[str, list[datetime]] = {}
    for zone in ZONES:
        session_id = await add_session(fleet, message_seq=1000)
        for expression in ("30 2 * * *", "@daily"):
            dates = _dates(expression, zone)
            firsts = [i for i, date in enumerate(dates) if i == 0 or date.month != dates[i - 1].month]
            for first, last in pairwise(firsts):
                series_id = await add_run(
                    fleet,
                    dates[first],
                    session_id=session_id,
                    seq=len(expected) + 1,
                    timezone=zone,
                    recurrence=expression,
                )
                expected[series_id] = dates[first : last + 1]
    assert sum(len(dates) - 1 for dates in expected.values()) >= 366 * 2 * len(ZONES)
    ends = {series_id: dates[-1] for series_id, dates in expected.items()}
    lateness = random.Random(2028)
    complete = update(MessageIn).where(MessageIn.id == bindparam("row"))
    complete = complete.values(status="completed", status_changed_at=bindparam("end"), created_at=bindparam("written"))

    async def live_a_day(conn: AsyncConnection) -> int:
        pending = select(MessageIn.__table__).where(MessageIn.status == "pending")
        due = [row for row in (await conn.execute(pending)).all() if row.scheduled_for < ends[row.series_id]]
        times = [
            {
                "row": row.id,
                "written": row.scheduled_for - timedelta(hours=1),
                "end": row.scheduled_for + timedelta(hours=lateness.uniform(0, 22)),
            }
            for row in due
        ]
        if times:
            await conn.execute(complete, times)
        return (await follow_finished(conn, 500)).rows

    while await fleet.db.transact(live_a_day):
        pass
    rows = await fleet.rows(MessageIn, MessageIn.scheduled_for)
    found: dict[str, list[datetime]] = {series_id: [] for series_id in expected}
    for row in rows:
        found[row.series_id].append(row.scheduled_for)
        assert row.process_after == row.scheduled_for
        assert row.status == ("pending" if row.scheduled_for == ends[row.series_id] else "completed")
    assert found == expected


@pytest.mark.spec("S1", "S2", "S3")
async def test_the_days_on_which_the_clock_is_changed_are_lived_through(fleet: Fleet) -> None:
    """Real sweeps and turns: the fleet was down at the time, and makes up for each date."""
    await fleet.add_group()
    recurrence, expected = "30 1,2 * * *", {}
    for zone in ZONES:
        for changed in clock_changes(zone, 2024):
            dates = Cron(recurrence).dates(changed - timedelta(hours=2), changed + timedelta(hours=26), zone)
            place = {"platform_id": f"{zone} {changed:%B}", "timezone": zone}
            terms = {"catch_up": "all"}
            sent = await fleet.send("look around", kind="task", recurrence=recurrence, terms=terms, **place)
            then = {"process_after": dates[0], "scheduled_for": dates[0], "created_at": dates[0]}
            await fleet.execute(update(MessageIn).where(MessageIn.id == sent.message_id).values(**then))
            expected[sent.message_id] = dates[:4]
    for _ in range(3):
        await fleet.sweep()
        await fleet.settle_down()
    await fleet.sweep()
    for series_id, dates in expected.items():
        *done, last = await runs_of(fleet, series_id)
        assert [row.scheduled_for for row in [*done, last]] == dates
        assert [row.status for row in [*done, last]] == ["completed"] * 3 + ["pending"]
        assert len({row.turn_id for row in done}) == len(done)
