"""The command line in a terminal, as a person has it."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import psutil

from tests.support.processes import BIN
from tests.support.servers import wait_until


class Terminal:
    """A program in a real pseudo-terminal, with what it has shown so far."""

    def __init__(self, folder: Path, *arguments: str, **more: str) -> None:
        """`more`: variables of its environment."""
        primary, secondary = pty.openpty()
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TERM": "xterm", "LANG": "C.UTF-8", "COLUMNS": "120"}
        env |= more
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
