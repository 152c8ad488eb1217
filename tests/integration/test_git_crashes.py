"""Whoever is killed in the middle of an operation of the workbench, at whatever step: the next who calls it gets what
he would have got."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from adapters.git import Changed, Workbench
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.port import Command
from adapters.sandbox.process import Supervised
from tests.support.repositories import DyingSandbox, Killed, UserRepository
from tests.support.servers import private_folder, wait_until

pytestmark = pytest.mark.spec("O1")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def user(folder: Path) -> UserRepository:
    made = UserRepository(folder / "source")
    made.commit({"file": "one\n", "other": "x\n"})
    return made


# Of git: these write nothing, so that whoever dies at the second of two in a row leaves what he leaves at the first.
READING = {"version", "rev-parse", "merge-base", "diff-tree", "cat-file", "grep", "show", "for-each-ref"}


class Recording(Bubblewrap):
    """Remembers of each program it starts whether it only reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: list[bool] = []

    async def start(self, command: Command) -> Supervised:
        self.reading.append(command.argv[0] == "git" and not READING.isdisjoint(command.argv))
        return await super().start(command)


class Deaths:
    """`begun` is a workflow's folder. Whoever works in a copy of it is killed at one step, in the next at the next:
    at every one, or but for those that leave what the one before has left."""

    def __init__(self, begun: Path, steps: str) -> None:
        self._begun = begun
        self._early = "before" in steps
        self._every = "every" in steps

    async def of(self, work: Callable[[Workbench], Awaitable[object]]) -> AsyncIterator[Workbench]:
        """A workbench for each step, as whoever was killed at it has left it."""
        recording = Recording()
        if not self._every:
            await work(Workbench(self._copy("whole"), recording))
        for at in count(1):
            if recording.reading[at - 2 : at] == [True, True]:
                continue
            root = self._copy(f"dead-{at}")
            try:
                await work(Workbench(root, DyingSandbox(Bubblewrap(), at, self._early)))
            except Killed:
                yield Workbench(root, Bubblewrap())
            else:
                assert at > 4, "there are several steps"
                return

    def _copy(self, name: str) -> Path:
        root = self._begun.with_name(name)
        subprocess.run(["cp", "-a", str(self._begun), str(root)], check=True)
        return root


@pytest.fixture(params=["some", *(pytest.param(when, marks=pytest.mark.long) for when in ("every", "before every"))])
def steps(request: pytest.FixtureRequest) -> str:
    """At which steps somebody is killed, and whether before the step or during it."""
    return str(request.param)


@pytest.fixture
async def bench(folder: Path, user: UserRepository) -> Workbench:
    made = Workbench(folder / ".workflows" / "w1", Bubblewrap())
    await made.take_in(user.path)
    return made


@pytest.fixture
def deaths(bench: Workbench, steps: str) -> Deaths:
    return Deaths(bench.repository.parent, steps)


def tree_of(bench: Workbench, name: str) -> Path:
    return bench.repository.parent / "trees" / name


async def test_taking_in(folder: Path, user: UserRepository, steps: str) -> None:
    begun = folder / ".workflows" / "w1"
    begun.mkdir(parents=True)
    async for bench in Deaths(begun, steps).of(lambda bench: bench.take_in(user.path)):
        taken = await bench.take_in(user.path)
        assert (taken.commit, taken.branch, taken.files) == (user.head(), "main", 2)
        assert await bench.diff(taken.commit, taken.commit, 10) == ""


async def test_laying_out_a_tree(user: UserRepository, deaths: Deaths) -> None:
    base = user.head()
    async for bench in deaths.of(lambda bench: bench.tree("one", base)):
        tree = await bench.tree("one", base)
        assert sorted(path.name for path in tree.iterdir()) == [".git", "file", "other"]
        work = await bench.commit("one", "nothing")
        assert (work.commit, work.changes) == (base, ())


async def test_committing(bench: Workbench, user: UserRepository, deaths: Deaths) -> None:
    (await bench.tree("one", user.head()) / "file").write_text("changed\n")
    async for left in deaths.of(lambda bench: bench.commit("one", "x")):
        work = await left.commit("one", "x")
        assert work.changes == (Changed("file", 1, 1),)
        assert history(left, work.commit) == ["x", "a change"]
        assert await left.commit("one", "x") == work


