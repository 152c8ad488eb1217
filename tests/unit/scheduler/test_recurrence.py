"""The next date: from the scheduled one, in the task's own time zone, through changes of the clock."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.recurrence import ALIASES, RecurrenceError, next_after

VIENNA = "Europe/Vienna"


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
    """02:30 does not exist in Vienna on 2026-03-29."""
    dates = _series("30 2 * * *", "2026-03-28T01:30:00+00:00", VIENNA, 2)
    assert dates[0].startswith("03-29")
    assert dates[1] == "03-30 00:30"


@pytest.mark.spec("S2")
def test_a_time_that_the_clock_repeats_comes_once() -> None:
    """02:30 comes twice in Vienna on 2026-10-25."""
    dates = _series("30 2 * * *", "2026-10-24T00:30:00+00:00", VIENNA, 2)
    assert dates[0].startswith("10-25")
    assert dates[1] == "10-26 01:30"


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
@pytest.mark.parametrize(
    "expression", ["", "hello", "@often", "* * *", "60 * * * *", "0 0 30 2 *", "0 0 31 4,6 *", "\x00"]
)
def test_what_never_comes_due_is_refused(expression: str) -> None:
    with pytest.raises(RecurrenceError, match="is not a cron expression that ever comes due"):
        next_after(expression, _at("2026-01-01T00:00:00+00:00"))


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    "zone", ["", "Mars/Phobos", "CEST", "Europe", "../etc/passwd", "/etc/localtime", "a\x00b", "é"]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(RecurrenceError, match="is not a time zone; give an IANA name like Europe/Vienna"):
        next_after("@daily", _at("2026-01-01T00:00:00+00:00"), zone)
