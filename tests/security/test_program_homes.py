"""What an agent leaves in its home cannot make us read, write or keep anything else."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from adapters.errors import ProviderError
from adapters.providers.cli import home as homes
from adapters.providers.cli.home import pack, put, unpack

pytestmark = pytest.mark.spec("F9", "F10", "P12")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    made = tmp_path / "secret"
    made.mkdir()
    (made / "key.json").write_text("the worker's")
    return made


def test_what_is_packed_is_laid_out_elsewhere(home: Path, tmp_path: Path) -> None:
    put(home, ".agent/sessions/2026/one.jsonl", "said\n")
    put(home, ".agent/cache/huge.bin", "not wanted")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    unpack(pack(home, (".agent/sessions/*.jsonl",)), elsewhere)
    [there] = [path for path in elsewhere.rglob("*") if path.is_file()]
    assert there == elsewhere / ".agent/sessions/2026/one.jsonl"
    assert there.read_text() == "said\n"


def test_links_and_pipes_are_not_packed(home: Path, secret: Path, tmp_path: Path) -> None:
    (home / "s").mkdir()
    (home / "s/link.json").symlink_to(secret / "key.json")
    (home / "s/folder").symlink_to(secret)
    os.mkfifo(home / "s/pipe.json")
    (home / "s/real.json").write_text("{}")
    with tarfile.open(fileobj=io.BytesIO(pack(home, ("s/*",)))) as archive:
        assert archive.getnames() == ["s/real.json"]


def test_settings_are_written_where_an_agent_had_put_links(home: Path, secret: Path) -> None:
    (home / ".agent").symlink_to(secret)
    put(home, ".agent/key.json", "ours")
    assert (secret / "key.json").read_text() == "the worker's"
    assert (home / ".agent/key.json").read_text() == "ours"
    (home / ".agent/other.json").symlink_to(secret / "key.json")
    put(home, ".agent/other.json", "ours too")
    assert (secret / "key.json").read_text() == "the worker's"


def test_secrets_are_not_kept(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-ant-api03-" + "A1b2C3d4" * 10
    put(home, "s/one.jsonl", f'{{"said": "{key}"}}\n')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    unpack(pack(home, ("s/*",)), elsewhere)
    assert key not in (elsewhere / "s/one.jsonl").read_text()


def test_too_much_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "MAX_STATE", 1000)
    put(home, "s/one.jsonl", "x" * 600)
    put(home, "s/two.jsonl", "x" * 600)
    with pytest.raises(ProviderError, match="cannot be kept"):
        pack(home, ("s/*",))


@pytest.mark.parametrize("name", ["/etc/passwd", "../out", "a/../../out", ""])
def test_a_stored_state_that_leads_out_is_refused(home: Path, tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(ProviderError, match="no plain file"):
        unpack(packed.getvalue(), home)
    assert not (tmp_path / "out").exists()


def test_a_stored_state_with_a_link_is_refused(home: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(ProviderError, match="no plain file"):
        unpack(packed.getvalue(), home)
