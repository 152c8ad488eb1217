"""The fleet as an operator starts it: the Procfile's own commands, each a process that can be killed and frozen.

Everything is addressed by the pid of a process started here; `stop` leaves none behind."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support import fork_server

ROOT = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1  # as prctl knows it: a signal for whoever outlives its parent


@dataclass
class Member:
    """One process. `kind` is its line in the Procfile."""

    name: str
    kind: str
    process: fork_server.Process
    started: float
    frozen: bool = False
    was_up: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid


class ProcessGroup:
    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        """`folder` gets one log file per name, appended to by all lives of that name."""
        self.folder = folder
        self._env = dict(env)
        self._commands = _procfile(ROOT / "Procfile")
        self.members: dict[str, Member] = {}
        self.refused_to_start = 0
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, kind: str) -> Member:
        command = [part.replace(f"{kind}@%h", f"{name}@%h") for part in self._commands[kind]]
        with self._log(name).open("ab") as output:
            process = fork_server.start(command, self._env, ROOT, stdout=output.fileno(), stderr=output.fileno())
        self.members[name] = Member(name, kind, process, time.monotonic())
        return self.members[name]

    def kill(self, name: str, sig: signal.Signals = signal.SIGKILL, seconds: float = 40) -> None:
        """End a process and start its successor."""
        member = self.members[name]
        member.process.send_signal(sig)
        member.process.wait(seconds)
        self.start(name, member.kind)

    def freeze(self, name: str) -> None:
        self.members[name].frozen = True
        self.members[name].process.send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.members[name].process.send_signal(signal.SIGCONT)
        self.members[name].frozen = False

    def watch(self) -> list[str]:
        """What any supervisor does: start again what has ended. Returns who fell after it had been up.

        One that was never up refused to start (the database was away); that is no fault, only counted."""
        fallen = []
        for member in list(self.members.values()):
            code = member.process.poll()
            if code is None:
                continue
            if member.was_up:
                fallen.append(f"{member.name} (pid {member.pid}) exited with {code}")
            self.refused_to_start += not member.was_up
            self.start(member.name, member.kind)
        return fallen

    def stop(self, seconds: float = 15) -> None:
        running = [member.process for member in self.members.values() if member.process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        for process in running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.members.clear()

    def tail(self, name: str, lines: int = 5) -> str:
        return "\n".join(self._lines(name)[-lines:])

    def mentions(self, marks: Iterable[str], limit: int = 12) -> list[str]:
        """Log lines that name one of the ids, with the process that wrote them."""
        wanted = [mark for mark in marks if mark]
        found = []
        for path in sorted(self.folder.glob("*.log")):
            found += [f"{path.stem}: {line}" for line in self._lines(path.stem) if any(mark in line for mark in wanted)]
        return found[-limit:]

    def _lines(self, name: str) -> list[str]:
        return self._log(name).read_text(errors="replace").splitlines()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def _procfile(path: Path) -> dict[str, list[str]]:
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {kind: shlex.split(command) for kind, command in (line.split(":", 1) for line in lines)}


def child_environment(**values: str) -> dict[str, str]:
    """What a child gets: the path to find programs, and what the test says; nothing of the developer's own settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"PYTHONUNBUFFERED": "1"} | values
