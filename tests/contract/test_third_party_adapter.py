"""The example of an adapter of one's own: built, signed, installed and judged as a stranger's would be."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from adapters.contracts import Provider
from adapters.errors import RefusedDriverError
from adapters.packages.signed_import import SignedFinder
from adapters.packages.signing import public_key
from adapters.packages.trust import Allowed
from adapters.registry import Drivers
from gateway.cli.main import app

pytestmark = pytest.mark.xdist_group("parrot")

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_adapter"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


def run(*command: str | Path, **more: str) -> str:
    """A program in an environment of its own; its output, if it went well."""
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PIP_NO_CACHE_DIR": "1", **more}
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The sources, where the signed wheel is installed, and its maker's public key. Nothing comes from a network."""
    folder = tmp_path_factory.mktemp("parrot")
    source, site, key = folder / "source", folder / "site", folder / "maker.key"
    shutil.copytree(EXAMPLE, source)
    run(*PIP, "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    [wheel] = folder.glob("*.whl")
    shown = CliRunner().invoke(app, ["adapters", "keygen", str(key)])
    assert shown.exit_code == 0
    public = shown.stdout.partition("public key:")[2].split()[0]
    signed = CliRunner().invoke(app, ["adapters", "sign", str(wheel), "--key", str(key)])
    assert f"LONGSHORE_ADAPTERS=parrot@{public}" in signed.stdout
    run(*PIP, "install", "--quiet", "--no-index", "--no-deps", "--target", site, wheel)
    return source, site, public


@pytest.fixture
def site(made: tuple[Path, Path, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(made[1])
    before = (made[1] / "longshore_parrot" / "provider.py").read_bytes()
    yield made[1]
    (made[1] / "longshore_parrot" / "provider.py").write_bytes(before)
    for name in [name for name in sys.modules if name.partition(".")[0] == "longshore_parrot"]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, SignedFinder)]


@pytest.mark.spec("P15", "P16")
def test_it_passes_the_conformance_suite_from_outside_the_tree(made: tuple[Path, Path, str]) -> None:
    source, site, _ = made
    shutil.rmtree(source / "longshore_parrot")  # so that what is tested is what is installed
    said = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", source, PYTHONPATH=str(site))
    assert "19 passed" in said


@pytest.mark.spec("P16")
def test_only_what_the_operator_allows_is_loaded(made: tuple[Path, Path, str], site: Path) -> None:
    def parrot(allowed: str) -> Provider:
        return Drivers[Provider]("provider", allowed=Allowed(allowed)).get("parrot")

    with pytest.raises(RefusedDriverError, match=r"of longshore-parrot 1\.0 is not allowed: .* LONGSHORE_ADAPTERS"):
        parrot("scripted")
    with pytest.raises(RefusedDriverError, match="not signed with the key"):
        parrot(f"parrot@{public_key(Ed25519PrivateKey.generate())}")
    source = site / "longshore_parrot" / "provider.py"
    good = source.read_bytes()
    source.write_bytes(good.replace(b"Squawk", b"Sqeawk"))
    with pytest.raises(RefusedDriverError, match=r"longshore_parrot/provider\.py is not as its maker signed it"):
        parrot(f"parrot@{made[2]}")
    assert "longshore_parrot" not in sys.modules, "what is refused is not imported"
    source.write_bytes(good)
    assert parrot(f"parrot@{made[2]}").manifest.adapter_id == "parrot"
    assert parrot("parrot").manifest.vendor == "Example Aviaries"


@pytest.mark.spec("P16")
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_the_list_of_providers_says_where_each_comes_from(
    made: tuple[Path, Path, str], database_url: str, tmp_path: Path
) -> None:
    def listed(allowed: str) -> dict[str, dict[str, object]]:
        environment = {
            "PYTHONPATH": str(made[1]), "DATABASE_URL": database_url, "LONGSHORE_HOME": str(tmp_path),
            "LONGSHORE_ADAPTERS": allowed, "LONGSHORE_CLIS": str(tmp_path),
        }  # fmt: skip
        command = Path(sys.executable).parent / "longshore"
        return {one["id"]: one for one in json.loads(run(command, "providers", "--json", **environment))}

    signed = listed(f"parrot@{made[2]}")
    assert signed["parrot"]["origin"] == {
        "distribution": "longshore-parrot 1.0", "ours": False, "signed_by": made[2],
    }  # fmt: skip
    assert (signed["parrot"]["vendor"], signed["parrot"]["installed"]) == ("Example Aviaries", True)
    refused = listed("")
    assert (refused["parrot"]["state"], refused["parrot"]["installed"]) == ("refused", False)
    assert "is not allowed" in str(refused["parrot"]["refused"])
    assert refused["scripted"]["origin"]["ours"] is True  # type: ignore[index]
    assert refused["scripted"]["error"] is None
