"""(http) `POST /v1/messages` of a real gateway, beside a bare FastAPI program that inserts into the same database.

One server process each, with the same settings, and kept connections from this process. The gateway checks the token
and what its bearer may, finds the agent, numbers the message and rings; the peer only inserts."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import httpx2
import psutil

from bench.figures import Aim, Figure
from bench.rows import GROUP, add_group, in_database
from bench.scale import Say, Scale
from bench.stage import DatabaseKind, Stage
from gateway.embedded import free_port
from models.tokens import new_token
from tests.support.http_flood import Request, flood
from tests.support.servers import wait_until
from workers.operations.tokens import add_token

CONNECTIONS = 32
SLICE = 320  # requests
AIM = Aim("at least", 0.6)


@dataclass
class Server:
    port: int
    headers: dict[str, str]
    process: psutil.Process


@dataclass
class Spent:
    """On so many requests: by the clock, and by the server's processor."""

    requests: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_ms(self) -> float:
        return self.cpu * 1000 / self.requests


def measure(stage: Stage, scale: Scale, kind: DatabaseKind, say: Say) -> list[Figure]:
    url = stage.make_database(kind)
    add_group(url)
    token = new_token()
    in_database(url, lambda conn: add_token(conn, "cli", "bench", token, role="owner"))
    numbers = count()
    repeats: list[dict[str, Spent]] = []
    with _servers(stage, url, token) as (gateway, peer):
        for repeat in range(scale.repeats + 1):
            spent = {"known": Spent(), "new": Spent(), "bare": Spent()}
            # In slices, one after the other: the machine is as busy for each of them.
            for _ in range(scale.requests // SLICE if repeat else 1):
                _post(gateway, numbers, spent["known"], in_new=False)
                _post(peer, numbers, spent["bare"], in_new=False)
                _post(gateway, numbers, spent["new"], in_new=True)
            shown = ", ".join(f"{name} {one.rate:.0f}/s" for name, one in spent.items())
            say(f"(http) {kind}, {f'repeat {repeat}' if repeat else 'warm-up'}: {shown}")
            if repeat:
                repeats.append(spent)
    rates = {name: [spent[name].rate for spent in repeats] for name in repeats[0]}
    costs = {name: [spent[name].cpu_ms for spent in repeats] for name in repeats[0]}
    return [
        Figure("http", f"POST /v1/messages ({kind})", rates["known"], rates["bare"], "/s", AIM),
        Figure("http", "  CPU of the server per request", costs["known"], costs["bare"], "ms"),
        Figure("http", "  a new conversation each", rates["new"], rates["bare"], "/s"),
        Figure("http", "  CPU of the server per request", costs["new"], costs["bare"], "ms"),
    ]


def _post(server: Server, numbers: Iterator[int], spent: Spent, *, in_new: bool) -> None:
    """A slice of requests over kept connections, each connection with its own conversation, or each request with
    one."""
    headers = {"Content-Type": "application/json"} | server.headers
    requests = []
    for place in range(SLICE):
        thread = f"new {next(numbers)}" if in_new else f"known {place % CONNECTIONS}"
        body = {"agent_group": GROUP, "thread_id": thread, "text": "Order 4711 was cancelled. Write to the customer."}
        requests.append(Request("/v1/messages", headers, json.dumps(body).encode()))

    async def run() -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        replies = await flood(server.port, requests, CONNECTIONS)
        took = loop.time() - started
        wrong = [reply for reply in replies if reply.status != 202]
        assert not wrong, f"{len(wrong)} of {SLICE} were not taken: {wrong[0]}"
        return took

    before = _cpu(server)
    spent.seconds += asyncio.run(run())
    spent.cpu += _cpu(server) - before
    spent.requests += SLICE


def _cpu(server: Server) -> float:
    times = server.process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _servers(stage: Stage, url: str, token: str) -> Iterator[tuple[Server, Server]]:
    with stage.workers(url) as workers:
        started = []
        for name, headers in (("gateway", {"Authorization": f"Bearer {token}"}), ("bare", dict[str, str]())):
            port = free_port()
            ours = ["gateway.cli", "gateway", "--port", str(port)]
            command = ours if name == "gateway" else ["bench.bare_http", url, str(port)]
            child = workers.program(name, [sys.executable, "-m", *command])
            path = "/healthz" if name == "gateway" else "/docs"
            wait_until(lambda port=port, path=path: _answers(port, path), seconds=30)  # type: ignore[misc]
            started.append(Server(port, headers, psutil.Process(child.process.pid)))
        yield started[0], started[1]


def _answers(port: int, path: str) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}{path}", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False
