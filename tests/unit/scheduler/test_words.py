"""Dates and recurrences as people read them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.words import distance, duration, next_runs, often, when

VIENNA = "Europe/Vienna"
NINE = datetime(2026, 11, 17, 8, 0, tzinfo=UTC)


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("date", "zone", "words"),
    [
        (NINE, VIENNA, "Tue 17 Nov 2026, 09:00 CET"),
        (NINE, "UTC", "Tue 17 Nov 2026, 08:00 UTC"),
        (NINE.replace(month=7, day=1), VIENNA, "Wed 1 Jul 2026, 10:00 CEST"),
        (NINE.replace(second=7, microsecond=5), "UTC", "Tue 17 Nov 2026, 08:00:07 UTC"),
        (NINE, "Asia/Kathmandu", "Tue 17 Nov 2026, 13:45 UTC+0545"),
        (NINE, "America/Sao_Paulo", "Tue 17 Nov 2026, 05:00 UTC-03"),
        (NINE.replace(hour=23, minute=30), VIENNA, "Wed 18 Nov 2026, 00:30 CET"),
        (NINE, "Mars/Phobos", "Tue 17 Nov 2026, 08:00 UTC"),
    ],
)
def test_a_date_is_told_on_the_clock_of_its_task(date: datetime, zone: str, words: str) -> None:
    assert when(date, zone) == words


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (0.9, "now"),
        (1, "in 1 second"),
        (-1, "1 second ago"),
        (60, "in 1 minute"),
        (90, "in 90 seconds"),
        (-120, "2 minutes ago"),
        (3600, "in 1 hour"),
        (14.6 * 3600, "in 14 hours"),
        (86400, "in 1 day"),
        (47 * 3600, "in 47 hours"),
        (-48 * 3600, "2 days ago"),
        (365 * 86400, "in 365 days"),
    ],
)
def test_how_far_away_a_date_is(seconds: float, words: str) -> None:
    assert distance(NINE + timedelta(seconds=seconds), NINE) == words


@pytest.mark.spec("S2")
@pytest.mark.parametrize(
    ("recurrence", "words"),
    [
        ("0 9 * * 1-5", "At 09:00 on Monday through Friday"),
        ("@daily", "At 00:00 every day"),
        (" @Weekly ", "At 00:00 on Sunday"),
        ("@hourly", "At the start of every hour"),
        ("* * * * *", "Every minute"),
        ("*/1 * * * *", "Every minute"),
        ("*/2 * * * *", "Every 2 minutes"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("*/7 * * * *", "Every seventh minute of every hour"),
        ("0 */6 * * *", "Every 6 hours"),
        ("0 */5 * * *", "At minute 0 past every fifth hour"),
        ("30 8 21 * *", "At 08:30 on the 21st day of every month"),
        ("0 0 2,22,23 * *", "At 00:00 on the second, the 22nd, and the 23rd day of month"),
        ("0 0 11,12,13 * *", "At 00:00 on the 11th, the 12th, and the 13th day of month"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
        ("0 17 * * 5L", "At 17:00 on the last Friday of the month"),
        ("0 9 * * mon#2", "At 09:00 on the second Monday of the month"),
        (None, "Once"),
        ("every now and then", "every now and then"),
        ("*/0 * * * *", "*/0 * * * *"),
        ("", ""),
        ("9" * 5000 + " * * * *", "9" * 5000 + " * * * *"),
    ],
)
def test_how_often_it_comes(recurrence: str | None, words: str) -> None:
    assert often(recurrence) == words


@pytest.mark.spec("S2")
def test_the_next_five_runs_through_a_change_of_the_clock() -> None:
    first = datetime(2026, 10, 23, 7, 0, tzinfo=UTC)
    assert next_runs("0 9 * * *", first, VIENNA, at=first - timedelta(hours=14)) == [
        "Fri 23 Oct 2026, 09:00 CEST, in 14 hours",
        "Sat 24 Oct 2026, 09:00 CEST, in 38 hours",
        "Sun 25 Oct 2026, 09:00 CET, in 2 days",
        "Mon 26 Oct 2026, 09:00 CET, in 3 days",
        "Tue 27 Oct 2026, 09:00 CET, in 4 days",
    ]


@pytest.mark.spec("S2")
def test_the_next_runs_say_that_they_may_begin_later() -> None:
    assert next_runs("@daily", NINE, "UTC", jitter_seconds=600)[:2] == [
        "Tue 17 Nov 2026, 08:00 UTC (begins up to 10 minutes later)",
        "Wed 18 Nov 2026, 00:00 UTC (begins up to 10 minutes later)",
    ]


@pytest.mark.spec("S2")
@pytest.mark.parametrize(("recurrence", "zone"), [(None, "UTC"), ("nonsense", "UTC"), ("@daily", "Mars/Phobos")])
def test_what_does_not_come_again_has_one_run(recurrence: str | None, zone: str) -> None:
    assert next_runs(recurrence, NINE, zone) == ["Tue 17 Nov 2026, 08:00 UTC"]


@pytest.mark.spec("S2")
@given(
    st.text(max_size=30) | st.lists(st.text("0123456789*/-,L#WMON", min_size=1, max_size=4), max_size=6).map(" ".join),
    st.datetimes(timezones=st.just(UTC), min_value=datetime(1971, 1, 1), max_value=datetime(2999, 12, 31)),
    st.text(max_size=10),
)
def test_words_are_found_for_whatever_is_in_a_row(recurrence: str, date: datetime, zone: str) -> None:
    assert isinstance(often(recurrence), str)
    assert next_runs(recurrence, date, zone)
    assert duration(abs(date.timestamp()))
