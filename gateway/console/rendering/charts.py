"""Charts as SVG, drawn here: no script draws anything in the browser, and colours come from the style sheet.

Numbers only are put into the markup as they are; words are escaped."""

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

Column = tuple[str, str, float]  # day, part, amount


@dataclass(frozen=True)
class Chart:
    """A picture, and the words around it: what its colours are, the height of its top, its first and last day."""

    picture: Markup
    legend: list[tuple[str, int]]
    top: float
    first: str
    last: str


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
    top = max((sum(parts.values()) for parts in by_day.values()), default=0.0)
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
    last = first + timedelta(days=days - 1)
    picture = head + Markup("").join(drawn) + Markup("</svg>")
    return Chart(picture, legend, top, f"{first.day} {first:%b}", f"{last.day} {last:%b}")


def _column(
    parts: dict[str, float], day: date, colours: dict[str, int], top: float, place: tuple[float, float]
) -> Markup:
    left, width = place
    gap = min(width * 0.18, 6)
    y = float(_HEIGHT)
    boxes = []
    for part in sorted((part for part in parts if part in colours), key=lambda part: colours[part]):
        height = (_HEIGHT - 4) * parts[part] / top
        y -= height
        boxes.append(
            Markup('<rect class="part part-{c}" x="{x}" y="{y}" width="{w}" height="{h}"/>').format(
                c=colours[part], x=round(left + gap / 2, 2), y=round(y, 2), w=round(width - gap, 2), h=round(height, 2)
            )
        )
    said = f"{day.day} {day:%b}: {money(sum(parts.values()))}"
    back = Markup('<g><title>{said}</title><rect class="part-back" x="{x}" y="0" width="{w}" height="{h}"/>').format(
        said=said, x=round(left, 2), w=round(width, 2), h=_HEIGHT
    )
    return back + Markup("").join(boxes) + Markup("</g>")


CHARTS: Final[dict[str, Callable[..., Any]]] = {
    "hours": hours,
    "meter": meter,
    "berths": berths,
}
