"""What lies in the broker: our queues, lists that nobody reads, and bringing their messages home."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import celery
import pytest
import redis
from redis.asyncio import Redis

from adapters.model_port import AnyProvider
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from gateway.doctor import examine
from models import Audit
from models.fleet import report_alive
from tests.support.command_line import Cli
from tests.support.fleet import Fleet
from tests.support.processes import ROOT
from tests.support.servers import wait_until
from workers.app import app
from workers.events import redis_client
from workers.queues import INGEST, MESSAGES, SEPARATOR, TASKS, look, queue_names, rescue, task_of
from workers.refusals import RefusedError

pytestmark = pytest.mark.both_databases

SCRIPTED = Drivers[AnyProvider]("provider", {"scripted": ScriptedProvider()})
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
RESCUE = """
import asyncio, sys
from workers.events import redis_client
from workers.queues import rescue
asyncio.run(rescue(redis_client(sys.argv[1]), "messagez", ["messages"]))
"""


@pytest.fixture
def broker_url(redis_url: str) -> str:
    """A database of the server that other tests do not use."""
    return redis_url.rpartition("/")[0] + "/9"


@pytest.fixture
async def client(broker_url: str) -> AsyncIterator[Redis]:
    async with redis_client(broker_url) as opened:
        await opened.flushdb()
        yield opened
        await opened.flushdb()


def send(broker_url: str, task: str = INGEST, queue: str | None = None, **options: Any) -> None:
    """Another team's service, with its own Celery, which makes the queue it names."""
    with celery.Celery(broker=broker_url) as producer:
        kwargs = {"agent_group": "demo", "text": options.pop("text", "hello")}
        producer.send_task(task, kwargs=kwargs, queue=queue, ignore_result=True, **options)


def texts(items: list[Any]) -> list[str]:
    """What is said in messages, the oldest first."""
    return [str(json.loads(item)["headers"]["kwargsrepr"]) for item in reversed(items)]


async def strays(client: Redis) -> dict[str, int]:
    found = await look(client, queue_names(Registry()))
    return {one.name: one.waiting for one in found if not one.is_ours}


@pytest.mark.spec("G1")
def test_our_tasks_are_those_of_the_app() -> None:
    app.loader.import_default_modules()
    assert {name for name in app.tasks if not name.startswith("celery.")} == TASKS


@pytest.mark.spec("G1")
async def test_a_list_is_stray_only_if_it_has_messages_for_us(client: Redis, broker_url: str) -> None:
    send(broker_url, queue=MESSAGES)
    send(broker_url, queue=MESSAGES, priority=9)
    send(broker_url, queue="messagez")
    send(broker_url)  # no queue at all: Celery's own default
    send(broker_url, "crm.sync", queue="crm")  # another application, with its own workers
    send(broker_url, "crm.sync", queue="shared")
    send(broker_url, queue="shared")
    unread = f"{MESSAGES}{SEPARATOR}5"  # a priority that no worker looks for
    await client.lpush(unread, *await client.lrange("messagez", 0, 0))
    await client.lpush("numbers", "1", "2")
    await client.lpush("bytes", b"\xff\x00", b"[1, 2]", b'{"headers": 5}', b'{"headers": {"task": "messages.ingest"}}')
    await client.hset("unacked", "tag", "x")
    await client.set("text", "messages.ingest")
    found = await look(client, queue_names(Registry()))
    assert next(one for one in found if one.name == MESSAGES).waiting == 2
    assert [one.name for one in found if one.is_ours] == queue_names(Registry())
    assert await strays(client) == {"celery": 1, "messagez": 1, "shared": 2, r"messages\x06\x165": 1}
    assert (await rescue(client, r"messages\x06\x165", [MESSAGES])).moved == 1
    assert r"messages\x06\x165" not in await strays(client)


@pytest.mark.spec("G1")
def test_a_message_of_celerys_old_protocol_is_known_too() -> None:
    old = {"body": "eyJ0YXNrIjogIm1lc3NhZ2VzLmluZ2VzdCJ9", "properties": {"delivery_tag": "x"}, "headers": {}}
    assert task_of(json.dumps(old).encode()) == INGEST


