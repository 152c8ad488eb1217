"""An agent's folder from outside: what is read and written there, with the kernel's help and without."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapters import openat2, workspace
from adapters.errors import WorkspaceError
from adapters.workspace import Workspace
from adapters.workspace_files import Entry
from adapters.workspace_paths import shown

pytestmark = pytest.mark.spec("T5")


@pytest.fixture(params=["openat2", "steps"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs both ways, whatever the machine has by itself; without the kernel's, on the other only."""
    if request.param == "steps":
        monkeypatch.setattr(openat2, "available", lambda: False)
    elif not openat2.available():
        pytest.skip("this kernel has no openat2")
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (folder := tmp_path / "demo").mkdir()
    return folder


@pytest.fixture
def place(root: Path) -> Workspace:
    return Workspace(root)


def test_reading_and_writing(place: Workspace, root: Path) -> None:
    place.write("notes/deep/a.md", b"0123456789")
    assert place.read("/workspace/notes/deep/a.md", limit=4, offset=3) == b"3456"
    assert place.read("notes/../notes/./deep//a.md", limit=100) == b"0123456789"
    assert place.size("notes/deep/a.md") == 10
    place.write("notes/deep/a.md", b"new")
    assert (root / "notes" / "deep" / "a.md").read_bytes() == b"new"
    assert [path.name for path in (root / "notes" / "deep").iterdir()] == ["a.md"], "no draft is left"


def test_a_missing_workspace_is_made_by_the_first_write_only(tmp_path: Path) -> None:
    place = Workspace(tmp_path / "new" / "one")
    with pytest.raises(WorkspaceError, match="there is no 'a' in your workspace; list_files"):
        place.read("a", limit=1)
    assert not (tmp_path / "new").exists()
    place.write("a", b"x")
    assert place.read("a", limit=1) == b"x"


def test_a_replaced_file_keeps_its_permissions(place: Workspace, root: Path) -> None:
    place.write("run.sh", b"")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o644
    (root / "run.sh").chmod(0o4750)
    place.write("run.sh", b"#!/bin/sh\n")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o750, "but not what makes it run as its owner"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_writes_belongs_to_the_workspaces_owner(place: Workspace, root: Path) -> None:
    os.chown(root, 1234, 2345)
    place.write("a/b/c", b"")
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (root / "a", root / "a/b", root / "a/b/c")}
    assert owners == {(1234, 2345)}


