"""Child processes of `streams`: the stand-in model server, and the bare program that is our peer."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from bench.stage import ROOT

Way = Literal["sdk", "adapter"]


class ModelServer:
    """`environment` points a client at it."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.pid = process.pid
        self.port = int(url.rsplit(":", 1)[1])
        self.environment = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "fake"}


@contextmanager
def model_server(deltas: int, pace: float) -> Iterator[ModelServer]:
    """Answers everybody with so many deltas of five characters, `pace` seconds apart."""
    options = ["--deltas", str(deltas), "--pace", str(pace), "--no-record", "--quiet"]
    with _child(["-m", "tests.support.model_api", *options], {}) as process:
        assert process.stdout is not None
        yield ModelServer(process, process.stdout.readline().split()[-1])


class BareProgram:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        if not (answer := self._process.stdout.readline()):
            raise RuntimeError(f"the bare program ended instead of answering {line!r}")
        return dict(json.loads(answer))


@contextmanager
def bare_program(way: Way, server: ModelServer) -> Iterator[BareProgram]:
    with _child(["-m", "bench.bare", way], server.environment) as process:
        yield BareProgram(process)


@contextmanager
def _child(arguments: list[str], environment: Mapping[str, str]) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env={**os.environ, **environment}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
