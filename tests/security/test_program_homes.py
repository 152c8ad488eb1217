"""What an agent leaves in its home cannot make us read, write or keep anything else."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import ProviderError
from adapters.providers.cli import home as homes
from adapters.providers.cli.acp.provider import MEMORY, AcpProvider
from adapters.providers.cli.acp.provider import _keep as keep_memory
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
    unpack(pack(home, ("none/*",)), elsewhere)


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


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for entry, content in entries:
            made.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def entry(name: str, content: bytes = b"x", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size = len(content)
    for field, value in more.items():
        setattr(made, field, value)
    return made, content


def test_names_of_all_kinds_are_kept(home: Path, tmp_path: Path) -> None:
    names = ("s/" + "/".join(["f" * 90] * 3) + ".jsonl", "s/tä\ng.json", "s/plain.json", os.fsdecode(b"s/\xff.bin"))
    for name in names:
        put(home, name, name[:3])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    unpack(pack(home, ("s/*",)), elsewhere)
    assert {path.relative_to(elsewhere).as_posix() for path in elsewhere.rglob("*") if path.is_file()} == set(names)


FORGED = {
    "a bomb": archive(entry("s/bomb.json", bytes(5_000_000))),
    "too many files": archive(*(entry(f"s/{number}.json") for number in range(30))),
    "zeros without end": gzip.compress(bytes(50_000_000)),
    "another size": archive(entry("s/one", pax_headers={"size": str(1 << 50)})),
    "holes": archive(entry("s/one", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 50)})),
    "holes of old": archive(entry("s/one", type=tarfile.GNUTYPE_SPARSE)),
    "a huge header": archive(entry("s/one", pax_headers={"comment": "x" * 1_000_000})),
    "a name with an end in it": archive(entry("s/one", pax_headers={"path": "s/\0one"})),
    "a huge name": archive(entry("name", b"s" * 1_000_000, type=tarfile.GNUTYPE_LONGNAME), entry("s/one")),
    "headers of headers": gzip.compress(entry("x", b"", type=tarfile.XHDTYPE)[0].tobuf() * 5000),
    "cut off": archive(entry("s/one", b"x" * 5000))[:-40],
    "cut off within": gzip.compress(gzip.decompress(archive(entry("s/one", b"x" * 900)))[:1000]),
    "no archive": gzip.compress(b"no archive" * 1000),
    "not packed": b"nothing of the kind",
    "nothing": b"",
}


@pytest.mark.parametrize("stored", FORGED.values(), ids=FORGED.keys())
def test_a_stored_state_that_was_not_packed_here_is_refused_in_words(
    home: Path, monkeypatch: pytest.MonkeyPatch, stored: bytes
) -> None:
    monkeypatch.setattr(homes, "MAX_STATE", 1_000_000)
    monkeypatch.setattr(homes, "MAX_FILES", 20)
    with pytest.raises(ProviderError, match="the stored session") as refused:
        unpack(stored, home)
    assert len(str(refused.value)) < 300
    assert sum(path.stat().st_size for path in home.rglob("*")) < 1_100_000


def test_no_more_is_looked_at_than_makes_sense(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "MAX_SEEN", 100)
    put(home, "s/real.json", "{}")
    for number in range(200):
        put(home, f"cache/{number}", "")
    assert names_in(pack(home, ("s/*",))) == ["s/real.json"], "what is not meant is not looked into"
    for number in range(200):
        put(home, f"s/{number}", "")
    with pytest.raises(ProviderError, match="cannot be kept"):
        pack(home, ("s/*.json",))


def names_in(packed: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as opened:
        return opened.getnames()


@pytest.mark.parametrize("swapped", ["s", "s/inner"])
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(
    home: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    put(home, "s/inner/key.json", "the agent's")
    real = os.scandir

    class Listed(list[Any]):
        def __enter__(self) -> "Listed":
            return self

        def __exit__(self, *_: object) -> None: ...

    def swapping(folder: Any) -> Any:
        listed = Listed(real(folder))
        if len(calls) == swapped.count("/"):
            (home / swapped).rename(home / "aside")
            (home / swapped).symlink_to(secret if "/" in swapped else secret.parent)
        calls.append(folder)
        return listed

    calls: list[Any] = []
    monkeypatch.setattr(os, "scandir", swapping)
    (secret.parent / "inner").symlink_to(secret)
    assert names_in(pack(home, ("s/*",))) == []


@pytest.fixture
def closed() -> Iterator[list[Path]]:
    folders: list[Path] = []
    yield folders
    for folder in folders:
        folder.chmod(0o700)


def test_what_an_agent_puts_in_the_place_of_our_archive_is_not_kept(home: Path, closed: list[Path]) -> None:
    """Not even if its memory cannot be packed, or it has closed the folder."""
    forged = "forged"
    for patterns, expected in (((), []), (("s/*",), []), (("*",), []), (("none/*",), [MEMORY])):
        put(home, MEMORY, forged)
        put(home, "s/huge.bin", "")
        os.truncate(home / "s/huge.bin", (64 << 20) + 1)
        closed.append((home / MEMORY).parent)
        closed[-1].chmod(0o500)
        with suppress(ProviderError):
            keep_memory(home, patterns)
        assert names_in(pack(home, AcpProvider.needs.state)) == expected
        assert not (home / MEMORY).exists() or forged not in (home / MEMORY).read_text()
