"""A workflow's repository and its trees, by real git in real sandboxes: taken in, worked on, checked, merged."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import GitError
from adapters.git import Changed, Merged, Workbench, inspect
from adapters.git.names import check_branch
from adapters.sandbox.bubblewrap import NOBODY, Bubblewrap
from adapters.sandbox.docker import Docker
from adapters.sandbox.none import Unconfined
from adapters.sandbox.port import Command, Sandbox, SandboxLimits
from adapters.sandbox.running import run
from tests.support.docker_stand_in import IMAGE, make_docker
from tests.support.repositories import UserRepository
from tests.support.servers import private_folder

pytestmark = pytest.mark.spec("O1")

FIRST = {"README.md": "hello\n", "src/app.py": "one\ntwo\nthree\nfour\nfive\n"}


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=pytest.mark.long), "none"])
def sandbox(request: pytest.FixtureRequest, folder: Path) -> Sandbox:
    if request.param == "bubblewrap":
        return Bubblewrap()
    if request.param == "docker":
        return Docker(IMAGE, docker=str(make_docker(folder)))
    return Unconfined()


@pytest.fixture
def source(folder: Path) -> UserRepository:
    made = UserRepository(folder / "source")
    made.commit(FIRST, "The first\n\nwith more")
    return made


@pytest.fixture
def bench(folder: Path) -> Workbench:
    return Workbench(folder / ".workflows" / "w1", Bubblewrap())


def in_repository(bench: Workbench, *arguments: str) -> str:
    options = ("-c", "safe.directory=*", "--git-dir", str(bench.repository))
    done = subprocess.run(["git", *options, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def test_from_the_users_repository_to_a_merge(folder: Path, source: UserRepository, sandbox: Sandbox) -> None:
    bench = Workbench(folder / ".workflows" / "w1", sandbox)
    taken = await bench.take_in(source.path)
    assert (taken.commit, taken.branch, taken.subject, taken.files) == (source.head(), "main", "The first", 2)
    one, two = await bench.tree("one", taken.commit), await bench.tree("two", taken.commit)
    assert (one / "src/app.py").read_text() == FIRST["src/app.py"]
    (one / "src/app.py").write_text("ONE\ntwo\nthree\nfour\nfive\n")
    (one / "new.py").write_text("x\n")
    (two / "src/app.py").write_text("one\ntwo\nthree\nfour\nFIVE\n")
    first, second = await bench.commit("one", "First"), await bench.commit("two", "Second")
    assert first.changes == (Changed("new.py", 1, 0), Changed("src/app.py", 1, 1))
    assert first.unresolved == ()
    merged = await bench.merge(first.commit, second.commit, "Both")
    assert merged.commit is not None
    checked = await bench.check(merged.commit, "cat src/app.py; ls -A; echo wrong >&2", SandboxLimits(seconds=20))
    assert (checked.ok, checked.words) == (True, "exit code 0")
    assert checked.output == "ONE\ntwo\nthree\nfour\nFIVE\nREADME.md\nnew.py\nsrc\nwrong\n"
    published = await bench.publish(source.path, "result", merged.commit, None)
    assert (published.ok, published.found) == (True, merged.commit)
    assert source.git("log", "--format=%an <%ae>: %s", "-1", "result") == "Longshore <longshore@localhost>: Both"
    assert list((folder / ".workflows/w1/scratch").iterdir()) == []
    bench.remove()
    assert not (folder / ".workflows/w1").exists()
    bench.remove()


async def test_the_first_call_decides_which_commit_is_taken(bench: Workbench, source: UserRepository) -> None:
    first = await bench.take_in(source.path)
    source.commit({"README.md": "later\n"})
    assert await bench.take_in(source.path) == first
    assert await bench.take_in(source.path, "no-such-branch") == first


@pytest.mark.parametrize(("base", "branch"), [("other", "other"), ("v1", None), ("main~1", None), (None, "main")])
async def test_a_base_is_a_branch_a_tag_or_a_commit(
    bench: Workbench, source: UserRepository, base: str | None, branch: str | None
) -> None:
    source.git("tag", "-a", "v1", "-m", "a tag")
    source.git("branch", "other")
    source.commit({"README.md": "later\n"})
    taken = await bench.take_in(source.path, base)
    assert (taken.commit, taken.branch) == (source.head(f"{base or 'HEAD'}^{{commit}}"), branch)
    looked = await inspect(source.path, base)
    assert (looked.commit, looked.branch) == (taken.commit, branch)


async def test_a_detached_head_is_a_commit_without_a_branch(bench: Workbench, source: UserRepository) -> None:
    source.git("checkout", "-q", "--detach")
    assert (await bench.take_in(source.path)).branch is None
    assert (await inspect(source.path)).notes == (
        "the commit is not named by a branch: the result needs a branch of its own",
    )


async def test_what_is_not_committed_is_noted(source: UserRepository) -> None:
    assert (await inspect(source.path)).notes == ()
    source.write({"README.md": "changed\n"})
    assert (await inspect(source.path)).notes == (
        "1 file has changes that are not committed: builders will not see them",
    )
    source.write({"new": "x"})
    assert (await inspect(source.path)).notes[0].startswith("2 files have changes")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "is no folder"),
        (lambda path: path.mkdir(), "is no git repository"),
        (lambda path: path.write_text("x"), "is no folder"),
        (lambda path: UserRepository(path), "has no commit yet"),
        (lambda path: (UserRepository(path.parent), path.mkdir()), "inside a git repository: name its top folder"),
    ],
)
async def test_what_is_no_repository_with_commits_is_told(
    bench: Workbench, folder: Path, make: object, words: str
) -> None:
    place = folder / "elsewhere" / "place"
    place.parent.mkdir()
    assert callable(make)
    make(place)
    with pytest.raises(GitError, match=words) as error:
        await inspect(place)
    assert not error.value.retryable
    with pytest.raises(GitError, match=words):
        await bench.take_in(place)


@pytest.mark.parametrize("base", ["nowhere", "--all", "main..main", "main:README.md"])
async def test_a_base_that_names_no_commit_is_told(bench: Workbench, source: UserRepository, base: str) -> None:
    with pytest.raises(GitError, match=r"no branch, tag or commit|names no commit"):
        await inspect(source.path, base)
    with pytest.raises(GitError, match=r"no branch, tag or commit|names no commit"):
        await bench.take_in(source.path, base)


@pytest.mark.parametrize("kind", ["bare", "worktree", "shallow", "sha256"])
async def test_every_kind_of_repository_is_taken_and_given_back_to(
    bench: Workbench, folder: Path, source: UserRepository, kind: str
) -> None:
    source.commit({"later": "x\n"})
    place = folder / "kind"
    if kind == "worktree":
        source.git("worktree", "add", "-q", "-b", "side", str(place))
    elif kind == "sha256":
        made = UserRepository(place, object_format="sha256")
        made.commit(FIRST)
    else:
        how = "--bare" if kind == "bare" else "--depth=1"
        source.git("clone", "-q", how, f"file://{source.path}", str(place))
    taken = await bench.take_in(place)
    tree = await bench.tree("one", taken.commit)
    (tree / "new").write_text("x\n")
    work = await bench.commit("one", "New")
    assert work.changes == (Changed("new", 1, 0),)
    assert (await bench.publish(place, "result", work.commit, None)).ok
    assert source.git("show", "--format=", "--name-only", "result", folder=place) == "new"
    source.git("fsck", "--strict", folder=place)


async def test_a_tree_is_made_once_and_keeps_what_is_in_it(bench: Workbench, source: UserRepository) -> None:
    first = await bench.take_in(source.path)
    tree = await bench.tree("one", first.commit)
    (tree / "README.md").write_text("mine\n")
    assert await bench.tree("one", first.commit) == tree
    assert (tree / "README.md").read_text() == "mine\n"


async def test_a_tree_at_a_commit_that_is_not_there_is_refused(bench: Workbench, source: UserRepository) -> None:
    await bench.take_in(source.path)
    with pytest.raises(GitError, match="no commit"):
        await bench.tree("one", "a" * 40)
    with pytest.raises(GitError, match="no commit"):
        await bench.diff("a" * 40, source.head(), 100)
    with pytest.raises(GitError, match="no tree two"):
        await bench.commit("two", "x")
    with pytest.raises(GitError, match="no tree two"):
        await bench.bring("two", source.head())


async def test_a_folder_that_was_lost_is_laid_out_as_committed(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    tree = await bench.tree("one", base)
    (tree / "new").write_text("x\n")
    work = await bench.commit("one", "New")
    shutil.rmtree(tree)
    with pytest.raises(GitError, match="not on this machine"):
        await bench.commit("one", "x")
    assert await bench.tree("one", base) == tree
    assert (tree / "new").read_text() == "x\n"
    assert await bench.commit("one", "x") == work


async def test_nothing_to_commit_is_the_tip_as_it_is(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    tree = await bench.tree("one", base)
    work = await bench.commit("one", "nothing")
    assert (work.commit, work.changes) == (base, ())
    (tree / "new").write_text("x\n")
    done = await bench.commit("one", "New")
    assert await bench.commit("one", "again") == done


async def test_what_tools_leave_behind_is_not_committed(bench: Workbench, source: UserRepository) -> None:
    tree = await bench.tree("one", (await bench.take_in(source.path)).commit)
    for name in ("src/__pycache__/a.pyc", ".venv/bin/python", "node_modules/x/y.js", "conversations/1.md", "a.pyc"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("x")
    (tree / "src/conversations").mkdir()
    (tree / "src/conversations/real.py").write_text("x\n")
    assert (await bench.commit("one", "x")).changes == (Changed("src/conversations/real.py", 1, 0),)


@pytest.mark.parametrize("message", ["-x --amend\n\nmore", "", "\0", "\ud800 ü", "# no\x1b[2J comment"])
async def test_a_message_is_taken_as_it_is_but_for_what_steers_a_terminal(
    bench: Workbench, source: UserRepository, message: str
) -> None:
    tree = await bench.tree("one", (await bench.take_in(source.path)).commit)
    (tree / "new").write_text("x")
    work = await bench.commit("one", message)
    kept = in_repository(bench, "show", "-s", "--format=%B", work.commit)
    seen = message.replace("\0", "").strip().replace("\ud800", "\ufffd").replace("\x1b", "\ufffd")
    assert kept == (seen or "Work of an agent")


async def test_a_diff_is_text_and_bounded(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    tree = await bench.tree("one", base)
    (tree / "README.md").write_text("bye\n")
    (tree / "odd").write_bytes(b"\x1b[31m\xff\n")
    (tree / "picture").write_bytes(b"\0\1\2")
    (tree / ".gitattributes").write_text("picture diff\n")
    work = await bench.commit("one", "x")
    diff = await bench.diff(base, work.commit, 10_000)
    assert "-hello\n+bye\n" in diff
    assert "+\ufffd[31m\ufffd\n" in diff
    assert "\0" not in diff
    short = await bench.diff(base, work.commit, 100)
    assert short == diff[:100] + "\n[... the diff is longer, and cut here ...]\n"
    assert await bench.diff(base, base, 100) == ""


async def test_agents_see_history_through_their_tree_and_cannot_write_it(
    bench: Workbench, source: UserRepository
) -> None:
    tree = await bench.tree("one", (await bench.take_in(source.path)).commit)
    sandbox = Bubblewrap()
    commit = "git -c user.name=x -c user.email=x commit -q --allow-empty -m x"
    script = f"git log --format=%s; git status --short; {commit} || echo refused"
    (tree / "new").write_text("x")
    finished = await run(
        sandbox,
        Command(("/bin/sh", "-c", script), tree, readable=(bench.repository,), limits=SandboxLimits(seconds=20)),
    )
    assert finished.stdout == "The first\n?? new\nrefused\n", finished.stderr


async def test_everything_belongs_to_the_sandboxs_user(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    tree = await bench.tree("one", base)
    await bench.commit("one", "x")
    await bench.bring("one", (await bench.take_in(source.path)).commit)
    await bench.keep("one/round-1", base)
    assert in_repository(bench, "rev-parse", "refs/longshore/one/round-1") == base
    expected = NOBODY if os.geteuid() == 0 else os.geteuid()
    for top in (bench.repository, tree):
        for path in (top, *top.rglob("*")):
            assert path.lstat().st_uid == expected, path


async def test_the_users_files_stay_the_users(bench: Workbench, folder: Path) -> None:
    """Also when the worker is root's, whose git would leave files that the user cannot change."""
    source = UserRepository(folder / "theirs", owner=1234)
    source.commit(FIRST)
    tree = await bench.tree("one", (await bench.take_in(source.path)).commit)
    (tree / "new").write_text("x")
    work = await bench.commit("one", "x")
    assert (await bench.publish(source.path, "main", work.commit, source.head())).ok
    expected = 1234 if os.geteuid() == 0 else os.geteuid()
    assert {path.lstat().st_uid for path in source.path.rglob("*")} == {expected}
    assert (source.path / "new").read_text() == "x"


