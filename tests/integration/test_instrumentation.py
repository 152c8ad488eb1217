"""What a turn does to its workspace, seen from outside: real files, real git, a real sandbox."""

import asyncio
import ctypes
import os
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from adapters import inotify
from adapters.events import DiffAvailable, FilesTouched, Progress, ProviderEvent
from adapters.inotify import Inotify
from adapters.providers import instrumentation, walking, watching
from adapters.providers.git_summary import diff_summary
from adapters.providers.instrumentation import Instrumented
from adapters.providers.watching import Watching
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.none import Unconfined
from tests.support.servers import NOBODY, private_folder

pytestmark = pytest.mark.spec("P13")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def workspace(folder: Path) -> Path:
    made = folder / "workspace"
    made.mkdir()
    return made


class Seen:
    def __init__(self) -> None:
        self.events: list[ProviderEvent] = []

    def __call__(self, event: ProviderEvent) -> None:
        self.events.append(event)

    @property
    def paths(self) -> list[str]:
        return sorted({path for event in self.events if isinstance(event, FilesTouched) for path in event.paths})

    @property
    def summaries(self) -> list[str]:
        return [event.summary for event in self.events if isinstance(event, DiffAvailable)]

    @property
    def words(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Progress)]


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


@asynccontextmanager
async def watched(workspace: Path, seen: Seen) -> AsyncIterator[Watching]:
    async with Watching(workspace, seen) as watching:
        yield watching
    assert not Inotify._of_loops, "the last one out closes it"


async def test_a_draft_that_is_renamed_into_place_is_only_its_last_name(workspace: Path, seen: Seen) -> None:
    (workspace / "old.txt").write_text("old")
    async with watched(workspace, seen):
        (workspace / "poem.txt.tmp").write_text("cranes at dawn")
        (workspace / "poem.txt.tmp").rename(workspace / "poem.txt")
        (workspace / "old.txt").unlink()
    assert seen.paths == ["old.txt", "poem.txt"]


async def test_files_are_told_while_they_change(workspace: Path, seen: Seen) -> None:
    (workspace / "old").write_text("x")
    (workspace / "src").mkdir()
    async with watched(workspace, seen):
        (workspace / "src/new.py").write_text("x")
        await until(lambda: seen.paths == ["src/new.py"], "told")
        (workspace / "old").unlink()
        await until(lambda: "old" in seen.paths, "told")
    assert seen.paths == ["old", "src/new.py"]


async def test_what_happened_last_is_told_at_the_end(workspace: Path, seen: Seen) -> None:
    async with watched(workspace, seen):
        (workspace / "a/b/c").mkdir(parents=True)
        (workspace / "a/b/c/deep").write_text("x")
        (workspace / "b").write_text("x")
        (workspace / "b").rename(workspace / "c")
        assert seen.events == []
    assert seen.paths == ["a/b/c/deep", "c"]
    assert len(seen.events) == 1


async def test_a_folder_that_is_moved_is_known_by_its_new_name(workspace: Path, folder: Path, seen: Seen) -> None:
    (workspace / "one").mkdir()
    (workspace / "one/file").write_text("x")
    async with watched(workspace, seen):
        (workspace / "one").rename(workspace / "two")
        await until(lambda: "two/file" in seen.paths, "told")
        (workspace / "two/later").write_text("x")
        (workspace / "two").rename(folder / "outside")
        await until(lambda: "two/later" in seen.paths, "told")
        (folder / "outside/elsewhere").write_text("x")
    assert "one/later" not in seen.paths
    assert not [path for path in seen.paths if "elsewhere" in path]


async def test_what_tools_keep_for_themselves_is_passed_by(workspace: Path, seen: Seen) -> None:
    (workspace / ".git").mkdir()
    (workspace / "downloads").mkdir()
    async with watched(workspace, seen):
        for name in (".git/HEAD", ".outbox/x", "node_modules/x/index.js", "a/__pycache__/x.pyc", "downloads/x"):
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name).write_text("x")
    assert seen.paths == ["downloads/x", "node_modules/"]


async def test_links_are_not_followed_out(workspace: Path, folder: Path, seen: Seen) -> None:
    (folder / "outside/sub").mkdir(parents=True)
    (workspace / "link").symlink_to(folder / "outside")
    (workspace / "round").symlink_to(".")
    async with watched(workspace, seen):
        (workspace / "later").symlink_to(folder / "outside")
        (folder / "outside/sub/file").write_text("x")
        (folder / "outside/file").write_text("x")
    assert seen.paths == ["later"]


async def test_strange_names_are_shown_on_one_line(workspace: Path, seen: Seen) -> None:
    async with watched(workspace, seen):
        Path(os.fsdecode(os.fsencode(workspace) + b"/a\xff\nb")).write_text("x")
        (workspace / ("é" * 100)).write_text("x")
    assert seen.paths == ["a\\udcff\\nb", "é" * 100]


