"""Where a test run spends its time: wall and CPU seconds by level, by file, by fixture and by test.

`make test-times` runs the tests with this as a plugin and prints the report. CPU is what the processes' own counters
say: the test process, and each child that it has waited for, by itself or through `fork_server`. Servers that a whole
run shares end with the last test and are counted apart."""

import argparse
import json
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from tests.support import fork_server


class Spent(NamedTuple):
    wall: float
    own: float  # CPU of the test process
    children: float  # CPU of children that it has waited for

    @property
    def cpu(self) -> float:
        return self.own + self.children

    def __add__(self, other: "Spent") -> "Spent":  # type: ignore[override]
        return Spent(*(mine + more for mine, more in zip(self, other, strict=True)))

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(*(mine - less for mine, less in zip(self, other, strict=True)))


NOTHING = Spent(0, 0, 0)


def spent_so_far() -> Spent:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    forked = fork_server.cpu_seconds()
    return Spent(time.perf_counter(), time.process_time(), children.ru_utime + children.ru_stime + forked)


class Recorder:
    """Writes one line of JSON for each test and each fixture. Each process of a parallel run has a file of its own."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._start = spent_so_far()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        start = spent_so_far()
        try:
            return (yield)
        finally:
            spent = spent_so_far() - start
            if nextitem is None:
                self._write("servers", "servers", spent._replace(own=0.0))
                spent = spent._replace(children=0.0)
            self._write("test", item.nodeid, spent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        start = spent_so_far()
        try:
            return (yield)
        finally:
            self._write("fixture", fixturedef.argname, spent_so_far() - start)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._write("collection", "collection", spent_so_far() - self._start)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        self._write("process", "process", spent_so_far() - self._start)
        self._file.close()

    def _write(self, kind: str, name: str, spent: Spent) -> None:
        print(json.dumps([kind, name, *(round(seconds, 5) for seconds in spent)]), file=self._file)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=Path, help="a folder for what each test and fixture has cost")


def pytest_configure(config: pytest.Config) -> None:
    if folder := config.getoption("--times"):
        folder.mkdir(parents=True, exist_ok=True)
        worker = getattr(config, "workerinput", {}).get("workerid", "main")
        config.pluginmanager.register(Recorder((folder / f"{worker}.jsonl").open("w")), "times-recorder")


class Row(NamedTuple):
    kind: str
    name: str
    spent: Spent


def read_rows(folder: Path) -> list[Row]:
    files = sorted(folder.glob("*.jsonl"))
    if len(files) > 1:  # the process that hands out the tests repeats what the others have said
        files = [path for path in files if path.stem != "main"]
    lines = (line for path in files for line in path.read_text().splitlines())
    return [Row(kind, name, Spent(*spent)) for kind, name, *spent in map(json.loads, lines)]


def by_name(rows: list[Row], name_of: Callable[[Row], str]) -> dict[str, tuple[int, Spent]]:
    """How many and how much, the dearest in CPU first."""
    sums: dict[str, tuple[int, Spent]] = defaultdict(lambda: (0, NOTHING))
    for row in rows:
        count, spent = sums[name_of(row)]
        sums[name_of(row)] = (count + 1, spent + row.spent)
    return dict(sorted(sums.items(), key=lambda item: -item[1][1].cpu))


def table(title: str, sums: Mapping[str, tuple[int, Spent]], most: int) -> list[str]:
    lines = [f"\n{title:70} {'count':>6} {'CPU s':>8} {'own':>8} {'children':>8} {'wall s':>8}"]
    for name, (count, spent) in list(sums.items())[:most]:
        numbers = f"{spent.cpu:8.1f} {spent.own:8.1f} {spent.children:8.1f} {spent.wall:8.1f}"
        lines.append(f"{name[-70:]:70} {count:6} {numbers}")
    return lines


def report(rows: list[Row], most: int) -> list[str]:
    tests = [row for row in rows if row.kind == "test"]
    processes = [row for row in rows if row.kind == "process"]
    whole = sum((row.spent for row in processes), NOTHING)
    in_tests = sum((row.spent for row in tests), NOTHING)
    outside = whole - in_tests
    lines = [f"{len(tests)} tests, {whole.cpu:.0f} s of CPU in {len(processes)} processes"]
    lines.append(f"  of these {outside.cpu:.0f} s outside of tests: imports, collection, the servers of the run")
    lines += table("level", by_name(tests, lambda row: row.name.split("/")[1]), most)
    lines += table("file", by_name(tests, lambda row: row.name.split("::")[0]), most)
    lines += table("fixture", by_name([row for row in rows if row.kind == "fixture"], lambda row: row.name), most)
    lines += table("test", by_name(tests, lambda row: row.name), most)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where `pytest -p tests.support.times --times=FOLDER` has written")
    parser.add_argument("--most", type=int, default=40, help="how many lines a table has")
    given = parser.parse_args()
    print("\n".join(report(read_rows(given.folder), given.most)))


if __name__ == "__main__":
    main()