async def test_a_conflict_is_found_brought_resolved_and_merged(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    one, two = await bench.tree("one", base), await bench.tree("two", base)
    (one / "src/app.py").write_text("ONE\ntwo\nthree\nfour\nfive\n")
    (two / "src/app.py").write_text("Uno\ntwo\nthree\nfour\nfive\n")
    (two / "own").write_text("x\n")
    first, second = await bench.commit("one", "1"), await bench.commit("two", "2")
    assert await bench.merge(first.commit, second.commit, "m") == Merged(conflicts=("src/app.py",))
    assert await bench.bring("two", first.commit) == ("src/app.py",)
    marked = (two / "src/app.py").read_text()
    assert marked.count("<<<<<<<") == marked.count(">>>>>>>") == 1
    assert await bench.bring("two", first.commit) == ("src/app.py",), "called again it says the same"
    assert (two / "src/app.py").read_text() == marked
    with pytest.raises(GitError, match="another merge"):
        await bench.bring("two", second.commit)
    unresolved = await bench.commit("two", "x")
    assert (unresolved.commit, unresolved.unresolved) == (second.commit, ("src/app.py",))
    (two / "src/app.py").write_text(marked.replace("Uno\n", "").replace("<<<<<<<", "<"))
    assert (await bench.commit("two", "x")).unresolved == ("src/app.py",), "half the marks are marks"
    (two / "src/app.py").write_text("One\ntwo\nthree\nfour\nfive\n")
    resolved = await bench.commit("two", "Both")
    assert resolved.unresolved == ()
    assert resolved.changes == (Changed("own", 1, 0), Changed("src/app.py", 1, 1)), "since what was brought"
    assert in_repository(bench, "show", "-s", "--format=%P", resolved.commit) == f"{second.commit} {first.commit}"
    assert (await bench.merge(first.commit, resolved.commit, "m")).tree == resolved.tree
    assert await bench.commit("two", "again") == resolved
    assert await bench.bring("two", first.commit) == ()


async def test_what_fits_is_brought_without_conflict(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    one, two = await bench.tree("one", base), await bench.tree("two", base)
    (one / "1").write_text("x")
    (two / "2").write_text("x")
    first = await bench.commit("one", "1")
    with pytest.raises(GitError, match="not committed"):
        await bench.bring("two", first.commit)
    assert not (two / "1").exists()
    second = await bench.commit("two", "2")
    assert await bench.bring("two", first.commit) == ()
    assert (two / "1").exists()
    merged = await bench.commit("two", "m")
    assert in_repository(bench, "show", "-s", "--format=%P", merged.commit) == f"{second.commit} {first.commit}"
    assert merged.changes == (Changed("2", 1, 0),)


async def test_a_file_that_one_side_deleted_is_a_conflict_without_marks(
    bench: Workbench, source: UserRepository
) -> None:
    base = (await bench.take_in(source.path)).commit
    one, two = await bench.tree("one", base), await bench.tree("two", base)
    (one / "README.md").unlink()
    (two / "README.md").write_text("changed\n")
    first, second = await bench.commit("one", "1"), await bench.commit("two", "2")
    assert (await bench.merge(first.commit, second.commit, "m")).conflicts == ("README.md",)
    assert await bench.bring("two", first.commit) == ("README.md",)
    resolved = await bench.commit("two", "kept")
    assert resolved.unresolved == ()
    assert (await bench.merge(first.commit, resolved.commit, "m")).tree == resolved.tree


async def test_the_same_merge_is_the_same_commit(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    commits = []
    for name in ("one", "two"):
        (await bench.tree(name, base) / name).write_text("x")
        commits.append((await bench.commit(name, name)).commit)
    one, two = commits
    merged = await bench.merge(one, two, "m")
    # Whoever looked at the clock would get another one now.
    assert in_repository(bench, "show", "-s", "--format=%ct", str(merged.commit)) == max(
        in_repository(bench, "show", "-s", "--format=%ct", commit) for commit in commits
    )
    assert await bench.merge(one, two, "m") == merged
    assert (await bench.merge(one, base, "m")).commit == one, "it holds that already"


async def test_what_comes_after_is_merged_with_a_message_of_its_own(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    (await bench.tree("one", base) / "one").write_text("x")
    work = await bench.commit("one", "one")
    merged = await bench.merge(base, work.commit, "What was done")
    assert (merged.tree, merged.conflicts) == (work.tree, ())
    assert in_repository(bench, "show", "-s", "--format=%s %P", merged.commit) == f"What was done {base} {work.commit}"


async def test_many_trees_are_worked_on_at_once(folder: Path, source: UserRepository) -> None:
    root = folder / ".workflows" / "w1"
    base = (await Workbench(root, Bubblewrap()).take_in(source.path)).commit

    async def work(number: int) -> tuple[str, tuple[Changed, ...]]:
        bench = Workbench(root, Bubblewrap())
        tree = await bench.tree(f"t{number}", base)
        for count in range(3):
            (tree / f"file-{number}-{count}").write_text("x\n")
            done = await bench.commit(f"t{number}", f"{number} {count}")
        return done.commit, done.changes

    results = await asyncio.gather(*(work(number) for number in range(8)))
    for number, (_, changes) in enumerate(results):
        assert [change.path for change in changes] == [f"file-{number}-{count}" for count in range(3)]
    bench, merged = Workbench(root, Bubblewrap()), base
    for commit, _ in results:
        merged = (await bench.merge(merged, commit, "m")).commit or ""
    checked = await bench.check(merged, "ls file-* | wc -l", SandboxLimits(seconds=20))
    assert checked.output.strip() == "24"
    await bench.keep("merged", merged)
    assert in_repository(bench, "fsck", "--strict", "--connectivity-only") == ""


async def test_a_check_sees_the_commit_and_nothing_else(bench: Workbench, source: UserRepository, folder: Path) -> None:
    base = (await bench.take_in(source.path)).commit
    tree = await bench.tree("one", base)
    (tree / "node_modules").mkdir()
    (tree / "node_modules/cheat").write_text("x")
    (tree / "tests").mkdir()
    (tree / "tests/test.sh").write_text("exit 1\n")
    (tree / ".gitattributes").write_text("tests/** export-ignore\n")
    work = await bench.commit("one", "x")
    limits = SandboxLimits(seconds=20)
    checked = await bench.check(work.commit, "sh tests/test.sh", limits)
    assert (checked.ok, checked.words) == (False, "exit code 1")
    look = f"ls -A; test -e {bench.repository} || echo hidden; echo $HOME; env | grep -c GIT"
    assert (await bench.check(work.commit, look, limits)).output == (
        ".gitattributes\nREADME.md\nsrc\ntests\nhidden\n/tmp\n0\n"
    )
    (folder / "tools").mkdir()
    (folder / "tools/greet").write_text("hello")
    readable = (folder / "tools",)
    assert (await bench.check(base, f"cat {folder}/tools/greet", limits, readable)).output == "hello"
    assert (await bench.check(base, "touch made; ls made", limits)).ok
    assert "made" not in (await bench.check(base, "ls", limits)).output


async def test_a_check_that_takes_too_long_or_prints_too_much_is_told(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    slow = await bench.check(base, "echo begun; sleep 1000", SandboxLimits(seconds=1))
    assert (slow.ok, slow.output) == (False, "begun\n")
    assert "longer than the 1 s" in slow.words
    loud = await bench.check(base, "seq 100000; mkdir -m 0 closed", SandboxLimits(seconds=20))
    assert loud.ok
    assert loud.output.startswith("[... the beginning is left out ...]\n")
    assert loud.output.endswith("\n99999\n100000\n")
    assert len(loud.output) < 21_000
    assert list((bench.repository.parent / "scratch").iterdir()) == []


async def test_the_repositorys_own_check_is_guessed(bench: Workbench, source: UserRepository) -> None:
    source.commit({"tests/test_a.py": "import unittest\n", "odd\nname": ""})
    commit = (await bench.take_in(source.path)).commit
    assert await bench.check_command(commit) == "python3 -m unittest discover -s tests"


async def test_a_branch_that_has_moved_is_taken_again(bench: Workbench, source: UserRepository) -> None:
    base = (await bench.take_in(source.path)).commit
    assert await bench.take_again(source.path, "main") == base
    later = source.commit({"later": "x\n"})
    assert await bench.take_again(source.path, "main") == later
    assert await bench.take_again(source.path, "main") == later
    tree = await bench.tree("one", base)
    (tree / "new").write_text("x\n")
    work = await bench.commit("one", "x")
    assert await bench.bring("one", later) == ()
    brought = await bench.commit("one", "m")
    assert brought.changes == work.changes
    assert (await bench.publish(source.path, "main", brought.commit, later)).ok
    with pytest.raises(GitError, match="no branch 'gone' any more"):
        await bench.take_again(source.path, "gone")


async def test_without_a_git_in_the_sandbox_it_is_told(folder: Path, source: UserRepository) -> None:
    class Bare(Bubblewrap):
        def _environment(self, command: Command) -> dict[str, str]:
            return dict(super()._environment(command)) | {"PATH": "/nowhere"}

    with pytest.raises(GitError, match=r"no git in the sandbox: install git 2\.38 or newer"):
        await Workbench(folder / "w", Bare()).take_in(source.path)


@given(st.text(st.sampled_from("ab./-@{}~^:\\*? lock"), min_size=1, max_size=12))
def test_no_branch_is_taken_that_git_would_not_take(name: str) -> None:
    try:
        check_branch(name)
    except GitError:
        return
    with tempfile.TemporaryDirectory() as here:
        asked = subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], check=False, cwd=here)
    assert asked.returncode == 0, name
