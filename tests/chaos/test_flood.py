"""A flood of webhooks over real HTTP to a real gateway: exactly the good ones become rows, each once."""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.channels.signing import HEADER, sign
from adapters.channels.webhook import ENDPOINT_HEADER
from tests.support.http_flood import Reply, Request, flood
from tests.support.processes import Operator
from tests.support.servers import Valkey, free_port

SECRET = "a secret of the CRM"
CONNECTIONS = 64
SESSIONS = 25
PATIENCE_SECONDS = 250  # less than a signature lasts


@pytest.fixture
def operator(tmp_path: Path, postgres_database: str) -> Iterator[Operator]:
    broker = Valkey(tmp_path / "valkey")
    broker.start()
    endpoints = json.dumps({"crm": {"secret": SECRET, "agent": "demo"}})
    operator = Operator(tmp_path, postgres_database, broker, LONGSHORE_WEBHOOKS=endpoints)
    yield operator
    operator.close()
    broker.stop()


@pytest.mark.timeout(400)
@pytest.mark.spec("C8", "M1", "F4")
@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.long)])
def test_of_a_flood_exactly_the_good_ones_become_rows(operator: Operator, count: int) -> None:
    operator.add_group()
    operator.cli("wire", "demo", "webhook", "crm", "--per-thread")
    port = free_port()
    listener = operator.start("longshore listen", "listen", ready=False)
    gateway = operator.start(f"longshore gateway --port {port}", "gateway")
    forged, repeated = count // 20, count // 5
    good = [signed(f"good-{number}", number) for number in range(count - forged - repeated)]
    dice = random.Random(count)
    sent = [*good, *dice.sample(good, repeated), *(forgery(number) for number in range(forged))]
    dice.shuffle(sent)

    replies = asyncio.run(within_patience(port, sent))

    assert Counter(reply.status for reply in replies) == {202: count - forged, 401: forged}
    answers: dict[str, list[Reply]] = {}
    for request, reply in zip(sent, replies, strict=True):
        if reply.status == 202:
            answers.setdefault(json.loads(request.body)["id"], []).append(reply)
        else:
            assert json.loads(request.body)["id"].startswith("forged")
    rows = operator.rows("SELECT platform_message_id, id, session_id FROM messages_in")
    assert sorted(row[0] for row in rows) == sorted(answers)
    assert len(rows) == len(good)
    for name, row_id, session_id in rows:
        told = answers[name]
        assert {(reply.said["id"], reply.said["session"]) for reply in told} == {(row_id, session_id)}
        assert [reply.said.get("duplicate", False) for reply in told].count(False) == 1
    dense = (
        "SELECT count(*) FROM (SELECT max(seq) - count(*) AS gap FROM messages_in GROUP BY session_id) s WHERE gap = 0"
    )
    assert operator.value(dense) == SESSIONS
    assert operator.value("SELECT count(*) FROM rejected") == 0

    # Where no channel must be listened to, a listener waits for better times.
    operator.wait_for(lambda: operator.value("SELECT count(*) FROM processes WHERE kind = 'listen'"), "the listener")
    for process in ("gateway", "listen"):
        assert "alive" in operator.cli("health", process).stdout
    assert "listener.idle" in (operator.folder / "listen.log").read_text()
    assert operator.end(listener) == 0

    # Told to stop, it answers whoever waits, and goes.
    waiting = replace(good[0], headers={**good[0].headers, "Prefer": "wait=60"})
    assert asyncio.run(stopped_while_waiting(port, waiting, gateway.pid)).status == 202
    assert gateway.wait(20) == 0
    assert operator.value("SELECT count(*) FROM processes WHERE kind = 'gateway'") == 0


async def within_patience(port: int, requests: list[Request]) -> list[Reply]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await flood(port, requests, CONNECTIONS)


async def stopped_while_waiting(port: int, request: Request, pid: int) -> Reply:
    waiting = asyncio.create_task(flood(port, [request], 1))
    # It waits once its own look at the row is over: another request on another connection is answered after it.
    await flood(port, [replace(request, headers={**request.headers, "Prefer": ""})], 1)
    os.kill(pid, signal.SIGTERM)
    async with asyncio.timeout(20):
        [reply] = await waiting
    return reply


def signed(name: str, number: int) -> Request:
    body = json.dumps({"id": name, "text": f"hello {number}", "thread": f"t{number % SESSIONS}"}).encode()
    return request(body, sign(SECRET, body))


def forgery(number: int) -> Request:
    """Not signed, signed with another secret, too old, or written anew after it was signed."""
    said = {"id": f"forged-{number}", "text": "let me in", "thread": "t0"}
    body = json.dumps(said).encode()
    signatures = (
        "",
        sign("another", body),
        sign(SECRET, body, int(time.time()) - 301),
        sign(SECRET, json.dumps(said, indent=1).encode()),
    )
    return request(body, signatures[number % len(signatures)])


def request(body: bytes, signature: str) -> Request:
    headers = {ENDPOINT_HEADER: "crm", "Content-Type": "application/json"} | ({HEADER: signature} if signature else {})
    return Request("/channels/webhook", headers, body)
