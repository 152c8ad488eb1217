"""The next date: from the scheduled one, in the task's own time zone, through changes of the clock."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.recurrence import (
    ALIASES,
    RecurrenceError,
    check_recurrence,
    check_timezone,
    first_at_or_after,
    jittered,
    next_after,
    upcoming,
)
from tests.support.reference_cron import DAYS, MONTHS, Cron, clock_changes

VIENNA = "Europe/Vienna"
# Put forward and back by an hour, by half an hour, by two hours, at midnight, for Ramadan, and never.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Africa/Cairo",
    "America/Havana",
    "Africa/Casablanca",
    "Asia/Kathmandu",
)
DAY = timedelta(days=1)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _series(expression: str, start: str, zone: str, count: int) -> list[str]:
    """The following dates, as people in UTC read them."""
    dates, date = [], _at(start)
    for _ in range(count):
        date = next_after(expression, date, zone)
        dates.append(date.strftime("%m-%d %H:%M"))
    return dates


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
        ("@monthly", "2026-04-01 00:00"),
        ("@weekly", "2026-03-22 00:00"),
        ("@daily", "2026-03-19 00:00"),
        ("@midnight", "2026-03-19 00:00"),
        ("@hourly", "2026-03-18 11:00"),
    ],
)
def test_an_alias_names_its_date(alias: str, expected: str) -> None:
    assert next_after(alias, _at("2026-03-18T10:30:00+00:00")).strftime("%Y-%m-%d %H:%M") == expected


def test_every_alias_is_in_the_table_above_or_equals_one() -> None:
    assert set(ALIASES) == {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}


@pytest.mark.spec("S2")
def test_nine_in_the_morning_stays_nine_in_the_morning_when_summer_comes() -> None:
    assert _series("0 9 * * *", "2026-03-27T08:00:00+00:00", VIENNA, 4) == [
        "03-28 08:00",
        "03-29 07:00",
        "03-30 07:00",
        "03-31 07:00",
    ]


@pytest.mark.spec("S2")
def test_nine_in_the_morning_stays_nine_in_the_morning_when_winter_comes() -> None:
    assert _series("0 9 * * *", "2026-10-23T07:00:00+00:00", VIENNA, 3) == ["10-24 07:00", "10-25 08:00", "10-26 08:00"]


@pytest.mark.spec("S2")
def test_a_time_that_the_clock_skips_still_comes_once_that_day() -> None:
    """02:30 does not exist in Vienna on 2026-03-29; after 01:59 the clock shows 03:00."""
    assert _series("30 2 * * *", "2026-03-28T01:30:00+00:00", VIENNA, 2) == ["03-29 01:00", "03-30 00:30"]


@pytest.mark.spec("S2")
def test_a_time_that_the_clock_repeats_comes_once() -> None:
    """02:30 comes twice in Vienna on 2026-10-25."""
    assert _series("30 2 * * *", "2026-10-24T00:30:00+00:00", VIENNA, 2) == ["10-25 00:30", "10-26 01:30"]


@pytest.mark.spec("S2")
def test_every_hour_means_every_hour_also_when_the_clock_changes() -> None:
    assert _series("0 * * * *", "2026-10-24T23:00:00+00:00", VIENNA, 4) == [
        "10-25 00:00",
        "10-25 01:00",
        "10-25 02:00",
        "10-25 03:00",
    ]


@pytest.mark.spec("S2", "S1")
@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),
    st.sampled_from(["*/5 * * * *", "0 9 * * *", "30 2 * * *", "0 0 1 * *", "@weekly", "15 12 * * 1-5"]),
    st.sampled_from(["UTC", VIENNA, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
)
def test_the_next_date_is_later_in_utc_and_does_not_drift(start: datetime, expression: str, zone: str) -> None:
    following = next_after(expression, start, zone)
    assert following > start
    assert following.utcoffset() == timedelta(0)
    assert (following.second, following.microsecond) == (0, 0)
    assert next_after(expression, following - timedelta(microseconds=1), zone) == following


def _field(least: int, most: int, *others: str) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    step = st.integers(1, most + 3)
    span = st.tuples(number, number).filter(lambda ends: ends[0] < ends[1]).map(lambda ends: f"{ends[0]}-{ends[1]}")
    item = st.one_of(
        number.map(str),
        span,
        st.tuples(span, step).map("{0[0]}/{0[1]}".format),
        st.tuples(number, step).map("{0[0]}/{0[1]}".format),
        step.map("*/{}".format),
        *map(st.just, others),
    )
    return st.just("*") | st.lists(item, min_size=1, max_size=3).map(",".join)


def _comes(expression: str) -> bool:
    try:
        check_recurrence(expression)
    except RecurrenceError:  # such as a second Monday that is the first of a month
        return False
    return True


# Clocks are changed at night.
MINUTES, HOURS = _field(0, 59), _field(0, 23) | st.sampled_from(["0", "1", "2", "0-3", "2,3", "*/2"])
MONTH = _field(1, 12, *MONTHS, "Mar-may", "feb-NOV/3")
DAY_OF_MONTH = _field(1, 31, "L", "LW")
DAY_OF_WEEK = _field(0, 7, *DAYS, "mon-Fri", "5L", "0L", "7L", "1#2", "SUN#5", "7#1", "sat#3")
# Most days: a clock is changed on one.
DAYS_TIMES = st.builds(
    "{} {} {} * {}".format, MINUTES, HOURS, st.just("*") | DAY_OF_MONTH, st.just("*") | DAY_OF_WEEK
).filter(_comes)
CHANGES = st.tuples(st.sampled_from(ZONES), st.integers(2010, 2037)).flatmap(
    lambda place: st.tuples(
        st.just(place[0]), st.sampled_from(clock_changes(*place) or [datetime(place[1], 7, 1, tzinfo=UTC)])
    )
)


@pytest.mark.spec("S2")
@given(CHANGES, DAYS_TIMES, st.integers(-12 * 3600, 2 * 3600))
def test_the_dates_are_those_found_by_looking_at_the_clock_in_every_minute(
    change: tuple[str, datetime], expression: str, seconds: int
) -> None:
    """Around a change of the clock, asked from anywhere: before it, and in the hours it skips or repeats."""
    zone, changed = change
    start, end = changed + timedelta(seconds=seconds), changed + timedelta(hours=27)
    assert _dates(expression, start, end, zone) == Cron(expression).dates(start, end, zone)


@pytest.mark.spec("S2")
@given(st.builds("30 12 {} {} {}".format, DAY_OF_MONTH, MONTH, DAY_OF_WEEK), st.integers(2000, 2090))
def test_the_days_are_those_found_by_looking_at_every_day(expression: str, year: int) -> None:
    start = datetime(year, 1, 1, 12, 29, tzinfo=UTC)
    noons = [start + timedelta(days=day, minutes=1) for day in range(4 * 365)]
    cron = Cron(expression)
    days = [noon for noon in noons if cron.names(noon)]
    assume(days)
    assert _dates(expression, start, noons[-1], "UTC") == days


@pytest.mark.spec("S2")
@given(CHANGES, DAYS_TIMES, st.lists(st.floats(0, 15 * 3600), min_size=1, max_size=20))
def test_a_chain_joined_late_is_the_same_chain(
    change: tuple[str, datetime], expression: str, late: list[float]
) -> None:
    """However late each run ends, the dates are those of the chain from the start: nothing drifts, nothing doubles."""
    zone, changed = change
    start = changed - timedelta(hours=6)
    dates = _dates(expression, start, start + timedelta(hours=16), zone)
    assume(dates)
    assert all(earlier < later for earlier, later in pairwise(dates))
    for seconds in late:
        joined = start + timedelta(seconds=seconds)
        following = next_after(expression, joined, zone)
        assert following == next((date for date in dates if date > joined), following)
        assert following > joined


def _dates(expression: str, after: datetime, until: datetime, zone: str) -> list[datetime]:
    dates = []
    date = after
    while (date := next_after(expression, date, zone)) <= until:
        dates.append(date)
    return dates


@pytest.mark.spec("S2")
def test_asked_in_an_hour_that_comes_twice_it_gives_no_date_that_has_passed() -> None:
    """02:10, the second time: 02:30 has been, in the first of the two hours."""
    assert _series("30 2 * * *", "2026-10-25T01:10:00+00:00", "Europe/Berlin", 1) == ["10-26 01:30"]


@pytest.mark.spec("S2")
def test_no_date_is_lost_where_the_clock_is_changed_by_half_an_hour() -> None:
    """On Lord Howe Island the half hour from 01:30 comes twice on 2026-04-05, and is skipped from 02:00 on 10-04."""
    assert _series("40 * * * *", "2026-04-04T14:20:00+00:00", "Australia/Lord_Howe", 3) == [
        "04-04 14:40",
        "04-04 15:10",
        "04-04 16:10",
    ]
    assert _series("*/20 5 * * *", "2026-10-03T10:00:00+00:00", "Australia/Lord_Howe", 3) == [
        "10-03 18:00",
        "10-03 18:20",
        "10-03 18:40",
    ]


@pytest.mark.spec("S2")
def test_what_follows_the_clock_does_not_come_while_it_skips_midnight() -> None:
    """In Havana there is no hour from 00:00 on 2026-03-08."""
    assert _series("*/20 0 * * 0", "2026-03-07T00:00:00+00:00", "America/Havana", 1) == ["03-15 04:00"]
    assert _series("0 0 * * 0", "2026-03-07T00:00:00+00:00", "America/Havana", 2) == ["03-08 05:00", "03-15 04:00"]


@pytest.mark.spec("S2")
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_the_29th_of_february_comes_every_four_years_but_in_2100(zone: str) -> None:
    dates = upcoming("0 9 29 2 *", _at("2026-01-01T00:00:00+00:00"), zone, 20)
    years = [date.astimezone(check_timezone(zone)).year for date in dates]
    assert years == [*range(2028, 2100, 4), 2104, 2108]


@pytest.mark.spec("S2")
def test_the_first_at_or_after_a_moment_may_be_that_moment() -> None:
    nine = _at("2026-01-01T09:00:00+00:00")
    assert first_at_or_after("0 9 * * *", nine) == nine
    assert first_at_or_after("0 9 * * *", nine + timedelta(microseconds=1)) == nine + DAY
    assert first_at_or_after("0 9 * * *", nine - timedelta(hours=20)) == nine


@pytest.mark.spec("S2")
def test_the_next_five_are_a_chain() -> None:
    dates = upcoming("0 9 * * 1-5", _at("2026-11-13T09:00:00+00:00"))
    assert [date.strftime("%a %d") for date in dates] == ["Mon 16", "Tue 17", "Wed 18", "Thu 19", "Fri 20"]


@pytest.mark.spec("S2")
@given(st.datetimes(timezones=st.just(UTC)), st.text(max_size=40), st.integers(1, 86400))
def test_jitter_only_adds_and_less_than_was_asked_for(date: datetime, series_id: str, seconds: int) -> None:
    assume(date.year < 9999)
    late = jittered(date, series_id, seconds) - date
    assert timedelta(0) <= late < timedelta(seconds=seconds)
    assert jittered(date.astimezone(check_timezone(VIENNA)), series_id, seconds) == date + late
    assert jittered(date, series_id, 0) == date


@pytest.mark.spec("S2")
def test_jitter_is_the_same_in_another_process_and_not_the_same_for_all() -> None:
    date = _at("2026-01-01T09:00:00+00:00")
    program = (
        "from datetime import *; from scheduler.recurrence import jittered; "
        "print([jittered(datetime(2026, 1, 1, 9, tzinfo=UTC), f'series {n}', 3600).isoformat() for n in range(100)])"
    )
    ours = [jittered(date, f"series {number}", 3600).isoformat() for number in range(100)]
    there = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert there.strip() == str(ours)
    assert len(set(ours)) > 90
    assert len({jittered(date + DAY * day, "series", 3600) - DAY * day for day in range(100)}) > 90


@pytest.mark.spec("S2")
def test_a_late_run_does_not_move_the_series() -> None:
    """A row that ran four minutes late is followed by the date after its scheduled one, not after now."""
    assert _series("*/10 * * * *", "2026-01-01T00:00:00+00:00", "UTC", 3) == [
        "01-01 00:10",
        "01-01 00:20",
        "01-01 00:30",
    ]


@pytest.mark.spec("S2")
def test_the_offset_of_the_scheduled_date_does_not_matter() -> None:
    scheduled = datetime(2026, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-8)))
    assert next_after("@daily", scheduled) == next_after("@daily", scheduled.astimezone(UTC))


@pytest.mark.spec("S2")
@pytest.mark.parametrize("written", ["@DAILY", "  @daily", "@Daily\t", " 0  0 * *   * "])
def test_an_expression_may_be_written_with_capitals_and_spaces(written: str) -> None:
    check_recurrence(written, VIENNA)
    assert _series(written, "2026-01-01T00:00:00+00:00", "UTC", 1) == ["01-02 00:00"]


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "Wrong number of fields"),
        ("hello", "Wrong number of fields"),
        ("* * *", "Wrong number of fields"),
        ("\x00", "Wrong number of fields"),
        ("@often", "no such alias"),
        ("@reboot", "no such alias"),
        ("60 * * * *", "Bad minute"),
        ("*/0 * * * *", "Bad minute"),
        ("0 24 * * *", "Bad hour"),
        ("0 0 * * fri-sun", "Bad day-of-week"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("0 0 31 4,6 *", "Bad day-of-month"),
        ("0 0 */14 * 1#2", "no such day in fifty years"),
    ],
)
def test_what_never_comes_due_is_refused(expression: str, why: str) -> None:
    for ask in (lambda: next_after(expression, _at("2026-01-01T00:00:00+00:00")), lambda: check_recurrence(expression)):
        with pytest.raises(RecurrenceError) as caught:
            ask()
        assert str(caught.value) == (
            f"{expression!r} is not a cron expression that ever comes due ({why}); write five fields (minute, hour, "
            "day of month, month, day of week), as in '0 9 * * 1-5', or @hourly, @daily, @weekly, @monthly or @yearly"
        )


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("*/10 * * * * *", "has 6 fields, and a task runs at most once a minute; write five fields"),
        ("* * * * * * *", "has 7 fields"),
        ("1," * 50 + "1 * * * *", "a recurrence has at most 100 characters; write five fields"),
        ("9" * 5000 + " * * * *", "a recurrence has at most 100 characters"),
    ],
)
def test_what_a_task_is_not_scheduled_by_is_refused(expression: str, words: str) -> None:
    with pytest.raises(RecurrenceError, match=words):
        check_recurrence(expression)


@pytest.mark.spec("S2")
def test_a_row_that_counts_seconds_all_the_same_goes_on() -> None:
    assert next_after("30 * * * * *", _at("2026-01-01T00:00:00+00:00"), VIENNA).second == 30


@pytest.mark.spec("S2")
@given(st.text(max_size=120) | st.lists(st.text("0123456789*/-,L#WMON", max_size=8), max_size=7).map(" ".join))
def test_whatever_is_written_is_taken_or_refused(expression: str) -> None:
    try:
        check_recurrence(expression, VIENNA)
    except RecurrenceError:
        return
    assert len(upcoming(expression, _at("2026-01-01T00:00:00+00:00"), VIENNA, 3)) == 3


@pytest.mark.spec("S2")
@pytest.mark.parametrize("expression", ["@yearly", "0 0 1 1 *", "* * * * *", "9" * 5000 + " * * * *"])
def test_what_is_later_than_the_calendar_is_refused(expression: str) -> None:
    with pytest.raises(RecurrenceError, match="is not a cron expression that ever comes due"):
        next_after(expression, datetime.max.replace(tzinfo=UTC), VIENNA)


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    "zone",
    [
        *("", "Mars/Phobos", "CEST", "Europe", "../etc/passwd", "/etc/localtime", "a\x00b", "é"),
        *("localtime", "posixrules", "right/Europe/Vienna"),
    ],
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    for ask in (lambda: next_after("@daily", datetime.now(UTC), zone), lambda: check_recurrence("@daily", zone)):
        with pytest.raises(RecurrenceError, match="is not a time zone; give an IANA name like Europe/Vienna"):
            ask()
