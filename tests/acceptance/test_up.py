"""`longshore up` in a terminal: a first answer without a key, a clean stop, and nothing forgotten."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.processes import BIN
from tests.support.servers import private_folder
from tests.support.terminal import Terminal


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where the sandbox's user can come too, also if the tests are root's."""
    folder = private_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.spec("G6", "G4", "P11", "T6")
def test_up_answers_stops_cleanly_and_goes_on(tmp_path: Path, terminals: list[Terminal]) -> None:
    first = Terminal(tmp_path, "up")
    terminals.append(first)
    said = (
        "broker",
        "database",
        "worker",
        "delivery",
        "beat",
        "flower",
        "bubblewrap keeps",
        "gateway",
        "⚙ clock",
        "nothing gets",
    )
    for shown in (*said, "done"):
        first.wait_for(shown)
    first.wait_for("longshore send demo")
    assert (tmp_path / ".longshore" / "valkey" / "appendonlydir").is_dir()
    assert oct((tmp_path / ".longshore" / "embedded.json").stat().st_mode)[-3:] == "600"

    for text, answer in (("what time is it?", "By my clock it is"), ("work", "13 tide.txt")):
        sent = subprocess.run(
            [str(BIN / "longshore"), "send", "demo", text], cwd=tmp_path, capture_output=True, text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}, timeout=60, check=False,
        )  # fmt: skip
        assert sent.returncode == 0, sent.stderr
        assert answer in sent.stdout
    other = Terminal(tmp_path, "up", "--no-flower")
    terminals.append(other)
    other.wait_for("another `longshore up` runs in this folder")
    assert other.process.wait(10) == 1

    worker = next(p for p in first.family() if "worker@%h" in " ".join(p.cmdline()))
    worker.kill()
    first.wait_for("worker killed by SIGKILL; starting it again")

    family = first.family()
    assert len(family) >= 5
    assert first.interrupt() == 0
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []

    again = Terminal(tmp_path, "up", "--no-flower")
    terminals.append(again)
    again.wait_for("going on with 3 sessions")  # the demo's, its colleague's, and ours
    again.wait_for("longshore send demo")
    assert again.interrupt() == 0
