"""A stand-in for the other end of the `webhook` channel: takes signed JSON over real HTTP, and can misbehave.

It checks signatures with code of its own, so that a mistake on our side is not made twice."""

import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Behaviour = Literal[
    "busy", "busy until a date", "busy for ever", "broken", "spoiled", "missing", "slow", "drop", "redirect"
]


class WebhookServer:
    """`fail_next` queues misbehaviour for one request each; everything else is taken and shown once per key."""

    def __init__(self, secret: str) -> None:
        self.shown: dict[str, dict[str, Any]] = {}  # by idempotency key, in order
        self.refused: list[str] = []
        self.elsewhere = 0  # requests that a followed redirect would make
        self.waiting = threading.Event()  # a request is being answered slowly
        self._secret = secret
        self._behaviours: list[Behaviour] = []
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.stand_in = self
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="webhook-stand-in")
        self._thread.start()

    def fail_next(self, behaviour: Behaviour) -> None:
        with self._lock:
            self._behaviours.append(behaviour)

    def close(self) -> None:
        """Also ends requests that are being answered slowly."""
        if not self.stopping.is_set():
            self.stopping.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def next_behaviour(self) -> Behaviour | None:
        with self._lock:
            return self._behaviours.pop(0) if self._behaviours else None

    def take(self, key: str, signature: str, body: bytes) -> str | None:
        """Show the message; else the reason why not."""
        reason = self._complaint(key, signature, body)
        with self._lock:
            if reason is not None:
                self.refused.append(reason)
            else:
                self.shown.setdefault(key, json.loads(body))
        return reason

    def _complaint(self, key: str, signature: str, body: bytes) -> str | None:
        stamp, _, digest = signature.removeprefix("t=").partition(",v1=")
        if not stamp.isdigit() or abs(time.time() - int(stamp)) > 60:
            return f"the time of the signature {signature!r} is off"
        expected = hmac.digest(self._secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hex()
        if not hmac.compare_digest(digest, expected):
            return "the signature does not fit"
        if json.loads(body)["id"] != key:
            return "the key of the header is not the id of the body"
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for every answer: no thread outlives its test
    stand_in: WebhookServer


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        stand_in = self.server.stand_in
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/elsewhere":
            stand_in.elsewhere += 1
            return self._answer(200)
        match stand_in.next_behaviour():
            case "busy":
                return self._answer(429, {"Retry-After": "7"})
            case "busy until a date":
                return self._answer(503, {"Retry-After": self.date_time_string(time.time() + 7)})
            case "busy for ever":
                return self._answer(429, {"Retry-After": "inf"})
            case "broken":
                return self._answer(503)
            case "spoiled":
                self._take(body)
                return self._answer(500)
            case "missing":
                return self._answer(404)
            case "redirect":
                return self._answer(307, {"Location": "/elsewhere"})
            case "slow":
                stand_in.waiting.set()
                stand_in.stopping.wait(30)
                return None
            case "drop":
                self._take(body)
                return None  # and not a word
            case None:
                return self._answer(401 if self._take(body) else 202)

    def do_GET(self) -> None:
        """A followed redirect would come back as this."""
        self.server.stand_in.elsewhere += 1
        self._answer(200)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _take(self, body: bytes) -> str | None:
        headers = self.headers
        return self.server.stand_in.take(
            headers.get("idempotency-key", ""), headers.get("x-longshore-signature", ""), body
        )

    def _answer(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
