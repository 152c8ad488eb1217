"""The console's charts: drawn from numbers, and whatever words are in them are escaped."""

import re
from datetime import UTC, date, datetime

import pytest

from gateway.console.rendering.charts import COLOURS, berths, columns_of, hours, meter

HOSTILE = '"><script>alert(1)</script>'


@pytest.mark.spec("G3")
def test_words_in_a_chart_are_escaped() -> None:
    at = datetime(2026, 11, 17, 6, tzinfo=UTC)
    drawn = [hours([(at, 3)], HOSTILE), meter(1, 2, HOSTILE), berths(1, 2, HOSTILE)]
    drawn.append(columns_of([("2026-11-17", HOSTILE, 1.0)], at.date(), 1).picture)
    for picture in drawn:
        assert "<script" not in picture
        assert "style=" not in picture


@pytest.mark.spec("G3")
@pytest.mark.parametrize(
    ("part", "whole", "state", "width"),
    [
        (0, 5, "fine", "0.0"),
        (4, 5, "high", "80.0"),
        (6, 5, "full", "100.0"),
        (1, 0, "full", "100.0"),
        (-1, 5, "fine", "0.0"),
    ],
)
def test_a_meter_is_never_more_than_full(part: float, whole: float, state: str, width: str) -> None:
    drawn = meter(part, whole, "spent")
    assert f"meter-{state}" in drawn
    assert f'class="meter-fill" width="{width}"' in drawn


@pytest.mark.spec("G3")
def test_places_in_use_are_filled_and_any_use_shows() -> None:
    def filled(busy: int, slots: int) -> tuple[int, int]:
        drawn = berths(busy, slots, "places")
        return drawn.count("berth-busy"), drawn.count("berth-free")

    assert filled(3, 20) == (3, 17)
    assert filled(0, 200) == (0, 40)
    assert filled(1, 200) == (1, 39)
    assert filled(200, 200) == (40, 0)


@pytest.mark.spec("G3")
def test_each_day_is_a_column_of_its_parts_and_the_small_ones_are_together() -> None:
    parts = [(f"2026-11-0{day}", f"agent-{number}", float(number)) for day in (1, 3) for number in range(1, 9)]
    chart = columns_of(parts, date(2026, 11, 1), 3)
    assert (chart.top, chart.days) == (40.0, ["1 Nov", "2 Nov", "3 Nov"])
    said = [title.split("\n") for title in re.findall(r"<title>([^<]*)</title>", chart.picture)]
    assert [lines[0] for lines in said] == ["1 Nov: $36.00", "2 Nov: $0.00", "3 Nov: $36.00"]
    assert said[0][1:] == [f"agent-{number}: ${number}.00" for number in range(8, 0, -1)]
    assert [name for name, _ in chart.legend] == [f"agent-{number}" for number in (8, 7, 6, 5, 4)] + ["3 others"]
    assert {colour for _, colour in chart.legend} == set(range(COLOURS + 1))
    heights = [float(height) for height in re.findall(r'class="part part-\d"[^>]*height="([\d.]+)"', chart.picture)]
    assert len(heights) == 16
    assert sum(heights[:8]) == pytest.approx(160 * 36 / 40, abs=0.1)


@pytest.mark.spec("G3")
def test_nothing_was_spent_is_an_empty_chart() -> None:
    chart = columns_of([], date(2026, 11, 1), 7)
    assert (chart.legend, chart.top) == ([], 1.0)
    assert chart.picture.count("<title>") == 7


@pytest.mark.spec("G3")
@pytest.mark.parametrize(
    ("spent", "top"),
    [(0.0, 1.0), (0.00034, 0.0004), (0.1, 0.1), (8.65, 10.0), (10.0, 10.0), (10.01, 20.0), (650.0, 800.0)],
)
def test_the_line_at_the_top_of_a_chart_is_an_amount_that_people_would_write(spent: float, top: float) -> None:
    assert columns_of([("2026-11-01", "demo", spent)], date(2026, 11, 1), 1).top == pytest.approx(top)


@pytest.mark.spec("G3")
def test_days_along_a_chart_are_as_many_as_there_is_room_for() -> None:
    assert columns_of([], date(2026, 11, 18), 1).days == ["18 Nov"]
    assert columns_of([], date(2026, 11, 12), 7).days == ["12 Nov", "14 Nov", "16 Nov", "18 Nov"]
    assert columns_of([], date(2026, 10, 20), 30).days[::4] == ["20 Oct", "18 Nov"]
