"""`longshore prune` is killed in the middle: every row is in the database, in the archive, or in both."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.history import write_history
from bench.rows import add_group
from models.database import Database
from tests.support import fork_server
from tests.support.database_contents import Rows, archived, as_archived, everything, grow_older
from tests.support.fork_server import Process
from tests.support.servers import wait_until

TURNS = 1200


@pytest.fixture
def past(database_url: str) -> str:
    """A database with many finished conversations of long ago."""
    add_group(database_url, "ok")
    write_history(database_url, TURNS)
    with_database(database_url, lambda db: grow_older(db, 400))
    return database_url


def with_database(url: str, work: Callable[[Database], object]) -> Rows:
    async def run() -> Rows:
        db = Database(url)
        try:
            await work(db)  # type: ignore[misc]
            return await everything(db)
        finally:
            await db.close()

    return asyncio.run(run())


@pytest.fixture
def start(past: str, tmp_path: Path) -> Iterator[Callable[[], Process]]:
    started: list[Process] = []
    env = {"PATH": os.environ["PATH"], "DATABASE_URL": past, "LONGSHORE_HOME": str(tmp_path / "home")}
    command = ["longshore", "prune", "--older-than", "30d", "--archive", str(tmp_path / "kept")]

    def make() -> Process:
        started.append(fork_server.start(command, env, tmp_path, stdout=1, stderr=2))
        return started[-1]

    yield make
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)


@pytest.mark.spec("D6")
@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGINT, 130, id="stopped", marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_when_it_ends_half_way(
    past: str, start: Callable[[], Process], tmp_path: Path, how: signal.Signals, code: int
) -> None:
    before = with_database(past, everything)
    process = start()
    wait_until(lambda: len(list((tmp_path / "kept").rglob("*.gz"))) >= 2, 60, "two files")
    process.send_signal(how)
    assert process.wait(30) == code
    after = with_database(past, everything)
    gone = before.keys() - after.keys()
    assert 0 < len(gone) < 3 * TURNS
    assert {name: after[name] for name in after} == {name: before[name] for name in after}
    assert_kept(before, gone, tmp_path)
    assert start().wait(60) == 0
    after = with_database(past, everything)
    assert {name[0] for name in after} == {"agent_groups", "messaging_groups", "sessions"}
    assert_kept(before, before.keys() - after.keys(), tmp_path)


def assert_kept(before: Rows, gone: set[tuple[object, ...]], folder: Path) -> None:
    kept = {repr(row) for row in archived(folder / "kept")}
    assert {repr((name[0], as_archived(before[name]))) for name in gone} <= kept
