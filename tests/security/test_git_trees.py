"""Trees in which an agent has done its worst: none of its programs run in our git, nothing outside is read or written,
and the user's repository is not harmed by what is put into it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.errors import GitError
from adapters.git import Changed, Workbench, commits, inspect
from adapters.sandbox.bubblewrap import NOBODY, Bubblewrap
from adapters.sandbox.none import Unconfined
from adapters.sandbox.port import Sandbox, SandboxLimits
from tests.support.repositories import UserRepository
from tests.support.servers import private_folder

pytestmark = pytest.mark.spec("O1", "T6")

EVIL = ("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "diff.external", "gpg.program",
        "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "diff.evil.command",
        "merge.evil.driver", "credential.helper", "core.alternateRefsCommand")  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def outside(folder: Path) -> Path:
    """Where a program that runs leaves its name."""
    made = folder / "outside"
    made.mkdir()
    made.chmod(0o777)
    return made


@pytest.fixture
def user(folder: Path) -> UserRepository:
    made = UserRepository(folder / "source")
    made.commit({"file": "one\n", "src/a": "a\n", "src/b": "b\n"})
    return made


@pytest.fixture(params=[Bubblewrap, Unconfined], ids=["bubblewrap", "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    made: Sandbox = request.param()
    return made


@pytest.fixture
def bench(folder: Path) -> Workbench:
    return Workbench(folder / ".workflows" / "w1", Bubblewrap())


def as_agent(tree: Path, script: str) -> None:
    """What an agent could do in its tree, as the sandbox's user."""
    who = NOBODY if os.geteuid() == 0 and tree.stat().st_uid != 0 else None
    env = {"PATH": os.defpath, "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["/bin/sh", "-ec", script], cwd=tree, env=env, check=True, user=who, group=who)


def hostile_settings(outside: Path) -> str:
    """For a shell: settings and hooks of the repository in $PWD/.git that leave their name."""
    program = f"touch {outside}/ran; touch /workspace/ran; cat"
    script = "".join(f"git config {key} '{program}'\n" for key in EVIL)
    for hook in ("pre-commit", "post-commit", "post-checkout", "post-index-change", "reference-transaction"):
        script += f"mkdir -p .git/hooks; printf '#!/bin/sh\\n{program}\\n' > .git/hooks/{hook}\n"
    return script + "chmod +x .git/hooks/*\n"


async def test_a_git_folder_of_the_agents_own_is_not_followed(
    folder: Path, outside: Path, user: UserRepository, sandbox: Sandbox
) -> None:
    bench = Workbench(folder / ".workflows" / "w1", sandbox)
    base = (await bench.take_in(user.path)).commit
    tree = await bench.tree("one", base)
    as_agent(tree, "rm .git; git init -q .\n" + hostile_settings(outside))
    as_agent(tree, "echo two > file; echo '* filter=evil diff=evil merge=evil' > .gitattributes")
    work = await bench.commit("one", "x")
    assert [change.path for change in work.changes] == [".gitattributes", "file"]
    await bench.diff(base, work.commit, 10_000)
    assert await bench.bring("one", base) == ()
    assert await bench.tree("one", base) == tree
    assert (tree / ".git").read_text() == f"gitdir: {bench.repository}/worktrees/one\n"
    assert list(outside.iterdir()) == []
    assert not (tree / "ran").exists()


async def test_repositories_within_the_tree_are_plain_folders(
    folder: Path, outside: Path, user: UserRepository, sandbox: Sandbox
) -> None:
    """Also where the user's repository has a submodule, which git would ask for its state."""
    other = UserRepository(folder / "other")
    other.commit({"x": "x\n"})
    user.git("submodule", "add", "-q", str(other.path), "sub")
    user.git("commit", "-q", "-m", "with a submodule")
    bench = Workbench(folder / ".workflows" / "w1", sandbox)
    base = (await bench.take_in(user.path)).commit
    tree = await bench.tree("one", base)
    for place in ("sub", "src", "new", "new/deeper"):
        as_agent(tree, f"mkdir -p {place}; cd {place}; git init -q .; echo mine > mine; git add mine\n"
                 "git -c user.name=a -c user.email=a@b.example commit -q -m x; echo more >> mine\n"
                 + hostile_settings(outside))  # fmt: skip
    as_agent(tree, "mkdir empty; git init -q empty; mkdir linked; ln -s ../src/.git linked/.git; echo x > linked/x")
    work = await bench.commit("one", "x")
    assert [change.path for change in work.changes] == ["linked/x", "new/deeper/mine", "new/mine", "src/mine"]
    assert await bench.commit("one", "x") == work
    assert (await bench.check(work.commit, "ls sub", SandboxLimits(seconds=20))).ok
    assert list(outside.iterdir()) == []
    assert list(tree.rglob("ran")) == []


async def test_links_are_kept_as_links_and_not_followed(bench: Workbench, user: UserRepository, outside: Path) -> None:
    (outside / "secret").write_text("secret\n")
    base = (await bench.take_in(user.path)).commit
    tree = await bench.tree("one", base)
    as_agent(tree, f"rm -r src; ln -s {outside} src; ln -s {outside}/secret leak; rm file; ln -s loop file")
    work = await bench.commit("one", "x")
    diff = await bench.diff(base, work.commit, 10_000)
    assert "secret\n" not in diff.replace("/secret\n", "")
    assert [change.path for change in work.changes] == ["file", "leak", "src", "src/a", "src/b"]
    other = await bench.tree("two", base)
    as_agent(other, f"rm -r src; ln -s {outside} src")
    first = await bench.commit("two", "links")
    third = await bench.tree("three", base)
    as_agent(third, "echo changed > src/a")
    changed = await bench.commit("three", "changed")
    assert (await bench.merge(first.commit, changed.commit, "m")).conflicts
    await bench.bring("two", changed.commit)
    await bench.commit("two", "m")
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]