def test_adding_never_replaces(place: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.add("log/a.md", b"one")
    assert not place.add("log/a.md", b"two")
    (root / "log" / "b.md").symlink_to("nowhere")
    assert not place.add("log/b.md", b"two")
    monkeypatch.setattr(workspace, "status_of", lambda *_: None)  # it appears just after it was looked for
    assert not place.add("log/a.md", b"two")
    without_rename = SimpleNamespace(syscall=openat2._libc().syscall)
    monkeypatch.setattr(openat2, "_libc", lambda: without_rename)
    assert not place.add("log/a.md", b"two")
    assert place.add("log/c.md", b"three")
    assert sorted(os.listdir(root / "log")) == ["a.md", "b.md", "c.md"]
    assert place.read("log/a.md", limit=10) == b"one"
    assert place.read("log/c.md", limit=10) == b"three"


def test_a_write_can_insist_on_what_it_replaces(place: Workspace, root: Path) -> None:
    place.write("a", b"one")
    data, version = place.read_version("a", limit=10)
    assert data == b"one"
    (root / "a").write_bytes(b"two")
    with pytest.raises(WorkspaceError, match="'a' was changed by somebody else meanwhile, and was left so"):
        place.write("a", b"three", replacing=version)
    assert (root / "a").read_bytes() == b"two"
    assert os.listdir(root) == ["a"]


def test_links_within(place: Workspace, root: Path, way: str) -> None:
    (root / "data").mkdir()
    (root / "data" / "a").write_bytes(b"inside")
    (root / "file").symlink_to("data/a")
    (root / "folder").symlink_to("data")
    (root / "data" / "up").symlink_to("../data/a")
    if way == "openat2":
        assert {place.read(path, limit=10) for path in ("file", "folder/a", "data/up")} == {b"inside"}
        place.write("folder/b", b"through a folder")
        assert (root / "data" / "b").exists()
    else:
        for path in ("file", "folder/a", "data/up"):
            with pytest.raises(WorkspaceError, match="goes through a link that is not followed"):
                place.read(path, limit=10)
    place.write("file", b"new")
    assert not (root / "file").is_symlink()
    assert (root / "data" / "a").read_bytes() == b"inside", "a link is replaced, not written through"


def test_entries_and_walk(place: Workspace, root: Path) -> None:
    place.write("b/c/d", b"12")
    place.write("a", b"1")
    (root / "b" / "loop").symlink_to("..")
    os.mkfifo(root / "pipe")
    assert place.entries() == [Entry("a", "file", 1), *place.entries()[1:2], Entry("pipe", "other", 0)]
    assert [(entry.path, entry.kind) for entry in place.entries("b")] == [("b/c", "folder"), ("b/loop", "link")]
    assert [entry.path for entry in place.walk()] == ["a", "b", "b/c", "b/c/d", "b/loop", "pipe"]
    assert [entry.path for entry in place.walk("b")] == ["b/c", "b/c/d", "b/loop"]
    assert len(list(place.walk(limit=3))) == 3
    assert place.entry("b/loop").kind == "link"
    assert place.entry(".").kind == "folder"


def test_a_walk_ends_in_the_depth(place: Workspace, root: Path) -> None:
    here = os.open(root, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert len(list(place.walk())) == workspace.MAX_DEPTH
    assert len(list(place.walk("d/d"))) == workspace.MAX_DEPTH


def test_removing(place: Workspace, root: Path) -> None:
    place.write("a", b"")
    (root / "link").symlink_to("a")
    place.remove("link")
    assert (root / "a").exists()
    place.remove("a")
    (root / "folder").mkdir()
    with pytest.raises(WorkspaceError, match="'folder' is a folder, not a file"):
        place.remove("folder")
    with pytest.raises(WorkspaceError, match="there is no 'a'"):
        place.remove("a")


def test_copying_out(place: Workspace, root: Path, tmp_path: Path) -> None:
    place.write("a", b"x" * 3_000_000)
    assert place.copy_out("a", tmp_path / "out", 3_000_000) == 3_000_000
    assert (tmp_path / "out").read_bytes() == b"x" * 3_000_000
    with pytest.raises(WorkspaceError, match="'a' has 3,000,000 bytes; at most 2,999,999 can be sent"):
        place.copy_out("a", tmp_path / "out2", 2_999_999)
    with (tmp_path / "out3").open("wb") as file:
        assert place.copy_out("a", file.fileno(), 3_000_000) == 3_000_000
    with pytest.raises(FileExistsError):
        place.copy_out("a", tmp_path / "out", 3_000_000)
    assert sorted(os.listdir(tmp_path)) == ["demo", "out", "out3"]


def test_what_grows_while_it_is_copied_is_refused(
    place: Workspace, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("a", b"x" * 10)
    real = os.read

    def grow(fd: int, size: int) -> bytes:
        with (root / "a").open("ab") as file:
            file.write(b"more")
        return real(fd, size)

    monkeypatch.setattr(os, "read", grow)
    with pytest.raises(WorkspaceError, match="grew while it was copied"):
        place.copy_out("a", tmp_path / "out", 12)
    assert not (tmp_path / "out").exists()


def test_text_of_what_cannot_be_read_is_none(place: Workspace, root: Path) -> None:
    (root / "folder").mkdir()
    (root / "latin").write_bytes(b"caf\xe9")
    assert place.text("folder", limit=1) is place.text("gone", limit=1) is place.text("../x", limit=1) is None
    assert place.text("latin", limit=100) == "caf\N{REPLACEMENT CHARACTER}"


def test_a_file_whose_name_vanishes_as_it_is_opened(
    place: Workspace, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hard link to a file from elsewhere, removed before the names are counted: one name is left, and not ours."""
    (tmp_path / "secret").write_bytes(b"secret")
    os.link(tmp_path / "secret", root / "a")
    real = openat2.open_beneath

    def open_and_unlink(root_fd: int, path: str, flags: int, mode: int = 0) -> int:
        fd = real(root_fd, path, flags, mode)
        (root / "a").unlink()
        os.link(tmp_path / "other", root / "a")
        return fd

    (tmp_path / "other").write_bytes(b"another secret")
    monkeypatch.setattr(workspace, "open_beneath", open_and_unlink)
    with pytest.raises(WorkspaceError, match="hard link"):
        place.read("a", limit=100)


def test_errors_of_the_system_are_told_in_words(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(code: int) -> Callable[..., int]:
        def fail(*_: object) -> int:
            raise OSError(code, os.strerror(code))

        return fail

    for code, words in ((errno.EACCES, "permissions"), (errno.EAGAIN, "try again"), (errno.EIO, "Input/output error")):
        monkeypatch.setattr(workspace, "open_beneath", fails(code))
        with pytest.raises(WorkspaceError, match=words):
            place.read("a", limit=1)


def test_no_descriptor_is_left_open(place: Workspace, root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        place.write("a/b/c", b"x")
        place.read("a/b/c", limit=1)
        next(walk := place.walk())
        walk.close()  # type: ignore[attr-defined]
        for wrong in ("a/b", "a/b/c/d", "gone/x", "../x"):
            with pytest.raises(WorkspaceError):
                place.read(wrong, limit=1)
        with pytest.raises(WorkspaceError):
            place.write("a/b/c/d", b"")
    assert len(os.listdir("/proc/self/fd")) == before


def test_readers_never_see_half_a_file(place: Workspace) -> None:
    place.write("a", b"0" * 200_000)
    seen = set()
    done = threading.Event()

    def write() -> None:
        for n in range(300):
            place.write("a", b"%d" % (n % 10) * 200_000)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        data = place.read("a", limit=1_000_000)
        seen.add((len(data), len(set(data))))
    writer.join()
    assert seen == {(200_000, 1)}


def test_names_are_shown_on_one_line() -> None:
    assert shown("a\nb\x1b[31m\u202e\udcff é") == r"a\nb\x1b[31m\u202e\udcff é"


def test_a_path_with_a_nul_is_not_cut_short() -> None:
    with pytest.raises(ValueError, match="NUL"):
        openat2.open_beneath(0, "a\0b", os.O_RDONLY)


def test_a_kernel_that_refuses_the_call_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def refused(*_: object) -> int:
        raise PermissionError(errno.EPERM, "a container runtime that does not know the call")

    monkeypatch.setattr(openat2, "_open_by_kernel", refused)
    openat2.available.cache_clear()
    try:
        assert not openat2.available()
    finally:
        monkeypatch.undo()
        openat2.available.cache_clear()
