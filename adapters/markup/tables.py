"""A table as text that stands in columns wherever every character has the same width."""

from collections.abc import Sequence

from wcwidth import wcswidth


def aligned(rows: Sequence[Sequence[str]], sides: Sequence[str]) -> str:
    """The first row is the heading; `sides` says per column where its text stands: left (""), center or right."""
    widths = [max(_width(row[column]) for row in rows if column < len(row)) for column in range(len(sides))]
    lines = [" | ".join(_placed(*cell) for cell in zip(row, widths, sides, strict=False)).rstrip() for row in rows]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def _placed(text: str, width: int, side: str) -> str:
    room = width - _width(text)
    before = room if side == "right" else room // 2 if side == "center" else 0
    return " " * before + text + " " * (room - before)


def _width(text: str) -> int:
    """How many columns it takes; what has no width (or a negative one) is counted by its characters."""
    width = wcswidth(text)
    return width if width >= 0 else len(text)
