"""`longshore` without the second that importing other people's libraries takes: a process that has them, and forks.

Each call is a process of its own with its own arguments, environment, folder and streams, that runs the installed
script from its first line and imports all of our own modules. `python cli_server.py SOCKET` serves; `run` asks."""

import atexit
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

BIN = Path(sys.executable).parent
# None of ours, whose settings come from the environment they are imported in; and no source of ids (uuid_utils), which
# would go on from the same state in every child.
LIBRARIES = (
    "typer", "click", "sqlalchemy", "sqlalchemy.ext.asyncio", "sqlalchemy.orm", "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite", "aiosqlite", "psycopg", "redis", "redis.asyncio", "celery", "kombu", "pydantic",
    "pydantic_settings", "structlog", "yaml", "httpx2", "cronsim", "alembic", "alembic.command", "psutil",
)  # fmt: skip
_LENGTH = struct.Struct("!I")


def run(
    arguments: list[str], env: Mapping[str, str], cwd: Path, given: str | None, seconds: float
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run() with captured text."""
    deadline = time.monotonic() + seconds
    with ExitStack() as ends:
        theirs: list[int] = []
        ours: list[int] = []
        for reading, writing in (os.pipe() for _ in range(3)):
            theirs.append(writing if theirs else reading)
            ours.append(reading if ours else writing)
        to_close = [ends.enter_context(open(fd, "wb" if fd is ours[0] else "rb", 0)) for fd in ours]
        line = ends.enter_context(socket.socket(socket.AF_UNIX))
        line.settimeout(seconds)
        try:
            line.connect(_server())
            words = [str(cwd), str(len(arguments)), *arguments, *(f"{name}={value}" for name, value in env.items())]
            body = "\0".join(words).encode(errors="surrogateescape")
            socket.send_fds(line, [_LENGTH.pack(len(body))], theirs)
            line.sendall(body)
            pid = _LENGTH.unpack(_exactly(line, 4))[0]
        finally:
            for fd in theirs:
                os.close(fd)
        with suppress(BrokenPipeError):  # it need not read what it is given, which fits into a pipe
            to_close[0].write((given or "").encode())
        to_close[0].close()
        said = {to_close[1]: b"", to_close[2]: b""}
        opened = set(said)
        while opened:
            ready = select.select(list(opened), [], [], max(0.0, deadline - time.monotonic()))[0]
            if not ready:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, seconds)
            for stream in ready:
                part = stream.read(1 << 16)
                said[stream] += part
                if not part:
                    opened.discard(stream)
        code = os.waitstatus_to_exitcode(_LENGTH.unpack(_exactly(line, 4))[0])
        return subprocess.CompletedProcess(arguments, code, *(text.decode() for text in said.values()))


@cache
def _server() -> str:
    """Lives as long as this process, whose end it sees at its input."""
    path = Path(tempfile.mkdtemp(prefix="longshore-test-")) / "cli.sock"
    process = subprocess.Popen(
        [sys.executable, __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
        env={"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    atexit.register(_end, process)
    return str(path)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = line.recv(count - len(data))
        assert part, "the command line's server has gone"
        data += part
    return data


def _serve(path: str) -> list[str]:
    """Returns in the child that is to be the program, with its arguments."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(16)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    end = sys.stdin.buffer.fileno()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, end], [], [])
        if end in ready:
            Path(path).unlink()
            Path(path).parent.rmdir()
            os._exit(0)
        line, _ = listener.accept()
        if os.fork():
            line.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        head, fds, _, _ = socket.recv_fds(line, 4, 3)
        words = _exactly(line, _LENGTH.unpack(head)[0]).decode(errors="surrogateescape").split("\0")
        if pid := os.fork():
            for fd in fds:
                os.close(fd)
            line.sendall(_LENGTH.pack(pid))
            line.sendall(_LENGTH.pack(os.waitpid(pid, 0)[1]))
            os._exit(0)
        line.close()
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
            os.close(fd)
        os.chdir(words[0])
        count = int(words[1])
        os.environ.clear()
        os.environ.update({name: value for name, _, value in (word.partition("=") for word in words[2 + count :])})
        return words[2 : 2 + count]


if __name__ == "__main__":
    sys.argv = [str(BIN / "longshore"), *_serve(sys.argv[1])]
    runpy.run_path(sys.argv[0], run_name="__main__")