async def test_at_most_so_many_are_named(workspace: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_PENDING", 150)
    async with watched(workspace, seen):
        for number in range(412):
            (workspace / f"{number:04d}").touch()
    [event] = seen.events
    assert isinstance(event, FilesTouched)
    assert event.paths[:100] == tuple(sorted(event.paths[:100]))
    # CREATE and CLOSE_WRITE of those beyond the 150 cannot be told apart any more.
    assert event.paths[100] in ("… and 312 more", f"… and {312 + 262} more")
    assert len(event.paths) == 101


async def test_who_writes_all_the_time_is_told_of_less_and_less(
    workspace: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "DEBOUNCE_SECONDS", 0.02)
    async with watched(workspace, seen) as one:
        while one._gap < 0.5:
            (workspace / "log").write_text("x")
            await asyncio.sleep(0.005)
        assert len(seen.events) >= 3


async def test_a_workspace_that_vanishes_does_no_harm(workspace: Path, seen: Seen) -> None:
    async with watched(workspace, seen):
        shutil.rmtree(workspace)
        await until(lambda: seen.words, "told")
    assert seen.words == ["changes of files are no longer watched in this workspace: it was moved or removed"]


async def test_a_workspace_that_is_not_there_does_no_harm(workspace: Path, seen: Seen) -> None:
    async with watched(workspace / "no", seen):
        pass
    assert "it cannot be opened: No such file" in seen.words[0]


@pytest.mark.parametrize("limit", ["MOST_FOLDERS", "MOST_ENTRIES"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_one_that_is_too_large_is_not_watched(
    workspace: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch, limit: str, when: str
) -> None:
    monkeypatch.setattr(walking, limit, 20)
    monkeypatch.setattr(watching, "DEBOUNCE_SECONDS", 0.02)

    def fill() -> None:
        for number in range(30):
            (workspace / f"new/{number}").mkdir(parents=True)

    if when == "before":
        fill()
    async with watched(workspace, seen):
        if when == "after":
            fill()
        await until(lambda: seen.words, "told")
    assert "it holds more than 20 f" in seen.words[0]
    assert len(seen.words) == 1


@pytest.mark.parametrize("call", ["inotify_init1", "inotify_add_watch"])
async def test_where_no_more_is_watched_it_is_looked_at(
    workspace: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As when fs.inotify.max_user_instances or max_user_watches is reached."""

    class Spent:
        def __init__(self, real: object) -> None:
            self._real = real

        def __getattr__(self, name: str) -> object:
            return (lambda *_: -1) if name == call else getattr(self._real, name)

    real = ctypes.CDLL(None, use_errno=True)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Spent(real))
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.05)
    (workspace / "a").mkdir()
    async with watched(workspace, seen):
        (workspace / "a/new").write_text("x")
        await until(lambda: "a/new" in seen.paths, "told")
        (workspace / "a/last").write_text("x")
    assert seen.paths == ["a/last", "a/new"]
    assert seen.words == []


async def test_what_the_kernel_could_not_keep_is_looked_for(
    workspace: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "DEBOUNCE_SECONDS", 0.02)
    (workspace / "a").mkdir()
    (workspace / "a/before").write_text("x")
    async with watched(workspace, seen) as one:
        await asyncio.sleep(0.05)
        one._seen = time.time_ns()
        assert one._inotify is not None
        one._inotify.forget(one, "a")
        (workspace / "a/lost").write_text("x")
        one._inotify._tell(-1, inotify._OVERFLOW, "")
        await until(lambda: seen.paths == ["a/lost"], "found")
        (workspace / "a/told").write_text("x")
        await until(lambda: "a/told" in seen.paths, "watched again")


async def test_two_sessions_of_one_agent_see_the_same(workspace: Path, seen: Seen) -> None:
    other = Seen()
    async with Watching(workspace, seen):
        async with Watching(workspace, other):
            (workspace / "a").write_text("x")
        (workspace / "b").write_text("x")
    assert (seen.paths, other.paths) == (["a", "b"], ["a"])


async def test_many_sessions_take_one_instance_and_one_thread(folder: Path) -> None:
    def instances() -> int:
        return sum(os.path.realpath(f"/proc/self/fd/{fd}").endswith("inotify") for fd in os.listdir("/proc/self/fd"))

    seens = [Seen() for _ in range(50)]
    async with AsyncExitStack() as opened:
        for number, seen in enumerate(seens):
            (folder / f"{number}").mkdir()
            await opened.enter_async_context(Watching(folder / f"{number}", seen))
        assert instances() == 1
        assert sum(thread.name.startswith("longshore-files") for thread in threading.enumerate()) == 1
        for number in range(50):
            (folder / f"{number}/mine").write_text("x")
    assert [seen.paths for seen in seens] == [["mine"]] * 50
    await until(lambda: instances() == 0, "closed")


def git(workspace: Path, *arguments: str) -> None:
    """As the user whose repository it is."""
    who = NOBODY if os.geteuid() == 0 else None
    env = {"PATH": os.defpath, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main")
    subprocess.run(
        ["git", *names, *arguments], cwd=workspace, env=env, check=True, capture_output=True, user=who, group=who
    )


@pytest.fixture
def repository(workspace: Path) -> Path:
    if os.geteuid() == 0:
        shutil.chown(workspace, NOBODY, NOBODY)
    git(workspace, "init")
    return workspace


def committed(repository: Path) -> None:
    (repository / "file").write_text("one\ntwo\n")
    git(repository, "add", "file")
    git(repository, "commit", "-m", "first")


async def test_a_difference_is_summed_up(repository: Path) -> None:
    sandbox = Bubblewrap()
    assert await diff_summary(sandbox, repository) == "no changes"
    (repository / "file").write_text("one\ntwo\n")
    git(repository, "add", "file")
    assert await diff_summary(sandbox, repository) == "1 file changed, 2 insertions(+)"
    git(repository, "commit", "-m", "first")
    (repository / "file").write_text("one\nthree\n")
    (repository / "a\nb").write_text("x")
    assert await diff_summary(sandbox, repository) == "1 file changed, 1 insertion(+), 1 deletion(-), 1 untracked"


async def test_where_there_is_no_repository_there_is_none(workspace: Path, folder: Path) -> None:
    assert await diff_summary(Bubblewrap(), workspace) is None
    (workspace / ".git").write_text("gitdir: /elsewhere")
    assert await diff_summary(Bubblewrap(), workspace) is None


async def test_a_turn_tells_of_files_and_of_the_difference(
    repository: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instrumentation, "REST_SECONDS", 0.05)
    committed(repository)
    async with Instrumented(Bubblewrap(), repository, seen):
        (repository / "file").write_text("one\n")
        await until(lambda: seen.summaries, "summed up")
        (repository / "new").write_text("x")
    assert seen.summaries == ["1 file changed, 1 deletion(-)", "1 file changed, 1 deletion(-), 1 untracked"]
    assert seen.paths == ["file", "new"]


async def test_a_turn_that_changes_nothing_says_nothing(repository: Path, seen: Seen) -> None:
    committed(repository)
    async with Instrumented(Bubblewrap(), repository, seen):
        pass
    async with Instrumented(Bubblewrap(), repository, seen):
        (repository / "file").write_text("one\ntwo\n")
    assert (seen.summaries, seen.paths) == ([], ["file"])


async def test_without_a_sandbox_there_is_no_summary(repository: Path, seen: Seen) -> None:
    async with Instrumented(None, repository, seen):
        (repository / "file").write_text("x")
    assert (seen.summaries, seen.paths) == ([], ["file"])


async def test_who_cancels_a_turn_still_hears_of_its_files(repository: Path, seen: Seen) -> None:
    inside = asyncio.Event()

    async def turn() -> None:
        async with Instrumented(Bubblewrap(), repository, seen):
            (repository / "file").write_text("x")
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(turn())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (seen.summaries, seen.paths) == ([], ["file"])
    assert not Inotify._of_loops


@pytest.mark.spec("P13", "T6")
async def test_a_hostile_repository_runs_nothing_outside(repository: Path, folder: Path) -> None:
    """Filters cannot be switched off by name: the one that runs finds itself in the sandbox."""
    outside = folder / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    committed(repository)
    script = repository / "evil"
    script.write_text(f'#!/bin/sh\ntouch {outside}/$1\nhostname > "$PWD/ran-$1"\ncat\n')
    script.chmod(0o755)
    (repository / ".gitattributes").write_text("file diff=evil filter=evil\n")
    for key, value in {
        "core.fsmonitor": "/workspace/evil fsmonitor",
        "core.pager": "/workspace/evil pager",
        "core.hooksPath": "/workspace/hooks",
        "diff.external": "/workspace/evil external",
        "diff.evil.textconv": "/workspace/evil textconv",
        "diff.evil.command": "/workspace/evil command",
        "filter.evil.clean": "/workspace/evil clean",
        "credential.helper": "!/workspace/evil helper",
    }.items():
        git(repository, "config", key, value)
    (repository / "file").write_text("one\nthree\n")
    summary = await diff_summary(Bubblewrap(), repository)
    assert summary is not None
    assert summary.startswith("1 file changed, 1 insertion(+), 1 deletion(-)")
    assert {path.name: path.read_text() for path in repository.glob("ran-*")} == {"ran-clean": "sandbox\n"}
    assert list(outside.iterdir()) == []


@pytest.mark.spec("P13", "T6")
async def test_where_nothing_is_confined_no_repository_is_asked(repository: Path, folder: Path, seen: Seen) -> None:
    """Its filters would run on the host, which whoever chose that has allowed to agents, not to our looking."""
    committed(repository)
    (repository / ".gitattributes").write_text("file filter=evil\n")
    git(repository, "config", "filter.evil.clean", f"touch {folder}/ran; cat")
    (repository / "file").write_text("one\nthree\n")
    assert await diff_summary(Unconfined(), repository) is None
    async with Instrumented(Unconfined(), repository, seen):
        (repository / "file").write_text("one\nfour\n")
        await until(lambda: seen.paths, "files are told all the same")
    assert seen.summaries == []
    assert not (folder / "ran").exists()
