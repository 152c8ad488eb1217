"""How much is measured: enough to be worth quoting, or just enough to see that it runs."""

from collections.abc import Callable
from dataclasses import dataclass

Say = Callable[[str], None]  # a line of progress


@dataclass(frozen=True)
class Scale:
    repeats: int = 3
    noops: int = 400  # tasks per repeat that do nothing
    turns: int = 100  # turns per repeat
    chains: int = 60  # messages per repeat that go the whole path
    samples: int = 60  # latencies per repeat
    requests: int = 1600  # over HTTP, per repeat
    waiting: int = 1000  # sessions that wait at the same time
    streams: int = 500  # model calls at the same time
    streamed: int = 750  # turns per repeat that stream
    subscribers: int = 200  # readers of events at the same time
    few_rows: int = 10_000
    many_rows: int = 1_000_000
    sweeps: int = 10  # per repeat
    timetables: tuple[int, ...] = (10_000, 100_000, 1_000_000)  # scheduled tasks
    many_due: int = 100_000  # of them, at once
    peer_seconds: float = 10  # so long plain beat may send them; what it has sent by then gives its rate
    sqlite_too: bool = True


FULL = Scale()
QUICK = Scale(
    repeats=1, noops=200, turns=100, chains=60, samples=20, requests=320, waiting=100, streams=50, streamed=100,
    subscribers=20, few_rows=1_000, many_rows=50_000, sweeps=5, timetables=(500, 1_000, 5_000), many_due=2_000,
    peer_seconds=1,
    sqlite_too=False,
)  # fmt: skip
