"""Children under one roof: started, watched, started again when they die, and stopped in order.

Each child has its own session, so a Ctrl-C on the terminal reaches only us and we stop them in the right order; if we
are killed, the kernel ends them (Linux)."""

import contextlib
import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
RESTART_PAUSE_SECONDS = 1.0


@dataclass
class Child:
    name: str
    command: list[str]
    env: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes]
    started: float


class Supervisor:
    def __init__(self, log_folder: Path, on_death: Callable[[str, str], None]) -> None:
        """`on_death` is told a child's name and how it ended, before it is started again."""
        self._folder = log_folder
        self._on_death = on_death
        self._children: list[Child] = []
        log_folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, command: list[str], env: Mapping[str, str]) -> Child:
        log = self._folder / f"{name}.log"
        child = Child(name, command, env, log, _spawn(command, env, log), time.monotonic())
        self._children.append(child)
        return child

    def watch(self) -> None:
        """Start again what has died; called now and then."""
        for child in self._children:
            code = child.process.poll()
            if code is None or time.monotonic() - child.started < RESTART_PAUSE_SECONDS:
                continue
            child.process = _spawn(child.command, child.env, child.log)
            child.started = time.monotonic()
            self._on_death(child.name, _how(code))

    def hurry(self) -> None:
        """While stopping: no more grace. SIGQUIT is Celery's cold stop, in which turns are handed over at once."""
        for child in self._children:
            if child.process.poll() is None and "worker" in child.command:
                child.process.send_signal(signal.SIGQUIT)

    def stop(self, seconds: float) -> list[str]:
        """The last one started is stopped first. Returns the names of those that had to be killed."""
        killed = []
        for child in reversed(self._children):
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
                try:
                    child.process.wait(seconds)
                except subprocess.TimeoutExpired:
                    child.process.kill()
                    child.process.wait()
                    killed.append(child.name)
        self._children.clear()
        return killed


def _spawn(command: list[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own commands
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )


def _die_with_parent() -> None:
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _how(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
