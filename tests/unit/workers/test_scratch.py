"""The copy of an agent's folder that a replay works on: bounded, and led nowhere by what the agent has put there."""

import os
from pathlib import Path

import pytest

from adapters.errors import WorkspaceError
from workers import scratch

pytestmark = pytest.mark.spec("M15")


def test_a_copy_follows_no_link_and_leaves_out_what_is_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    (folder / "hard").hardlink_to(secret)
    (folder / "plain").write_text("plain")
    (folder / "plain").chmod(0o640)
    os.mkfifo(folder / "pipe")
    copy = scratch.make_scratch(tmp_path, "demo", "s1")
    assert copy == scratch.make_scratch(tmp_path, "demo", "s1")
    assert (copy / "plain").read_text() == "plain"
    assert (copy / "plain").stat().st_mode & 0o777 == 0o640
    assert (copy / "link").is_symlink()
    assert (copy / "hard").read_text() == ""
    assert not (copy / "pipe").exists()
    assert [path.name for path in (tmp_path / scratch.FOLDER).iterdir()] == ["s1"]


@pytest.mark.parametrize("limits", [{"files": 4}, {"bytes": 49}], ids=["files", "bytes"])
def test_what_is_too_large_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    for number in range(5):
        (tmp_path / "demo" / f"{number}").mkdir(parents=True)
        (tmp_path / "demo" / f"{number}" / "file").write_text("x" * 10)
    scratch.check_size(tmp_path, "demo")
    whole = scratch._Left
    monkeypatch.setattr(scratch, "_Left", lambda: whole(**limits))
    for attempt in (scratch.check_size, lambda root, folder: scratch.make_scratch(root, folder, "s1")):
        with pytest.raises(WorkspaceError, match=r"too large to copy \(more than 20,000 files or 200 MB\)"):
            attempt(tmp_path, "demo")
    assert list((tmp_path / scratch.FOLDER).iterdir()) == []


def test_a_folder_of_folders_without_end_is_too_large(tmp_path: Path) -> None:
    deep = tmp_path / "demo"
    for _ in range(scratch.MAX_DEPTH + 1):
        deep = deep / "d"
    deep.mkdir(parents=True)
    with pytest.raises(WorkspaceError, match="too large to copy"):
        scratch.make_scratch(tmp_path, "demo", "s1")


def test_a_folder_that_is_not_here_is_not_looked_at(tmp_path: Path) -> None:
    scratch.check_size(tmp_path, "demo")
