"""Producers as their services run them, in three languages; and what becomes of what they get wrong."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import celery
import psycopg
import pytest
import redis

from tests.support.certificates import Authority
from tests.support.processes import BIN, ROOT, Operator
from tests.support.programs import REQUIRED
from tests.support.servers import Valkey, free_port
from tests.support.tls_front import tls_front

EVERYTHING = "messages,upkeep,delivery,agent.scripted"
EXAMPLES = ROOT / "examples" / "producers"
PYTHON = [str(BIN / "python"), str(EXAMPLES / "with_celery.py")]


def program(name: str) -> str:
    """Installed by `make clis`, or on PATH. In CI it is there."""
    ours = ROOT / ".clis" / name / "bin" / name
    found = str(ours) if ours.exists() else shutil.which(name)
    if found is None and os.environ.get(REQUIRED):
        pytest.fail(f"{name} is not installed: make clis")
    return found or pytest.skip(f"{name} is not installed: make clis")


def node() -> list[str]:
    return [program("node"), str(EXAMPLES / "with_node.mjs")]


def curl() -> list[str]:
    program("curl")
    return ["/bin/sh", str(EXAMPLES / "with_curl.sh")]


def run(command: list[str], *arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """In an environment with nothing of ours in it."""
    given = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"} | env
    return subprocess.run([*command, *arguments], env=given, cwd=folder, capture_output=True, text=True, timeout=60)


def queued(ran: subprocess.CompletedProcess[str]) -> str:
    """The id to follow."""
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()[2].rstrip(",")


def answer(operator: Operator, message_id: str) -> str | None:
    said = operator.value("SELECT content->>'text' FROM messages_out WHERE in_reply_to = %s", message_id)
    return None if said is None else str(said)


@pytest.mark.spec("G1", "M1")
def test_each_producer_gets_an_answer_and_may_send_again(operator: Operator, tmp_path: Path) -> None:
    operator.add_group()
    port = free_port()
    operator.start(f"longshore gateway --port {port}", "gateway", ready=False)
    operator.worker(EVERYTHING)
    operator.wait_for(lambda: operator.value("SELECT count(*) FROM processes") == 2, "the gateway to be ready", 40)
    made = operator.cli("token", "add", "crm", "--agent", "demo", "--role", "admin", "--scope", "send", "--json")
    token = json.loads(made.stdout)["token"]
    url = f"http://127.0.0.1:{port}"
    broker = {"REDIS_URL": operator.broker.url}
    http = {"LONGSHORE_URL": url, "LONGSHORE_TOKEN": token}
    text = 'Order "4711" \\ späť\n\twas cancelled'
    ids = []
    for command, env, key in ((PYTHON, broker, "order-1"), (node(), broker, "order-2"), (curl(), http, "order-3")):
        sent = [queued(run(command, "demo", text, key, folder=tmp_path, **env)) for _ in range(2)]
        assert sent[0] == sent[1], f"{command}: the same key has another id"
        operator.wait_for(lambda: answer(operator, sent[0]), f"an answer to {command}")  # noqa: B023
        assert answer(operator, sent[0]) == f"You said: {text}"
        ids.append(sent[0])
    # The same key in another language is the same message too.
    assert queued(run(node(), "demo", text, "order-1", folder=tmp_path, **broker)) == ids[0]
    with redis.Redis(port=operator.broker.port) as client:
        operator.wait_for(lambda: not client.exists("messages", "unacked"), "the queue to be empty")
    assert operator.rows("SELECT id FROM messages_in ORDER BY seq") == [(one,) for one in ids]
    assert operator.value("SELECT count(*) FROM rejected") == 0

    for message_id in ids:
        request = urllib.request.Request(f"{url}/v1/messages/{message_id}")
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request) as response:
            state = json.load(response)
        assert (state["id"], state["status"]) == (message_id, "completed")
        assert [said["text"] for said in state["answers"]] == [f"You said: {text}"]

    refused = run(curl(), "nobody", "hello", folder=tmp_path, **http)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "refused: {" in refused.stderr
    refused = run(curl(), "demo", "hello", folder=tmp_path, **http | {"LONGSHORE_TOKEN": "wrong"})
    assert (refused.returncode, '"status":401' in refused.stderr.replace(" ", "")) == (1, True)


@pytest.mark.spec("G1")
def test_node_speaks_to_a_redis_with_users_databases_and_tls(broker: Valkey, tmp_path: Path) -> None:
    secret = "p@ss:wörd/%"
    with redis.Redis(port=broker.port, db=3, decode_responses=True) as client:
        client.acl_setuser(
            "crm", enabled=True, passwords=[f"+{secret}"], keys=["messages"], commands=["+select", "+lpush"]
        )
        where = f"crm:{urllib.parse.quote(secret, safe='')}@localhost"
        authority = Authority(tmp_path)
        with tls_front(authority.server("localhost"), broker.port) as port:
            env = {"REDIS_URL": f"rediss://{where}:{port}/3", "NODE_EXTRA_CA_CERTS": str(tmp_path / "authority.pem")}
            message_id = queued(run(node(), "demo", "hello", folder=tmp_path, **env))
            stranger = run(node(), "demo", "hello", "k", folder=tmp_path, REDIS_URL=env["REDIS_URL"])
        [item] = client.lrange("messages", 0, -1)
        assert json.loads(item)["headers"]["id"] == message_id
        client.delete("messages")
        client.rpush("messages2", "x")
        client.set("messages", "not a list")
        plain = f"{where}:{broker.port}"
        wrong = [
            run(node(), "demo", "hello", "k", folder=tmp_path, REDIS_URL=f"redis://{address}")
            for address in (f"crm:hunter2@localhost:{broker.port}", f"{plain}/99", f"{plain}/3", "127.0.0.1:1")
        ]
    for ran, why in zip(
        [stranger, *wrong],
        ["certificate", "WRONGPASS", "index is out of range", "WRONGTYPE", "ECONNREFUSED"],
        strict=True,
    ):
        assert (ran.returncode, ran.stdout) == (1, "")
        assert why in ran.stderr
        assert "send it again with the key k" in ran.stderr
        assert "hunter2" not in ran.stderr
        assert secret not in ran.stderr


def mistakes(item: bytes) -> dict[str, bytes]:
    """What programs put on a queue that is no message for an agent, by what is said of it."""
    numbers = itertools.count()

    def broken(**parts: Any) -> bytes:
        number, envelope = next(numbers), json.loads(item)
        envelope["headers"] |= {"id": f"mistake-{number}"}
        envelope["properties"] |= {"delivery_tag": f"tag-{number}"}
        return json.dumps(envelope | parts).encode()

    def changed(body: Any = None, **headers: Any) -> bytes:
        envelope = json.loads(broken())
        said = body if isinstance(body, bytes) else json.dumps(body).encode()
        packed = envelope["body"] if body is None else base64.b64encode(said).decode()
        return json.dumps(envelope | {"headers": envelope["headers"] | headers, "body": packed}).encode()

    fine = {"agent_group": "demo", "text": "hello"}
    pickled = {"content-type": "application/x-python-serialize", "content-encoding": "binary"}
    return {
        "it is not JSON": b"hello",
        "it is no JSON object": b"5",
        "it has no properties": b'{"body": "x"}',
        "its headers are no object": broken(headers=[1]),
        "its body is not base64": broken(body="x"),
        "there is no task 'message.ingest' here": changed(task="message.ingest"),
        r"there is no task 'message.\ud800' here": changed(task="message.\ud800"),
        "no agent group 'nobody'": changed(body=[[], fine | {"agent_group": "nobody"}, {}], id="\ud800"),
        "its task is no text": changed(task=["x"]),
        "its id is no text": changed(id=5),
        "it names no task": broken(headers={}, body=base64.b64encode(b'{"hello": 1}').decode()),
        "its content-type is 'application/x-python-serialize'": broken(body="gARLBS4=", **pickled),
        "it is no task that can be run (DecodeError": changed(body=b"{nope"),
        "its body is not [args, kwargs, embed] as JSON": changed(body=5),
        "its body is not [args, kwargs, embed]: a list": changed(body=[[], "abc", {}]),
        "self: Extra inputs": changed(body=[[], fine | {"self": 1}, {}]),
        "call: Extra inputs": changed(body=[[], fine | {"call": 1}, {}]),
        "other tasks are chained to it": changed(body=[[], fine, {"chain": [{"task": "crm.next"}]}]),
        "its timelimit is not two numbers": changed(timelimit=5),
        "invalid ETA value 'soon'": changed(eta="soon"),
        "one of its headers shadow": changed(shadow=["x"]),
    }


@pytest.mark.spec("G1", "M1", "F1")
def test_what_no_worker_can_run_is_kept_with_the_reason_and_ends_none(operator: Operator) -> None:
    operator.add_group()
    # As many mistakes would hold all its places for ever, if they held one each.
    worker = operator.worker(EVERYTHING, options="-c 4")
    producer = celery.Celery(broker=operator.broker.url)
    fine = {"agent_group": "demo", "text": "hello"}
    with redis.Redis(port=operator.broker.port) as client:
        lost = producer.send_task("messages.ingest", kwargs=fine, queue="messagez").id
        wrong = mistakes(client.lrange("messagez", 0, 0)[0])
        with psycopg.connect(operator.database_url) as blocker:
            blocker.execute("LOCK TABLE rejected")
            client.lpush("messages", wrong["it is not JSON"])
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            operator.wait_for(lambda: operator.value(waiting), "the worker to be about to keep it")
            assert client.hlen("unacked") == 1, "the broker let go of it before its row was there"
        client.lpush("messages", *list(wrong.values())[1:])
        for _ in range(3):  # rung by a newer release's beat: one row tells of it
            producer.send_task("upkeep.tomorrow", queue="upkeep")
        kept = "SELECT count(*) FROM rejected"
        operator.wait_for(lambda: operator.value(kept) == len(wrong) + 1, "everything to be kept")
        operator.wait_for(lambda: not client.exists("messages", "upkeep", "unacked"), "the broker to be empty")
    assert worker.poll() is None
    reasons = [reason for (reason,) in operator.rows("SELECT reason FROM rejected")]
    for why in [*wrong, "there is no task 'upkeep.tomorrow' here"]:
        assert len([reason for reason in reasons if why in reason]) == 1, why
    shown = json.loads(operator.cli("dead", "--rejected", "--json").stdout)
    assert {row["source"] for row in shown} == {"queue messages", "queue upkeep", "messages.ingest"}
    payloads = [row["payload"] for row in shown]
    assert {"task": None, "content_type": "application/octet-stream", "bytes": 5, "body": "hello"} in payloads
    misspelt = {"task": "message.ingest", "content_type": "application/json", "args": [], "kwargs": fine}
    assert misspelt in payloads, "it could not be sent again"

    assert "longshore queues rescue messagez" in operator.cli("queues").stdout
    assert "1 moved to messages" in operator.cli("queues", "rescue", "messagez").stdout
    operator.wait_for(lambda: answer(operator, lost) == "You said: hello", "what went astray to be answered")
    assert worker.poll() is None


@pytest.mark.long
@pytest.mark.spec("G1", "M1")
def test_what_no_worker_can_run_waits_for_the_database_too(operator: Operator) -> None:
    operator.worker(EVERYTHING)
    operator.administer("ALTER DATABASE {} SET default_transaction_read_only = on")
    with redis.Redis(port=operator.broker.port) as client:
        client.lpush("messages", "hello")
        log = operator.folder / "worker.log"
        operator.wait_for(lambda: "message.not_stored" in log.read_text(), "the worker to meet it", 60)
        operator.administer("ALTER DATABASE {} SET default_transaction_read_only = off")
        operator.wait_for(lambda: operator.value("SELECT count(*) FROM rejected") == 1, "it to be kept after all", 60)
        operator.wait_for(lambda: not client.exists("messages", "unacked"), "the broker to be empty")
    assert operator.value("SELECT payload->>'body' FROM rejected") == "hello"
