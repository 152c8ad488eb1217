"""Charts as SVG, drawn here: no script draws anything in the browser, and colours come from the style sheet.

Numbers only are put into the markup as they are; words are escaped."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from markupsafe import Markup

from gateway.figures import money

_HOURS: Final = (240, 44)
_HEIGHT: Final = 160
_WIDTH: Final = 720
COLOURS: Final = 5  # of the style sheet, and one for the rest
_DAYS_NAMED: Final = 5
_LINES: Final = 8  # of what is said of a day

Column = tuple[str, str, float]  # day, part, amount


@dataclass(frozen=True)
class Chart:
    """A picture, and the words around it: what its colours are, the amount at its top, and days along its foot, evenly
    from the first to the last."""

    picture: Markup
    legend: list[tuple[str, int]]
    top: float
    days: list[str]


def hours(counts: Sequence[tuple[datetime, int]], label: str) -> Markup:
    """A small column for each hour, the running one last. `label`: what it shows, for those who do not see it."""
    width, height = _HOURS
    step = width / max(len(counts), 1)
    top = max([*(number for _, number in counts), 1])
    drawn = []
    for place, (hour, number) in enumerate(counts):
        tall = max((height - 2) * number / top, 1.5 if number else 0.8)
        values = {
            "x": round(place * step, 2),
            "y": round(height - tall, 2),
            "w": round(step * 0.8, 2),
            "h": round(tall, 2),
        }
        kind = "hour" if number else "hour hour-quiet"
        drawn.append(
            Markup('<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}"><title>{said}</title></rect>').format(
                kind=kind, said=f"{hour:%H:%M} UTC: {number}", **values
            )
        )
    head = Markup(
        '<svg class="hours" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
    )
    return head.format(w=width, h=height, label=label) + Markup("").join(drawn) + Markup("</svg>")


def meter(part: float, whole: float, label: str) -> Markup:
    """How much of something is gone, as a load line. Full and over is said by the colour too."""
    share = min(max(part / whole, 0.0), 1.0) if whole > 0 else 1.0
    state = "full" if share >= 1 else "high" if share >= 0.8 else "fine"
    return Markup(
        '<svg class="meter meter-{state}" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" '
        'aria-label="{label}"><rect class="meter-back" width="100" height="8"/>'
        '<rect class="meter-fill" width="{share}" height="8"/></svg>'
    ).format(state=state, label=label, share=round(share * 100, 1))


def berths(busy: int, slots: int, label: str) -> Markup:
    """Places of a worker as containers on its quay: those in use are filled."""
    shown = min(slots, 40)
    filled = busy if slots <= shown else -(-busy * shown // slots)
    boxes = [
        Markup('<rect class="{state}" x="{x}" y="{y}" width="6.5" height="6" rx="1"/>').format(
            state="berth-busy" if i < filled else "berth-free", x=(i % 20) * 8, y=(i // 20) * 8
        )
        for i in range(shown)
    ]
    head = Markup('<svg class="berths" viewBox="0 0 160 {h}" width="160" height="{h}" role="img" aria-label="{label}">')
    return head.format(h=8 * max(-(-shown // 20), 1), label=label) + Markup("").join(boxes) + Markup("</svg>")


def columns_of(amounts: Sequence[Column], first: date, days: int) -> Chart:
    """One column for each day, made of parts: the biggest in a colour of its own, the others together."""
    whole: dict[str, float] = defaultdict(float)
    by_day: dict[str, dict[str, float]] = defaultdict(dict)
    for day, part, amount in amounts:
        whole[part] += amount
        by_day[day][part] = by_day[day].get(part, 0.0) + amount
    ranked = sorted((part for part in whole if whole[part] > 0), key=lambda part: -whole[part])
    colours = {part: min(rank, COLOURS) for rank, part in enumerate(ranked)}
    top = _round_above(max((sum(parts.values()) for parts in by_day.values()), default=0.0))
    width = _WIDTH / days
    drawn = [
        _column(by_day[day.isoformat()], day, colours, top, (number * width, width))
        for number, day in enumerate(first + timedelta(days=back) for back in range(days))
    ]
    head = Markup(
        '<svg class="columns-chart" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" '
        'aria-label="cost per day; the table beneath has the numbers">'
    ).format(w=_WIDTH, h=_HEIGHT)
    legend = [(part, colours[part]) for part in ranked[:COLOURS]]
    legend += [(f"{len(ranked) - COLOURS} others", COLOURS)] if len(ranked) > COLOURS else []
    half = Markup('<line class="half" x1="0" x2="{w}" y1="{y}" y2="{y}"/>').format(w=_WIDTH, y=_HEIGHT / 2)
    picture = head + half + Markup("").join(drawn) + Markup("</svg>")
    return Chart(picture, legend, top, _along(first, days))


def _round_above(amount: float) -> float:
    """The next amount that people would write at a line."""
    if amount <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(amount))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if amount <= step * power * (1 + 1e-9))


def _along(first: date, days: int) -> list[str]:
    """As many days as there is room for, as far apart as each other."""
    most = min(days, _DAYS_NAMED)
    shown = next((number for number in range(most, 2, -1) if (days - 1) % (number - 1) == 0), most)
    at = [round(number * (days - 1) / max(shown - 1, 1)) for number in range(shown)]
    return [f"{day.day} {day:%b}" for day in (first + timedelta(days=back) for back in at)]


def _column(
    parts: dict[str, float], day: date, colours: dict[str, int], top: float, place: tuple[float, float]
) -> Markup:
    left, width = place
    gap = min(width * 0.18, 6)
    y = float(_HEIGHT)
    boxes = []
    for part in sorted((part for part in parts if part in colours), key=lambda part: colours[part]):
        height = _HEIGHT * parts[part] / top
        y -= height
        boxes.append(
            Markup('<rect class="part part-{c}" x="{x}" y="{y}" width="{w}" height="{h}"/>').format(
                c=colours[part], x=round(left + gap / 2, 2), y=round(y, 2), w=round(width - gap, 2), h=round(height, 2)
            )
        )
    dearest = sorted((part for part in parts if parts[part] > 0), key=lambda part: -parts[part])
    lines = [f"{part}: {money(parts[part])}" for part in dearest[:_LINES]]
    said = "\n".join([f"{day.day} {day:%b}: {money(sum(parts.values()))}", *lines])
    back = Markup('<g><title>{said}</title><rect class="part-back" x="{x}" y="0" width="{w}" height="{h}"/>').format(
        said=said, x=round(left, 2), w=round(width, 2), h=_HEIGHT
    )
    return back + Markup("").join(boxes) + Markup("</g>")


CHARTS: Final[dict[str, Callable[..., Any]]] = {
    "hours": hours,
    "meter": meter,
    "berths": berths,
}