@pytest.mark.spec("G1")
async def test_rescued_messages_keep_their_order_and_the_rest_stays(client: Redis, broker_url: str) -> None:
    for number in range(3):
        send(broker_url, queue="shared", text=f"message {number}")
        send(broker_url, "crm.sync", queue="shared", text=f"another's {number}")
    before = texts(await client.lrange("shared", 0, -1))
    done = await rescue(client, "shared", [MESSAGES])
    assert (done.moved, done.left) == (3, 3)
    assert texts(await client.lrange(MESSAGES, 0, -1)) == before[::2]
    assert texts(await client.lrange("shared", 0, -1)) == before[1::2]
    assert (await rescue(client, "shared", [MESSAGES])).moved == 0
    for name in (MESSAGES, "nowhere"):
        with pytest.raises(RefusedError, match=name):
            await rescue(client, name, [MESSAGES])


@pytest.mark.spec("G1", "M1")
async def test_a_rescue_that_is_killed_again_and_again_loses_and_doubles_nothing(
    client: Redis, broker_url: str
) -> None:
    send(broker_url, queue="messagez")
    [item] = await client.lrange("messagez", 0, -1)
    await client.delete("messagez")
    envelope = json.loads(item)
    sent = [json.dumps(envelope | {"number": number}) for number in range(6000)]
    await client.lpush("messagez", *sent)

    def in_order() -> list[str]:
        """The newest first: as they were before any was moved."""
        with redis.Redis.from_url(broker_url, decode_responses=True) as look:
            return [*look.lrange("messagez", 0, -1), *look.lrange(MESSAGES, 0, -1)]

    for _ in range(3):
        with redis.Redis.from_url(broker_url) as looking:
            moved = looking.llen(MESSAGES)
            child = subprocess.Popen([sys.executable, "-c", RESCUE, broker_url], cwd=ROOT, env=dict(os.environ))
            try:
                wait_until(lambda: looking.llen(MESSAGES) > moved, 30, "messages to move")  # noqa: B023
            finally:
                child.send_signal(signal.SIGKILL)
                child.wait(10)
        # What has moved is the oldest, so that both together are what there was: nothing lost, nothing twice.
        parts = in_order()
        left = await client.llen("messagez")
        assert 0 < left < 6000
        assert sorted(parts) == sorted(sent)
    done = await rescue(client, "messagez", [MESSAGES])
    assert (done.moved, done.left) == (left, 0)
    assert [json.loads(item)["number"] for item in in_order()] == list(reversed(range(6000)))


@pytest.mark.spec("G1", "G4")
@ONE_DATABASE
async def test_the_command_shows_who_reads_what_and_brings_messages_home(
    cli: Cli, fleet: Fleet, client: Redis, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", broker_url)
    await fleet.add_group(script="- answer: fine")
    await fleet.send()
    await fleet.db.transact(lambda conn: report_alive(conn, "a@host", "worker", pid=1, queues=["messages"]))
    await fleet.db.transact(lambda conn: report_alive(conn, "b@host", "gateway", pid=2, queues=["messages"]))
    send(broker_url, queue=MESSAGES)
    send(broker_url, queue="messagez")
    lines = {line["queue"]: line for line in json.loads((await cli("queues", "--json")).out)}
    assert lines["messages"] == {
        "queue": "messages", "in_broker": 1, "due": 0, "oldest": None, "workers": ["a@host"], "stray": False,
    }  # fmt: skip
    assert (lines["agent.scripted"]["due"], lines["agent.scripted"]["workers"]) == (1, [])
    assert (lines["messagez"]["in_broker"], lines["messagez"]["stray"]) == (1, True)
    shown = (await cli("queues")).out
    assert "nobody reads it" in shown
    assert "longshore queues rescue messagez" in shown
    settings = fleet.runtime.settings.model_copy(update={"redis_url": broker_url})
    checks = [check async for check in examine(settings, Registry(SCRIPTED)) if check.name == "stray queue"]
    assert [(check.state, "longshore queues rescue messagez" in check.remedy) for check in checks] == [
        ("warning", True)
    ]

    assert "1 moved to messages" in (await cli("queues", "rescue", "messagez")).out
    assert await client.llen(MESSAGES) == 2
    [line] = await fleet.rows(Audit)
    assert (line.who, line.act, line.target, line.detail) == (
        "cli",
        "queue.rescue",
        "messagez",
        {"moved": 1, "left": 0},
    )
    for name, said in (("messagez", "no list 'messagez'"), ("messages", "a queue of ours")):
        refused = await cli("queues", "rescue", name)
        assert (refused.code, said in refused.err) == (1, True)
    assert await fleet.rows(Audit) == [line]
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    away = await cli("queues")
    assert (away.code, "hunter2" in away.err, "does not answer" in away.err) == (69, False, True)
