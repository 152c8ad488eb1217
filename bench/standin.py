"""Child processes of `streams` and `clis`: the stand-in model server, and the bare program that is our peer."""

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
QUESTION = "paint the boat"  # to this, the scripted model asks its person a question


class ModelServer:
    """`environment` points a client at it."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.pid = process.pid
        self.url = url
        self.port = int(url.rsplit(":", 1)[1])
        addresses = {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1", "GOOGLE_GEMINI_BASE_URL": url}
        keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
        self.environment = addresses | dict.fromkeys(keys, "fake-key-of-the-vendor-1234567890")


@contextmanager
def model_server(deltas: int, pace: float) -> Iterator[ModelServer]:
    """Answers everybody with so many deltas of five characters, `pace` seconds apart."""
    with _model_server("--deltas", str(deltas), "--pace", str(pace)) as server:
        yield server


@contextmanager
def scripted_server() -> Iterator[ModelServer]:
    """Answers as `clis.yaml` says, whatever else a program asks it for."""
    with _model_server("--script", str(ROOT / "bench" / "clis.yaml"), "--lenient") as server:
        yield server


@contextmanager
def _model_server(*options: str) -> Iterator[ModelServer]:
    with _child(["-m", "tests.support.model_api", *options, "--no-record", "--quiet"], {}) as process:
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
