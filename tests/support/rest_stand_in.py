"""The HTTP side of stand-ins for platforms with a REST API: real sockets, and misbehaviour on demand.

A subclass says in `answer` what its platform would, and notes in `problems` what it had to refuse."""

import json
import ssl
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

# Not done: asks to wait, is away for now (503), refuses. Done all the same: breaks (500), drops the line, answers what
# cannot be read. And one that does not answer before the stand-in is closed.
Behaviour = Literal["busy", "broken", "refused", "spoiled", "lost", "garbled", "slow"]


@dataclass(frozen=True)
class Asked:
    method: str
    path: str  # decoded, below the address of the API
    query: Mapping[str, str]
    headers: Mapping[str, str]  # lower-case names
    body: bytes


@dataclass(frozen=True)
class Said:
    status: int
    body: Any = None  # JSON, unless it is bytes; None: nothing
    headers: Mapping[str, str] = field(default_factory=dict)


class RestStandIn:
    """`fail_next` queues misbehaviour for one request each. `scripted` answers come before that, as they are. With
    `tls`, a certificate of localhost, it is spoken to by https."""

    base = ""  # where the API begins

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.problems: list[str] = []
        self.asked: list[Asked] = []
        self.scripted: list[Said] = []
        self.waiting = threading.Event()  # a request is being answered slowly
        self._behaviours: list[Behaviour] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stand_in = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        address = "http://127.0.0.1" if tls is None else "https://localhost"
        self.url = f"{address}:{self._server.server_port}{self.base}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name=type(self).__name__)
        self._thread.start()

    def answer(self, asked: Asked) -> Said:
        raise NotImplementedError

    def misbehave(self, behaviour: Literal["busy", "refused"]) -> Said:
        """How this platform asks to wait seven seconds, and how it refuses."""
        raise NotImplementedError

    def problem(self, status: int, what: str, body: Any = None) -> Said:
        self.problems.append(what)
        return Said(status, {"message": what} if body is None else body)

    def fail_next(self, behaviour: Behaviour) -> None:
        with self._lock:
            self._behaviours.append(behaviour)

    def close(self) -> None:
        """Also ends requests that are being answered slowly."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def respond(self, asked: Asked) -> Said | None:
        """None: not a word."""
        with self._lock:
            self.asked.append(asked)
            if self.scripted:
                return self.scripted.pop(0)
            behaviour = self._behaviours.pop(0) if self._behaviours else None
            if behaviour in ("spoiled", "lost", "garbled", None):
                said = self.answer(asked)
        match behaviour:
            case None:
                return said
            case "busy" | "refused":
                return self.misbehave(behaviour)
            case "broken":
                return Said(503)
            case "spoiled":
                return Said(500)
            case "garbled":
                return Said(said.status, b"<html>")
            case "lost":
                return None
            case "slow":
                self.waiting.set()
                self._stopping.wait(30)
                return None


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for every answer: no thread outlives its test
    stand_in: RestStandIn

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who has asked may be gone before the answer is written; that is no fault. All else is told on stderr."""
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _handle(self) -> None:
        stand_in = self.server.stand_in
        chunked = self.headers.get("transfer-encoding") == "chunked"
        body = self._chunks() if chunked else self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        headers = {key.lower(): ", ".join(self.headers.get_all(key, ())) for key in self.headers}
        path = unquote(url.path.removeprefix(stand_in.base))
        said = stand_in.respond(Asked(self.command, path, query, headers, body))
        if said is None:
            return
        self.send_response(said.status)
        for name, value in said.headers.items():
            self.send_header(name, value)
        content = said.body if isinstance(said.body, bytes) else b"" if said.body is None else _json(said.body)
        if said.status != 204:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size + 2)[:-2]
        self.rfile.readline()
        return body

    do_GET = do_POST = do_PUT = do_PATCH = _handle  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
