"""Our commits on a branch of the user's repository: never over anything, and again with the same answer."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.errors import GitError
from adapters.git import Published, Workbench
from adapters.git.host import HostRepository
from adapters.sandbox.bubblewrap import Bubblewrap
from tests.support.repositories import Killed, UserRepository
from tests.support.servers import private_folder

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


@pytest.fixture
def bench(folder: Path) -> Workbench:
    return Workbench(folder / ".workflows" / "w1", Bubblewrap())


async def built(bench: Workbench, user: UserRepository) -> str:
    """A commit of ours: `file` is changed and `new` is new."""
    tree = await bench.tree("one", (await bench.take_in(user.path)).commit)
    (tree / "file").write_text("two\n")
    (tree / "new").write_text("x\n")
    return (await bench.commit("one", "Ours")).commit


async def test_a_branch_that_is_nowhere_is_made(bench: Workbench, user: UserRepository) -> None:
    commit = await built(bench, user)
    before = user.git("for-each-ref")
    assert await bench.publish(user.path, "longshore/fix", commit, None) == Published(True, commit)
    assert user.head("longshore/fix") == commit
    assert await bench.publish(user.path, "longshore/fix", commit, None) == Published(True, commit)
    assert [line for line in user.git("for-each-ref").splitlines() if "longshore/fix" not in line] == [before]
    assert user.git("status", "--short") == ""
    assert not (user.path / ".git/FETCH_HEAD").exists()
    user.git("fsck", "--strict")


async def test_a_branch_that_exists_already_is_left_alone(bench: Workbench, user: UserRepository) -> None:
    user.git("branch", "taken")
    there = user.head()
    assert await bench.publish(user.path, "taken", await built(bench, user), None) == Published(False, there)
    assert user.head("taken") == there


async def test_a_branch_that_somebody_moved_is_left_alone(bench: Workbench, user: UserRepository) -> None:
    user.git("checkout", "-q", "-b", "elsewhere")
    base = user.head()
    commit = await built(bench, user)
    user.git("checkout", "-q", "main")
    moved = user.commit({"theirs": "x\n"})
    assert await bench.publish(user.path, "main", commit, base) == Published(False, moved)
    user.git("branch", "-D", "elsewhere")
    assert await bench.publish(user.path, "elsewhere", commit, base) == Published(False, None)


async def test_a_branch_is_moved_only_forwards(bench: Workbench, user: UserRepository) -> None:
    commit = await built(bench, user)
    user.git("checkout", "-q", "-b", "side")
    side = user.commit({"theirs": "x\n"})
    user.git("checkout", "-q", "main")
    with pytest.raises(GitError, match="would lose commits"):
        await bench.publish(user.path, "side", commit, side)
    assert user.head("side") == side


async def test_what_the_user_did_on_top_is_no_contradiction(bench: Workbench, user: UserRepository) -> None:
    commit = await built(bench, user)
    await bench.publish(user.path, "result", commit, None)
    user.git("checkout", "-q", "result")
    later = user.commit({"on top": "x\n"})
    assert await bench.publish(user.path, "result", commit, None) == Published(True, later)
    assert user.head("result") == later


async def test_a_branch_that_is_checked_out_clean_goes_forward_with_its_files(
    bench: Workbench, user: UserRepository
) -> None:
    base, commit = user.head(), await built(bench, user)
    user.write({"notes": "not git's"})
    assert await bench.publish(user.path, "main", commit, base) == Published(True, commit)
    assert ((user.path / "file").read_text(), (user.path / "new").read_text()) == ("two\n", "x\n")
    assert user.git("status", "--short") == "?? notes"
    assert user.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert await bench.publish(user.path, "main", commit, base) == Published(True, commit)


@pytest.mark.parametrize("staged", [False, True])
async def test_a_branch_that_is_checked_out_dirty_is_left_alone(
    bench: Workbench, user: UserRepository, staged: bool
) -> None:
    base, commit = user.head(), await built(bench, user)
    user.write({"other": "mine\n"})
    if staged:
        user.git("add", "-A")
    with pytest.raises(GitError, match=r"is checked out in .*commit or stash them") as error:
        await bench.publish(user.path, "main", commit, base)
    assert not error.value.retryable
    assert user.head("main") == base
    assert ((user.path / "other").read_text(), (user.path / "file").read_text()) == ("mine\n", "one\n")
    assert await bench.publish(user.path, "result", commit, None) == Published(True, commit)
    assert (user.path / "other").read_text() == "mine\n"


async def test_an_untracked_file_is_not_written_over(bench: Workbench, user: UserRepository) -> None:
    base, commit = user.head(), await built(bench, user)
    user.write({"new": "mine\n"})
    with pytest.raises(GitError, match="could not be brought"):
        await bench.publish(user.path, "main", commit, base)
    assert (user.head("main"), (user.path / "new").read_text()) == (base, "mine\n")
    assert (user.path / "file").read_text() == "one\n"


async def test_a_branch_in_another_worktree_goes_forward_there(
    bench: Workbench, user: UserRepository, folder: Path
) -> None:
    base, commit = user.head(), await built(bench, user)
    user.git("worktree", "add", "-q", "-b", "side", str(folder / "beside\nit"))
    assert await bench.publish(user.path, "side", commit, base) == Published(True, commit)
    assert (folder / "beside\nit" / "file").read_text() == "two\n"
    assert (user.path / "file").read_text() == "one\n"


async def test_a_lock_of_the_users_may_pass(bench: Workbench, user: UserRepository) -> None:
    base, commit = user.head(), await built(bench, user)
    (user.path / ".git/index.lock").touch()
    with pytest.raises(GitError, match=r"index\.lock") as error:
        await bench.publish(user.path, "main", commit, base)
    assert error.value.retryable
    (user.path / ".git/index.lock").unlink()
    assert (await bench.publish(user.path, "main", commit, base)).ok


async def test_a_name_that_does_not_fit_beside_others_is_told(bench: Workbench, user: UserRepository) -> None:
    commit = await built(bench, user)
    with pytest.raises(GitError, match="exists") as error:
        await bench.publish(user.path, "main/sub", commit, None)
    assert not error.value.retryable
    for name in ("-f", "a..b", "HEAD", "../x"):
        with pytest.raises(GitError, match="no name for a branch"):
            await bench.publish(user.path, name, commit, None)


async def test_of_two_at_once_one_moves_the_branch(bench: Workbench, user: UserRepository) -> None:
    ours = await built(bench, user)
    tree = await bench.tree("two", user.head())
    (tree / "file").write_text("three\n")
    theirs = (await bench.commit("two", "Theirs")).commit
    answers = await asyncio.gather(*(bench.publish(user.path, "result", one, None) for one in (ours, theirs)))
    assert sorted(answer.ok for answer in answers) == [False, True]
    assert {answer.found for answer in answers} == {user.head("result")}


async def test_objects_that_arrived_without_their_branch_do_no_harm(
    bench: Workbench, user: UserRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies between the two."""
    commit = await built(bench, user)
    real = HostRepository.git

    async def dying(self: HostRepository, *arguments: str, **options: object) -> tuple[int, str]:
        if arguments[0] == "update-ref":
            raise Killed
        return await real(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(HostRepository, "git", dying)
    with pytest.raises(Killed):
        await bench.publish(user.path, "result", commit, None)
    monkeypatch.undo()
    assert user.git("branch", "--list", "result") == ""
    assert await bench.publish(user.path, "result", commit, None) == Published(True, commit)