async def test_filters_that_nobody_has_set_up_do_no_harm(bench: Workbench, user: UserRepository) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    user.commit({".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "a.bin": pointer})
    tree = await bench.tree("one", (await bench.take_in(user.path)).commit)
    assert (tree / "a.bin").read_text() == pointer
    as_agent(tree, "echo changed > a.bin")
    assert (await bench.commit("one", "x")).changes == (Changed("a.bin", 1, 3),)


async def test_odd_names_and_odd_files(bench: Workbench, user: UserRepository) -> None:
    tree = await bench.tree("one", (await bench.take_in(user.path)).commit)
    as_agent(tree, "mkfifo pipe; rm file; mkfifo file; mkdir -p closed/in; echo x > closed/in/x\n"
             "chmod 0 closed/in/x; chmod 0 closed/in closed; echo x > '-rf'; echo x > \"$(printf 'a\\nb')\"; \n"
             "echo x > \"$(printf 'n\\377')\"; echo x > 'für'; echo x > ':(top)*'; chmod 0 .")  # fmt: skip
    work = await bench.commit("one", "x")
    assert sorted(change.path for change in work.changes) == sorted(
        ["-rf", ":(top)*", "a\\nb", "closed/in/x", "file", "für", "n\ufffd"]
    )
    assert await bench.commit("one", "x") == work


@pytest.mark.parametrize("name", [".GIT/config", "git~1", "sub/.git "])
async def test_names_that_would_be_gits_own_elsewhere_are_told(
    bench: Workbench, user: UserRepository, name: str
) -> None:
    base = (await bench.take_in(user.path)).commit
    tree = await bench.tree("one", base)
    as_agent(tree, f"mkdir -p \"$(dirname '{name}')\"; echo x > '{name}'")
    with pytest.raises(GitError, match="invalid path") as error:
        await bench.commit("one", "x")
    assert not error.value.retryable
    as_agent(tree, f"rm '{name}'")
    assert (await bench.commit("one", "x")).commit == base


async def test_a_huge_file_is_not_committed(
    bench: Workbench, user: UserRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "LARGEST_FILE_BYTES", 3 << 20)
    base = (await bench.take_in(user.path)).commit
    tree = await bench.tree("one", base)
    as_agent(tree, "head -c 3145728 /dev/zero > fits; head -c 5242880 /dev/zero > \"$(printf 'big\\nfile')\"")
    with pytest.raises(GitError, match=r"big\\nfile has 5 MB, more than the 3 MB .*\.gitignore"):
        await bench.commit("one", "x")
    as_agent(tree, "rm big*")
    assert [change.path for change in (await bench.commit("one", "x")).changes] == ["fits"]


async def test_trees_do_not_reach_each_other_or_the_repository(bench: Workbench, user: UserRepository) -> None:
    """A `.git` file that names another tree's is not what git goes by."""
    base = (await bench.take_in(user.path)).commit
    one, two = await bench.tree("one", base), await bench.tree("two", base)
    as_agent(one, f"echo 'gitdir: {bench.repository}/worktrees/two' > .git; echo mine > file")
    work = await bench.commit("one", "x")
    assert [change.path for change in work.changes] == ["file"]
    assert (await bench.commit("two", "x")).commit == base
    assert (two / "file").read_text() == "one\n"


async def test_the_users_own_programs_do_not_run_over_what_agents_wrote(
    bench: Workbench, user: UserRepository, outside: Path
) -> None:
    """The agent chooses among the filters that are set up; hooks would run with what it has written."""
    base = (await bench.take_in(user.path)).commit
    tree = await bench.tree("one", base)
    as_agent(tree, "echo '* filter=evil diff=evil' > .gitattributes; echo two > file")
    work = await bench.commit("one", "x")
    subprocess.run(["/bin/sh", "-ec", hostile_settings(outside)], cwd=user.path, check=True)
    user.git("config", "filter.evil.required", "true")
    for hook in ("post-merge", "pre-merge-commit"):
        shutil.copy(user.path / ".git/hooks/post-checkout", user.path / ".git/hooks" / hook)
    assert (await inspect(user.path)).notes == ()
    assert await bench.take_again(user.path, "main") == base
    assert (await bench.publish(user.path, "side", work.commit, None)).ok
    assert (await bench.publish(user.path, "main", work.commit, base)).ok
    assert (user.path / "file").read_text() == "two\n"
    assert list(outside.iterdir()) == []


async def test_what_would_harm_whoever_checks_it_out_is_not_published(bench: Workbench, user: UserRepository) -> None:
    tree = await bench.tree("one", (await bench.take_in(user.path)).commit)
    as_agent(tree, "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = --upload-pack=touch /x\\n' > .gitmodules")
    work = await bench.commit("one", "x")
    with pytest.raises(GitError, match="gitmodules"):
        await bench.publish(user.path, "result", work.commit, None)
    assert user.git("branch", "--list", "result") == ""


async def test_nothing_of_the_workers_environment_reaches_git_on_the_host(
    bench: Workbench, user: UserRepository, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.which("git")
    wrapper = folder / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nenv >> {folder}/seen\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret of the worker")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    tree = await bench.tree("one", (await bench.take_in(user.path)).commit)
    (tree / "new").write_text("x")
    work = await bench.commit("one", "x")
    monkeypatch.delenv("GIT_DIR")
    assert (await bench.publish(user.path, "result", work.commit, None)).ok
    seen = (folder / "seen").read_text()
    assert "GIT_TERMINAL_PROMPT=0" in seen
    assert "secret" not in seen
    assert "GIT_DIR=" not in seen
