"""Money, token counts and spans of time as people read them, at the command line and in the console."""

from collections.abc import Mapping
from datetime import UTC, datetime

_SMALLEST_USD = 0.0001
_BAR_CELLS = 10


def money(usd: float | None) -> str:
    """Cents where there are cents, and four digits where a model call costs less. None: nobody knows the price."""
    if usd is None:
        return "?"
    if 0 < usd < _SMALLEST_USD:
        return f"<${_SMALLEST_USD:.4f}"
    return f"${usd:.4f}" if 0 < usd < 0.1 else f"${usd:,.2f}"


def budget_words(budget: Mapping[str, float]) -> str:
    """Empty without a budget."""
    parts = []
    if usd := budget.get("daily_usd"):
        parts.append(f"{money(usd)} a day")
    if usd := budget.get("user_daily_usd"):
        parts.append(f"{money(usd)} a day for each person")
    return ", ".join(parts)


def tokens(count: int) -> str:
    """Short: 340, 1.2k, 12k, 3.4M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            # 999,950 would be rounded to 1000.0k otherwise.
            shown = f"{count / size:.1f}" if count < 9.95 * size else f"{count / size:.0f}"
            return f"{shown.removesuffix('.0')}{unit}"
    return str(count)


def spent(read_tokens: int, output_tokens: int, usd: float | None, *, partly_unknown: bool = False) -> str:
    """What one turn took, in a few words."""
    cost = "" if usd is None else f", {'at least ' * partly_unknown}{money(usd)}"
    return f"{tokens(read_tokens)} tokens in, {tokens(output_tokens)} out{cost}"


def bar(part: float, whole: float) -> str:
    """How much of something is gone. Anything at all shows, and only all of it fills the bar."""
    share = min(max(part / whole, 0.0), 1.0) if whole > 0 else 1.0
    cells = min(_BAR_CELLS - (share < 1), max(round(share * _BAR_CELLS), int(share > 0)))
    return "█" * cells + "░" * (_BAR_CELLS - cells)


def span(seconds: float) -> str:
    """A length of time in its largest unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def ago(moment: datetime | None) -> str:
    return "-" if moment is None else span((datetime.now(UTC) - moment).total_seconds())


def until(moment: datetime) -> str:
    return span((moment - datetime.now(UTC)).total_seconds())
