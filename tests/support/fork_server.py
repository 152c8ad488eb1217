"""Python programs without the second that importing other people's libraries takes: a process that has them, and forks.

Each is a process of its own, with its own arguments, environment, folder, streams and session, that runs the installed
script or the module from its first line and imports all of our own modules. It shares with the others what a library
is after its import, and the seed of hashes; in /proc it has the server's command line. What is about the start itself
is started by subprocess.

`start` is as subprocess.Popen(), `run` as subprocess.run(); `python fork_server.py SOCKET` serves."""

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

BIN = Path(sys.executable).parent
LIBRARIES = (
    "aiosqlite", "alembic.command", "celery.__main__", "celery.apps.beat", "celery.apps.worker", "celery.bin.celery",
    "celery.concurrency.prefork", "celery.concurrency.thread", "celery.fixups.django", "celery.worker.autoscale",
    "celery.worker.consumer", "celery.worker.strategy", "cronsim", "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf", "fastapi", "httpx2", "kombu.transport.redis", "logging.config",
    "markdown_it", "mcp", "mcp.server.streamable_http_manager", "psutil", "psycopg", "pydantic.networks",
    "pydantic_settings", "redis.asyncio", "sqlalchemy.dialects.postgresql", "sqlalchemy.dialects.sqlite",
    "sqlalchemy.ext.asyncio", "sqlalchemy.orm", "structlog", "tarfile", "typer", "uvicorn.main",
    "uvicorn.protocols.http.h11_impl", "yaml",
)  # fmt: skip
# None of ours, whose settings come from the environment they are imported in; and no source of ids, which would go on
# from the same state in every child.
NOT_TO_SHARE = {"adapters", "bench", "gateway", "models", "scheduler", "tasks", "tests", "uuid_utils", "workers"}

_LENGTH = struct.Struct("!I")
_PID = struct.Struct("!I")
_END = struct.Struct("!Id")  # the status, and CPU seconds


class Process:
    """As subprocess.Popen: signals reach the very process that runs the program."""

    def __init__(self, args: Sequence[str], line: socket.socket) -> None:
        self.args = args
        self.pid: int = _PID.unpack(_exactly(line, _PID.size))[0]
        self.returncode: int | None = None
        self._line = line
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._line], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        with self._reading:
            if self.returncode is None:
                status, cpu = _END.unpack(_exactly(self._line, _END.size))
                self.returncode = os.waitstatus_to_exitcode(status)
                self._line.close()
                _spent.append(cpu)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, *, stdout: int, stderr: int, stdin: int | None = None
) -> Process:
    """`command` is an installed script with its arguments, or a Python with `-m` and a module. It leads a session of
    its own, whose terminal is `stdin` if that is one, and is killed when this process ends. Without `stdin` it reads
    nothing."""
    with ExitStack() as opened:
        given = opened.enter_context(open(os.devnull, "rb")).fileno() if stdin is None else stdin
        line = socket.socket(socket.AF_UNIX)
        line.connect(_server())
        body = json.dumps([list(command), dict(env), str(cwd)]).encode()
        socket.send_fds(line, [_LENGTH.pack(len(body))], [given, stdout, stderr])
        line.sendall(body)
        return Process(command, line)


def run(
    command: Sequence[str], env: Mapping[str, str], cwd: Path, given: str | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    """With captured text."""
    deadline = time.monotonic() + seconds
    with ExitStack() as ends:
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        to_it = ends.enter_context(open(pipes[0][1], "wb", 0))
        said = {ends.enter_context(open(reading, "rb", 0)): b"" for reading, _ in pipes[1:]}
        try:
            process = start(command, env, cwd, stdin=theirs[0], stdout=theirs[1], stderr=theirs[2])
        finally:
            for fd in theirs:
                os.close(fd)
        with suppress(BrokenPipeError):  # it need not read what it is given, which fits into a pipe
            to_it.write((given or "").encode())
        to_it.close()
        opened = set(said)
        while opened:
            ready = select.select(list(opened), [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                process.kill()
                process.wait()
                raise subprocess.TimeoutExpired(command, seconds)
            for stream in ready:
                part = stream.read(1 << 16)
                said[stream] += part
                if not part:
                    opened.discard(stream)
        code = process.wait(max(0.0, deadline - time.monotonic()))
        return subprocess.CompletedProcess(command, code, *(text.decode() for text in said.values()))


_spent: list[float] = []


def cpu_seconds() -> float:
    """Of the server, and of those of its children that were waited for here."""
    return sum(_spent)


@cache
def _server() -> str:
    """Lives as long as this process, whose end it sees at its input. Who interrupts the tests does not interrupt it."""
    path = Path(tempfile.mkdtemp(prefix="longshore-test-")) / "fork.sock"
    process = subprocess.Popen(
        [sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
        start_new_session=True, env={"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(process.communicate)
    return str(path)


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = line.recv(count - len(data))
        assert part, "the server of processes has gone"
        data += part
    return data


class Server:
    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)
        self._poll.register(self._listener, select.POLLIN)
        self._running: dict[int, tuple[int, socket.socket]] = {}  # by what tells that a child has ended
        self._told = 0.0

    def serve(self) -> list[str]:
        """Returns in a child that is to be the program, with its command."""
        while True:
            for ready, _ in self._poll.poll():
                if ready == 0:
                    self._end()
                elif ready in self._running:
                    self._tell_end(ready)
                elif command := self._accept():
                    return command

    def _accept(self) -> list[str]:
        line, _ = self._listener.accept()
        head, fds, _, _ = socket.recv_fds(line, _LENGTH.size, 3)
        command, env, cwd = json.loads(_exactly(line, _LENGTH.unpack(head)[0]))
        if pid := os.fork():
            for fd in fds:
                os.close(fd)
            line.sendall(_PID.pack(pid))
            ended = os.pidfd_open(pid)
            self._poll.register(ended, select.POLLIN)
            self._running[ended] = pid, line
            return []
        os.setsid()
        for ended, (_, other) in self._running.items():
            os.close(ended)
            other.close()
        self._listener.close()
        line.close()
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
            os.close(fd)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        os.chdir(cwd)
        return list(command)

    def _tell_end(self, ended: int) -> None:
        pid, line = self._running.pop(ended)
        self._poll.unregister(ended)
        os.close(ended)
        _, status, used = os.wait4(pid, 0)
        own = time.process_time() - self._told
        self._told += own
        with line, suppress(OSError):  # nobody need wait for it
            line.sendall(_END.pack(status, used.ru_utime + used.ru_stime + own))

    def _end(self) -> NoReturn:
        for pid, _ in self._running.values():
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._path.unlink()
        self._path.parent.rmdir()
        os._exit(0)


def _become(command: list[str]) -> None:
    """What `python` does with a script, or with `-m` and a module."""
    sys.stdout.reconfigure(line_buffering=os.isatty(1), write_through="PYTHONUNBUFFERED" in os.environ)  # type: ignore[union-attr]
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if command[1:2] == ["-m"]:
        sys.path[:0] = [os.getcwd(), *places]
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    else:
        sys.path[:0] = [str(BIN), *places]
        sys.argv = [str(BIN / command[0]), *command[1:]]
        runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    del sys.path[0]  # this folder, whose files have names that others have too
    for name in LIBRARIES:
        importlib.import_module(name)
    assert not NOT_TO_SHARE & {name.partition(".")[0] for name in sys.modules}
    assert len(os.listdir("/proc/self/task")) == 1, "a library has started a thread"
    gc.collect()
    gc.freeze()
    server = Server(sys.argv[1])
    print("ready", flush=True)
    _become(server.serve())


if __name__ == "__main__":
    main()
