"""Where answers arrive: a webhook receiver that writes down every request, and misbehaves now and then.

It refuses (503), dawdles, or takes a message and drops the connection before it says so. What it does with a request
depends on the key and on how often it has seen it, so that runs are alike, and it behaves from the third time on."""

import json
import socket
import threading
import time
import zlib
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from adapters.channels.signing import HEADER, check_signature
from adapters.errors import SignatureError

SECRET = "storm"
SLOW_SECONDS = 0.7
MISBEHAVES_TIMES = 2

Conduct = Literal["ok", "busy", "drop", "slow"]


@dataclass(frozen=True)
class Arrival:
    """A request. One that was refused (`accepted` is false) does not count as delivered."""

    number: int
    key: str
    endpoint: str
    thread: str | None
    kind: str
    text: str
    accepted: bool
    conduct: Conduct
    at: float


class Receiver:
    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.forged: list[str] = []
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="chaos-receiver")
        self._thread.start()

    def url(self, endpoint: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/{endpoint}"

    def stop(self) -> None:
        """After the senders: a connection they hold open keeps its thread."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, endpoint: str, headers: Any, raw: bytes) -> Conduct:
        try:
            check_signature(SECRET, raw, headers.get(HEADER))
        except SignatureError as error:
            self.forged.append(f"{endpoint}: {error}")
            return "busy"
        body = json.loads(raw)
        key = str(headers.get("idempotency-key"))
        with self._lock:
            times = self._seen[key] = self._seen.get(key, 0) + 1
            conduct = _conduct(key, times)
            self.arrivals.append(
                Arrival(
                    number=len(self.arrivals) + 1,
                    key=key,
                    endpoint=endpoint,
                    thread=body["thread"],
                    kind=body["kind"],
                    text=str(body["content"].get("text", "")),
                    accepted=conduct != "busy",
                    conduct=conduct,
                    at=time.monotonic(),
                )
            )
        if body["id"] != key:
            self.forged.append(f"{endpoint}: body says {body['id']}, header says {key}")
        return conduct


def _conduct(key: str, times: int) -> Conduct:
    if times > MISBEHAVES_TIMES:
        return "ok"
    draw = zlib.crc32(f"{key}/{times}".encode()) % 100
    return "busy" if draw < 8 else "drop" if draw < 14 else "slow" if draw < 20 else "ok"


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed leaves a broken connection: that is what we are here for."""


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            raw = self.rfile.read(length)
            if len(raw) < length:  # its sender died in the middle of it
                self.close_connection = True
                return
            conduct = receiver.take(self.path.strip("/"), self.headers, raw)
            if conduct == "slow":
                time.sleep(SLOW_SECONDS)
            if conduct == "drop":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(503 if conduct == "busy" else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """The arrivals are the log."""

    return Handler
