"""`longshore up` in a terminal: a first answer without a key, a clean stop, and nothing forgotten."""

import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.processes import BIN
from tests.support.servers import private_folder, wait_until


class Terminal:
    """A program in a real pseudo-terminal, with what it has shown so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        primary, secondary = pty.openpty()
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TERM": "xterm", "LANG": "C.UTF-8", "COLUMNS": "120"}
        command = [str(BIN / "longshore"), *arguments]
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True
        )
        os.close(secondary)
        os.set_blocking(primary, False)
        self._primary = primary
        self.shown = ""

    def wait_for(self, text: str, seconds: float = 60) -> None:
        try:
            wait_until(lambda: text in self._read(), seconds, f"{text!r} on the terminal")
        except TimeoutError as error:
            raise AssertionError(f"{error}; it shows:\n{self.shown}") from None

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.wait_for("goes on from here")
        return self.process.wait(30)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        os.close(self._primary)

    def _read(self) -> str:
        try:
            while chunk := os.read(self._primary, 65536):
                self.shown += chunk.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return self.shown


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
