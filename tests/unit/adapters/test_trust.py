"""Signed drivers: what is signed is what is loaded, and everything else is refused with the file's name."""

import importlib
import importlib.util
import os
import py_compile
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from adapters.errors import RefusedDriverError, SigningError
from adapters.packages.signed_import import SignedFinder, import_only_signed
from adapters.packages.signing import load_key, make_key, public_key, sign_wheel
from adapters.packages.trust import Allowed, Origin
from tests.support.adapter_packages import build, install, unpack

POINTS = {"longshore.tools": {"squawk": "squawker.tools:SQUAWK"}}
SOURCE = "SQUAWK = 'squawk'\n"
FILES = {"squawker/__init__.py": "", "squawker/tools.py": SOURCE}
KEY = Ed25519PrivateKey.generate()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the signed distribution installed, on the path; what is imported from it is forgotten after."""
    folder = tmp_path / "site"
    unpack(build(tmp_path, "squawker", POINTS, FILES, KEY), folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "squawker"]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, SignedFinder)]


def judged(folder: Path, allowed: str) -> Origin:
    [point] = Distribution.at(next(folder.glob("*.dist-info"))).entry_points
    return Allowed(allowed).judge(point, "tool")


def signed(key: Ed25519PrivateKey = KEY) -> str:
    return f"squawk@{public_key(key)}"


@pytest.mark.spec("P16")
def test_a_signature_of_the_named_key_opens(site: Path) -> None:
    origin = judged(site, signed())
    assert (origin.vendor, origin.signed_by) == ("Example", public_key(KEY))
    assert set(FILES) < set(origin.files)
    assert judged(site, f"{signed(Ed25519PrivateKey.generate())},{signed().rstrip('=')}").signed_by == public_key(KEY)


@pytest.mark.spec("P16")
@pytest.mark.parametrize(
    ("allowed", "reason"),
    [
        (signed(Ed25519PrivateKey.generate()), "not signed with the key that LONGSHORE_ADAPTERS names"),
        ("squawk@", "not an Ed25519 public key"),
        ("squawk@c2hvcnQ=", "not an Ed25519 public key"),
        ("squawk@ü", "not an Ed25519 public key"),
        ("squawker", "is not allowed"),
        ("", "is not allowed"),
    ],
    ids=["another key", "no key", "a short key", "no base64", "another id", "nobody"],
)
def test_no_other_key_opens(site: Path, allowed: str, reason: str) -> None:
    with pytest.raises(RefusedDriverError, match=reason):
        judged(site, allowed)


@pytest.mark.spec("P16")
@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("squawker/tools.py", SOURCE + "# x", "squawker/tools.py is not as its maker signed it; install the distrib"),
        ("squawker/tools.py", None, "squawker/tools.py is missing"),
        ("squawker-1.0.dist-info/METADATA", "Name: squawker\nVersion: 1.0\n", "METADATA is not as its maker signed"),
        ("squawker-1.0.dist-info/METADATA", "Name: squawker\nVersion: 2.0\n", "signature is that of squawker 1.0"),
        ("squawker-1.0.dist-info/entry_points.txt", "[longshore.tools]\nsquawk=os:sep", "os:sep is not the signed one"),
        ("squawker-1.0.dist-info/longshore-adapter.json", "{}", "longshore-adapter.json was changed"),
        ("squawker-1.0.dist-info/longshore-adapter.sig", "zz", "not signed with the key"),
        ("squawker-1.0.dist-info/longshore-adapter.sig", None, "is not signed"),
        ("squawker-1.0.dist-info/RECORD", None, "is not signed"),
    ],
)
def test_whatever_changes_after_signing_is_refused(site: Path, file: str, content: str | None, reason: str) -> None:
    if content is None:
        (site / file).unlink()
    else:
        (site / file).write_text(content)
    with pytest.raises(RefusedDriverError, match=reason):
        judged(site, signed())


@pytest.mark.spec("P16")
def test_a_file_that_was_added_is_refused(site: Path) -> None:
    with (site / "squawker-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("squawker/more.py,,\n")
    with pytest.raises(RefusedDriverError, match=r"squawker/more\.py is not among the files its maker signed"):
        judged(site, signed())


@pytest.mark.spec("P16")
def test_what_an_installer_adds_is_no_change(site: Path) -> None:
    with (site / "squawker-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("squawker/__pycache__/tools.cpython-311.pyc,,\nsquawker-1.0.dist-info/INSTALLER,,\n../bin/x,,\n")
    assert judged(site, signed()).signed_by == public_key(KEY)


@pytest.mark.spec("P16")
def test_an_editable_installation_is_allowed_by_its_id_alone(tmp_path: Path) -> None:
    [point] = install(tmp_path, "squawker", POINTS, editable=True).entry_points
    assert Allowed("squawk").judge(point, "tool").signed_by is None
    with pytest.raises(RefusedDriverError, match="editable mode, where nothing can be signed: allow squawk without"):
        Allowed(signed()).judge(point, "tool")


def guard(site: Path) -> None:
    origin = judged(site, signed())
    import_only_signed(origin.distribution, origin.root, origin.files)


@pytest.mark.spec("P16")
def test_signed_sources_are_read_and_compiled_files_are_not(site: Path, tmp_path: Path) -> None:
    """A compiled file that claims to be of the signed source would be taken instead of it."""
    source = site / "squawker" / "tools.py"
    evil = tmp_path / "evil.py"
    evil.write_text("SQUAWK = 'evil!!'\n")
    assert evil.stat().st_size == source.stat().st_size
    os.utime(evil, (source.stat().st_mtime,) * 2)
    py_compile.compile(str(evil), cfile=importlib.util.cache_from_source(str(source)))
    assert importlib.import_module("squawker.tools").SQUAWK != "squawk", "the trap must work without the guard"
    for name in ("squawker.tools", "squawker"):
        del sys.modules[name]
    guard(site)
    assert importlib.import_module("squawker.tools").SQUAWK == "squawk"


@pytest.mark.spec("P16")
def test_a_source_that_changes_between_check_and_import_is_refused(site: Path) -> None:
    guard(site)
    (site / "squawker" / "tools.py").write_text("SQUAWK = 'evil'\n")
    with pytest.raises(ImportError, match="not as its maker signed it"):
        importlib.import_module("squawker.tools")


@pytest.mark.spec("P16")
def test_a_folder_that_shadows_a_signed_module_is_refused(site: Path) -> None:
    guard(site)
    (site / "squawker" / "tools").mkdir()
    (site / "squawker" / "tools" / "__init__.py").write_text("SQUAWK = 'evil'\n")
    with pytest.raises(ImportError, match="not among the files that the maker of squawker signed"):
        importlib.import_module("squawker.tools")


def test_a_key_is_written_once_for_its_owner_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "maker.key"
    public = make_key(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert public_key(load_key(file)) == public
    before = file.read_bytes()
    with pytest.raises(SigningError, match="never written over"):
        make_key(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("points", "files", "reason"),
    [
        ({"console_scripts": {"x": "squawker:main"}}, FILES, "has no driver"),
        (POINTS, {"squawker-1.0.data/purelib/x.py": ""}, "holds squawker-1.0.data/purelib/x.py"),
    ],
)
def test_what_cannot_be_signed_is_said(
    tmp_path: Path, points: dict[str, dict[str, str]], files: dict[str, str], reason: str
) -> None:
    with pytest.raises(SigningError, match=reason):
        build(tmp_path, "squawker", points, files, KEY)


def test_what_is_no_wheel_is_said_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_text("not a zip")
    with pytest.raises(SigningError, match="not a wheel that can be read"):
        sign_wheel(tmp_path / "x.whl", KEY)
    assert (tmp_path / "x.whl").read_text() == "not a zip"
    (tmp_path / "x.key").write_text("not a key")
    with pytest.raises(SigningError, match="longshore adapters keygen"):
        load_key(tmp_path / "x.key")


def test_signing_twice_gives_the_same_wheel(tmp_path: Path) -> None:
    wheel = build(tmp_path, "squawker", POINTS, FILES, KEY)
    before = wheel.read_bytes()
    sign_wheel(wheel, KEY)
    assert wheel.read_bytes() == before
