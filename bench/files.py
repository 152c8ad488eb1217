"""(files) What it costs to read and write an agent's file so that nobody can lead us elsewhere, beside plain `open`.

Run in this process, without the fleet: the stage and the database are not used. The two sides take turns in short
rounds. The peer writes to a draft and renames it as well: what is compared is the confinement, not the care."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from adapters.workspace import Workspace
from bench.figures import Figure
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage

ROUNDS = 20
CALLS = 100  # per round
SIZE = 4000  # bytes: a page of notes
FILE = "notes/2026/a.md"


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="bench-files-"))
    try:
        return _measure(Workspace(folder), folder / FILE, scale, say)
    finally:
        shutil.rmtree(folder)


def _measure(workspace: Workspace, file: Path, scale: Scale, say: Say) -> list[Figure]:
    data = b"x" * SIZE
    workspace.write(FILE, data)
    draft = file.with_name("draft")

    def plain_write() -> None:
        draft.write_bytes(data)
        os.rename(draft, file)

    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "read": (lambda: workspace.read(FILE, limit=100_000), file.read_bytes),
        "write": (lambda: workspace.write(FILE, data), plain_write),
    }
    figures = []
    for name, (ours, peer) in pairs.items():
        repeats = [_alternate(ours, peer) for _ in range(scale.repeats + 1)][1:]  # the first warms up
        confined, plain = [pair[0] for pair in repeats], [pair[1] for pair in repeats]
        say(f"(files) {name}: {median(confined):.0f} and {median(plain):.0f} microseconds")
        figures.append(Figure("files", f"{name} {SIZE:,} bytes / plain open", confined, plain, "µs"))
    return figures


def _alternate(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    """Microseconds per call: the median of the rounds of each."""
    rounds = [(_timed(ours), _timed(peer)) for _ in range(ROUNDS)]
    return median(first for first, _ in rounds), median(second for _, second in rounds)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - started) / CALLS * 1e6