async def in_conflict(bench: Workbench, user: UserRepository) -> str:
    """The commit that does not fit into the tree `two`."""
    for name in ("two", "one"):
        (await bench.tree(name, user.head()) / "file").write_text(f"changed by {name}\n")
        commit = (await bench.commit(name, name)).commit
    return commit


async def test_bringing(bench: Workbench, user: UserRepository, deaths: Deaths) -> None:
    theirs = await in_conflict(bench, user)
    async for left in deaths.of(lambda bench: bench.bring("two", theirs)):
        assert await left.bring("two", theirs) == ("file",)
        assert (tree_of(left, "two") / "file").read_text().count("=======") == 1
        assert (await left.commit("two", "x")).unresolved == ("file",)
        (tree_of(left, "two") / "file").write_text("both\n")
        done = await left.commit("two", "Both")
        assert history(left, done.commit) == ["Both", "one", "two", "a change"]


async def test_whoever_commits_goes_on_with_what_was_being_brought(
    bench: Workbench, user: UserRepository, deaths: Deaths
) -> None:
    theirs, begun = await in_conflict(bench, user), 0
    async for left in deaths.of(lambda bench: bench.bring("two", theirs)):
        work = await left.commit("two", "x")
        assert history(left, work.commit) == ["two", "a change"]
        begun += work.unresolved == ("file",)
        assert await left.bring("two", theirs) == ("file",)
    assert begun > 2


async def test_concluding_a_merge(bench: Workbench, user: UserRepository, deaths: Deaths) -> None:
    await bench.bring("two", await in_conflict(bench, user))
    (tree_of(bench, "two") / "file").write_text("both\n")
    async for left in deaths.of(lambda bench: bench.commit("two", "Both")):
        done = await left.commit("two", "Both")
        assert done.changes == (Changed("file", 1, 1),)
        assert history(left, done.commit) == ["Both", "one", "two", "a change"]
        (tree_of(left, "two") / "file").write_text("later\n")
        later = await left.commit("two", "Later")
        assert history(left, later.commit) == ["Later", "Both", "one", "two", "a change"]


WORK = """
import asyncio, sys
from pathlib import Path
from adapters.git import Workbench
from adapters.sandbox.bubblewrap import Bubblewrap

async def main():
    bench = Workbench(Path(sys.argv[1]), Bubblewrap())
    while True:
        await (bench.tree("one", sys.argv[3]) if sys.argv[2] == "tree" else bench.commit("one", "x"))

asyncio.run(main())
"""


@pytest.mark.parametrize("early", [pytest.param(True, id="before", marks=pytest.mark.long), False])
async def test_a_process_that_is_killed_with_its_git_at_work(folder: Path, user: UserRepository, early: bool) -> None:
    """`early`: while files are laid out; else while they are read."""
    base = user.commit({f"d{number % 40}/f{number}": f"{number}\n" * 50 for number in range(4000)})
    root = folder / ".workflows" / "w1"
    bench = Workbench(root, Bubblewrap())
    await bench.take_in(user.path)
    if not early:
        tree = await bench.tree("one", base)
        for path in tree.glob("d*/f*"):
            path.write_text("changed\n")
    lock = root / "repo.git/worktrees/one/index.lock"
    argv = [sys.executable, "-c", WORK, str(root), "tree" if early else "commit", base]
    with subprocess.Popen(argv, cwd=Path(__file__).parents[2], env={"PATH": os.environ["PATH"]}) as process:
        wait_until(lock.exists, 60, "git to be at work")
        process.send_signal(signal.SIGKILL)
    tree = await bench.tree("one", base)
    work = await bench.commit("one", "x")
    assert len(work.changes) == (0 if early else 4000)
    assert len(list(tree.glob("d*/f*"))) == 4000
    assert not lock.exists()


def history(bench: Workbench, commit: str) -> list[str]:
    argv = ["git", "-c", "safe.directory=*", "--git-dir", str(bench.repository), "log", "--format=%s"]
    log = subprocess.run([*argv, commit], capture_output=True, text=True, check=True).stdout.splitlines()
    # What was made in the same second has no order.
    return [*log[:-3], *sorted(log[-3:-1]), log[-1]] if len(log) > 3 else log
