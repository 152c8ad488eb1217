"""What was measured: ours beside the peer, repeat by repeat, and the table at the end.

The machine may be busy with other things. So the ratio is taken within each repeat, where both sides met the same
noise, and the median of those ratios is shown with its range. Absolute figures are only there to give a feeling."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from rich.table import Table


@dataclass(frozen=True)
class Aim:
    """`of` says what is judged: the ratio to the peer, or our own figure."""

    kind: Literal["at least", "at most"]
    value: float
    of: Literal["ratio", "ours"] = "ratio"
    unit: str = ""

    def met_by(self, measured: float) -> bool:
        return measured >= self.value if self.kind == "at least" else measured <= self.value

    def __str__(self) -> str:
        return f"{'>=' if self.kind == 'at least' else '<='} {self.value:g}{self.unit}"


@dataclass(frozen=True)
class Figure:
    """One row of the table. `ours` and `peer` have one value per repeat, in the same order."""

    part: str
    what: str
    ours: Sequence[float]
    peer: Sequence[float]
    unit: str
    aim: Aim | None = None
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        return [ours / peer for ours, peer in zip(self.ours, self.peer, strict=True)]

    @property
    def met(self) -> bool | None:
        if self.aim is None:
            return None
        return self.aim.met_by(median(self.ratios if self.aim.of == "ratio" else self.ours))

    def cells(self) -> list[str]:
        ratios = self.ratios
        spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        ours, peer = (f"{_short(median(values))} {self.unit}" for values in (self.ours, self.peer))
        return [self.part, self.what, ours, peer, spread, str(self.aim or ""), verdict, self.note]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest value; with few values a high percentile is close to the worst one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


HEADINGS = ("", "what", "Longshore", "peer", "ratio (range)", "aim", "", "note")


def as_table(figures: Sequence[Figure]) -> Table:
    table = Table(*HEADINGS, title="Longshore beside its peers, in the same run")
    for figure in figures:
        table.add_row(*figure.cells())
    return table


def as_markdown(figures: Sequence[Figure]) -> str:
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(figure.cells() for figure in figures)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
