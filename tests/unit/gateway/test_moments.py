"""When, as people type it: what is understood, and what is asked about instead of guessed."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.moments import MomentError, parse_moment, parse_span

pytestmark = pytest.mark.spec("G4", "S2")

VIENNA = ZoneInfo("Europe/Vienna")
NOW = datetime(2026, 11, 17, 14, 30, 5, tzinfo=UTC)  # 15:30:05 in Vienna


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01 09:00", "2026-12-01 08:00:00"),
        ("2026-07-01T09:00:30", "2026-07-01 07:00:30"),
        ("2026-12-01T09:00+05:30", "2026-12-01 03:30:00"),
        ("2026-12-01 09:00 -0500", "2026-12-01 14:00:00"),
        ("2026-12-01t09:00z", "2026-12-01 09:00:00"),
        ("  2026-12-01   09:00 Z ", "2026-12-01 09:00:00"),
        ("15:31", "2026-11-17 14:31:00"),
        ("15:30", "2026-11-18 14:30:00"),
        ("9:05", "2026-11-18 08:05:00"),
        ("today 23:59:59", "2026-11-17 22:59:59"),
        ("Today 09:00", "2026-11-17 08:00:00"),  # past: refused where it is known what for
        ("tomorrow 09:00", "2026-11-18 08:00:00"),
        ("tomorrow at 09:00", "2026-11-18 08:00:00"),
        ("now", "2026-11-17 14:30:05"),
        ("in 20 minutes", "2026-11-17 14:50:05"),
        ("in 1 hour and 30 minutes", "2026-11-17 16:00:05"),
        ("in 2d", "2026-11-19 14:30:05"),
    ],
)
def test_a_moment_is_understood(text: str, expected: str) -> None:
    assert parse_moment(text, NOW, VIENNA) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not say when"),
        ("soon", "does not say when; write it like `2026-12-01 09:00`"),
        ("tomorrow", "does not say when"),
        ("2026-12-01", "does not say when"),
        ("01/12/2026 09:00", "does not say when"),
        ("9", "does not say when"),
        ("in a while", "is not a length of time"),
        ("in 1 month", "is not a length of time"),
        ("in -5 minutes", "is not a length of time"),
        ("25:00", "is not a date there is"),
        ("2026-02-30 09:00", "is not a date there is"),
        ("in 999999999 weeks", "is not a date there is"),
        ("0001-01-01 00:00+14:00", "is not a date there is"),
        ("٠٩:٠٠", "does not say when"),
        ("2026-03-29 02:30", "is skipped in Europe/Vienna"),
        ("2026-10-25 02:30", "comes twice in Europe/Vienna, when its clocks go back: write "
                             "2026-10-25T02:30+02:00 or 2026-10-25T02:30+01:00"),
    ],
)  # fmt: skip
def test_what_can_be_read_in_no_way_or_two_is_asked_about(text: str, said: str) -> None:
    with pytest.raises(MomentError) as caught:
        parse_moment(text, NOW, VIENNA)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1 day, 2 min", 86520), ("0m", 0), ("2 hours", 7200), ("1W", 604800)],
)  # fmt: skip
def test_a_span_is_understood(text: str, seconds: int) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "1.5h", "-1m", "10 minuets", "ten minutes", "1h 30", "and 1h"])
def test_a_span_without_a_unit_or_number_is_none(text: str) -> None:
    with pytest.raises(MomentError, match="is not a length of time"):
        parse_span(text)


def test_a_long_span_that_is_none_is_refused_without_much_thought() -> None:
    with pytest.raises(MomentError, match="is not a length of time"):
        parse_span("1xand " * 2000 + "!")


@given(
    local=st.datetimes(datetime(1990, 1, 1), datetime(2035, 1, 1)).map(lambda t: t.replace(second=0, microsecond=0)),
    zone=st.sampled_from([ZoneInfo(name) for name in ("UTC", "Europe/Vienna", "Asia/Kolkata", "Australia/Lord_Howe")]),
)  # fmt: skip
def test_a_date_without_an_offset_is_what_the_clocks_of_the_zone_show(local: datetime, zone: ZoneInfo) -> None:
    try:
        moment = parse_moment(f"{local:%Y-%m-%d %H:%M}", NOW, zone)
    except MomentError:
        # Only where the clocks change.
        offsets = {(local + timedelta(hours=h)).replace(tzinfo=zone).utcoffset() for h in (-3, 3)}
        assert len(offsets) == 2
    else:
        assert moment.astimezone(zone).replace(tzinfo=None) == local


@given(st.text(max_size=40) | st.from_regex(r"(in |today |tomorrow )?[0-9]{0,12}[:\-a-z ][0-9]{0,12}.{0,10}"))
def test_any_text_is_a_moment_or_a_sentence(text: str) -> None:
    for parse in (lambda: parse_moment(text, NOW, VIENNA), lambda: parse_span(text)):
        with suppress(MomentError):
            parse()
