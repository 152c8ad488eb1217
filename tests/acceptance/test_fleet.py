"""The Procfile's commands as processes, as an operator starts them."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psycopg
import pytest
import redis

from tests.support.processes import EVERYTHING, Operator, procfile
from tests.support.producer import ingest, producer, status


@pytest.mark.spec("G1", "F1", "M1", "S5")
def test_the_procfile_answers_a_plain_celery_producer(operator: Operator) -> None:
    operator.add_group(script="- play:\n  - tool: clock\n  - answer: 'You said: {texts}'")
    commands = procfile()
    assert set(commands) == {"messages", "agent", "clis", "delivery", "beat", "gateway", "listen", "flower"}
    for name in ("messages", "agent", "delivery"):
        operator.start_anew(commands[name], name)
    for name in ("beat", "second-beat"):  # two do no harm
        operator.start_anew(commands["beat"], name, ready=False)
    task_id = ingest(operator)
    operator.wait_for(lambda: status(operator, task_id) == "completed", "the message to be answered")
    reply = "SELECT content->>'text', status FROM messages_out WHERE in_reply_to = %s"
    operator.wait_for(lambda: operator.rows(reply, task_id) == [("You said: hello", "delivered")], "the delivery")
    operator.wait_for(lambda: operator.value("SELECT count(*) FROM processes WHERE kind = 'beat'") == 2, "both beats")

    app = producer(operator)
    app.send_task("messages.ingest", args=["what", "is", "this"], queue="messages")
    app.send_task("messages.ingest", kwargs={"agent_group": "nobody", "text": "hello"}, queue="messages")
    app.send_task("messages.ingest", kwargs={"agent_group": "demo", "txt": "hello"}, queue="messages")
    app.send_task("agent.wake", args=["no-such-session"], queue="agent.scripted")
    operator.wait_for(lambda: operator.value("SELECT count(*) FROM rejected") == 4, "what was refused to be kept")
    shown = operator.cli("dead", "--rejected").stdout
    for reason in (
        "send keyword arguments",
        "no agent group 'nobody'; there are: demo",
        "txt: Extra inputs are not permitted",
        "there is no session 'no-such-session'",
    ):
        assert reason in shown
    again = operator.cli("send", "demo", "one more").stdout
    assert "You said: one more" in again
    assert operator.cli("doctor").returncode == 0


@pytest.mark.spec("F1")
def test_a_worker_starts_without_the_libraries_that_few_of_them_need(operator: Operator) -> None:
    starts = "import sys; from workers.app import app; app.loader.import_default_modules(); print(*sys.modules)"
    command = [sys.executable, "-c", starts]
    done = subprocess.run(command, env=operator.env, cwd=operator.folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "tasks.agent" in loaded
    assert loaded & {"mcp", "anthropic", "openai", "genai_prices", "fastapi", "starlette", "jinja2"} == set()


@pytest.mark.spec("M1", "S6")
def test_what_is_accepted_while_the_broker_is_down_is_answered_when_it_is_back(operator: Operator) -> None:
    operator.add_group()
    operator.worker(EVERYTHING)
    operator.start("celery -A workers.app beat", "beat", ready=False)
    operator.broker.stop()
    sent = operator.cli("send", "demo", "hello", "--no-wait", "--json")
    assert status(operator, _id(sent.stdout)) == "pending"
    operator.broker.start()
    operator.wait_for(lambda: status(operator, _id(sent.stdout)) == "completed", "the message to be answered", 60)


@pytest.mark.spec("F4")
def test_on_sigterm_a_turn_finishes_within_the_grace(operator: Operator) -> None:
    operator.add_group(script="- play:\n  - wait: 1.5\n  - answer: done")
    worker = operator.worker(EVERYTHING)
    first = ingest(operator)
    operator.wait_for(lambda: status(operator, first) == "processing", "the turn to run")
    assert operator.end(worker) == 0
    assert status(operator, first) == "completed"
    late = ingest(operator)
    assert status(operator, late) is None, "a worker that leaves takes nothing new"


@pytest.mark.spec("F4", "M4")
@pytest.mark.parametrize(
    ("grace", "signals"),
    [
        pytest.param("0.5", [signal.SIGTERM], id="after the grace"),
        pytest.param("60", [signal.SIGTERM, signal.SIGQUIT], id="within the grace"),
        pytest.param("60", [signal.SIGQUIT], id="without a grace", marks=pytest.mark.long),
    ],
)
def test_a_worker_that_leaves_hands_its_turn_over_and_it_goes_on_at_once(
    operator: Operator, grace: str, signals: list[signal.Signals]
) -> None:
    operator.add_group(script="- play:\n  - wait: 6\n  - answer: done")
    leaving = operator.worker(EVERYTHING, "leaving", LONGSHORE_GRACE_SECONDS=grace, LONGSHORE_LEASE_SECONDS="60")
    message = ingest(operator)
    operator.wait_for(lambda: status(operator, message) == "processing", "the turn to run")
    for sig in signals:
        os.kill(leaving.pid, sig)
        operator.wait_for(partial(_has_heard, operator.folder / "leaving.log", sig), f"the worker to hear {sig.name}")
    assert leaving.wait(30) == 0
    assert operator.rows("SELECT status, tries FROM messages_in") == [("pending", 0)]
    # Without beat: nobody sweeps, so it goes on because it was handed over, and long before its lease ran out.
    operator.worker(EVERYTHING, "staying", LONGSHORE_LEASE_SECONDS="60")
    operator.wait_for(lambda: status(operator, message) == "completed", "another worker to finish it")
    assert operator.rows("SELECT status, tries FROM messages_in") == [("completed", 1)]
    ends = operator.rows("SELECT payload->>'status' FROM events WHERE type = 'turn_ended' ORDER BY seq")
    assert ends == [("handed_over",), ("completed",)]


def _has_heard(log: Path, sig: signal.Signals) -> bool:
    return {signal.SIGTERM: "Warm shutdown", signal.SIGQUIT: "Cold shutdown"}[sig] in log.read_text()


@pytest.mark.spec("F1")
def test_revoke_and_time_limits_mean_what_they_say(operator: Operator) -> None:
    operator.add_group(script="- play:\n  - hang: true")
    worker = operator.worker(EVERYTHING, LONGSHORE_TURN_SECONDS="6", LONGSHORE_MAX_TRIES="1")
    app = producer(operator)
    revoked = ingest(operator, app, platform_id="one")
    operator.wait_for(lambda: status(operator, revoked) == "processing", "the turn to run")
    [(_, wakes)] = app.control.inspect(timeout=5, limit=1).active().items()
    app.control.revoke(wakes[0]["id"], terminate=True)
    operator.wait_for(lambda: status(operator, revoked) == "failed", "the revoked turn to end")
    assert operator.rows("SELECT error_class, error FROM messages_in") == [("cancelled", "stopped by an operator")]

    slow = ingest(operator, app, platform_id="two")
    operator.wait_for(lambda: status(operator, slow) == "failed", "the slow turn to be stopped")
    error = operator.value("SELECT error FROM messages_in WHERE id = %s", slow)
    assert error == "the turn took longer than it may"
    assert worker.poll() is None
    assert operator.value("SELECT count(*) FROM sessions WHERE lease_owner IS NOT NULL") == 0


@pytest.mark.spec("F1")
@pytest.mark.parametrize(
    "pool", ["solo", *(pytest.param(pool, marks=pytest.mark.long) for pool in ("threads", "prefork"))]
)
def test_other_pools_work_too(operator: Operator, pool: str) -> None:
    operator.add_group(script="- when: slow\n  play:\n  - hang: true\n- play:\n  - answer: fine")
    env = {"LONGSHORE_POOL": "prefork", "LONGSHORE_TURN_SECONDS": "3", "LONGSHORE_MAX_TRIES": "1"}
    option = "-c 2" if pool == "prefork" else f"-c 4 -P {pool}"
    ready = pool != "prefork"  # its children report when they get their first task
    command = f"celery -A workers.app worker -Q {EVERYTHING} -n {pool}@%h {option} --without-gossip --without-mingle"
    worker = operator.start(command, pool, ready=ready, **(env if pool == "prefork" else {}))
    message = ingest(operator)
    operator.wait_for(lambda: status(operator, message) == "completed", f"an answer from {pool}", 40)
    if pool == "prefork":  # the one of Celery's own pools that has time limits: they reach the turn
        slow = ingest(operator, text="slow", platform_id="two")
        operator.wait_for(lambda: status(operator, slow) == "failed", "the slow turn to be stopped")
        # Celery's prefork waits for ever for a result that comes in while it shuts down (a second signal ends it).
        with redis.Redis(port=operator.broker.port) as client:
            idle = "SELECT count(*) FROM messages_out WHERE status <> 'delivered'"
            operator.wait_for(
                lambda: not operator.value(idle) and not client.exists("unacked"), "the worker to be idle"
            )
    assert operator.end(worker) == 0


@pytest.mark.spec("F2")
@pytest.mark.parametrize("sessions", [200, pytest.param(300, marks=pytest.mark.long)])
def test_one_process_holds_hundreds_of_waiting_sessions(operator: Operator, sessions: int) -> None:
    operator.add_group(script="- play:\n  - wait: 600\n  - answer: never")
    worker = operator.worker(EVERYTHING, options="-c 400", LONGSHORE_GRACE_SECONDS="0")
    app = producer(operator)
    for number in range(sessions):
        ingest(operator, app, platform_id=f"chat{number}")
    leased = "SELECT count(*) FROM sessions WHERE lease_expires_at > now()"
    operator.wait_for(lambda: operator.value(leased) == sessions, f"{sessions} sessions to wait at once", 60)
    assert operator.value("SELECT count(DISTINCT lease_owner) FROM sessions WHERE lease_owner IS NOT NULL") == 1
    assert operator.end(worker, seconds=60) == 0
    assert operator.rows("SELECT DISTINCT status, tries FROM messages_in") == [("pending", 0)]


@pytest.mark.spec("M4")
def test_a_frozen_worker_that_comes_back_can_write_nothing(operator: Operator) -> None:
    operator.add_group(script="- play:\n  - wait: 2\n  - answer: done")
    operator.start("celery -A workers.app beat", "beat", ready=False)
    upkeep = "messages,upkeep,delivery"
    operator.worker(upkeep, "upkeep")
    frozen = operator.worker("agent.scripted", "frozen")
    message = ingest(operator)
    operator.wait_for(lambda: status(operator, message) == "processing", "the turn to run")
    os.kill(frozen.pid, signal.SIGSTOP)
    operator.worker("agent.scripted", "other")
    operator.wait_for(lambda: status(operator, message) == "completed", "another worker to take over", 40)
    os.kill(frozen.pid, signal.SIGCONT)
    log = operator.folder / "frozen.log"
    operator.wait_for(lambda: "lease" in log.read_text(), "the frozen one to notice")
    assert operator.value("SELECT count(*) FROM messages_out") == 1
    assert frozen.poll() is None


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"DATABASE_URL": "mysql://x@127.0.0.1/y"}, "Longshore keeps its rows in PostgreSQL or SQLite"),
        ({"DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}, "cannot be used"),
        ({"DATABASE_URL": "sqlite:///empty.db"}, "there is no database at sqlite:///empty.db"),
        ({"REDIS_URL": ""}, "REDIS_URL is not set"),
        ({"LONGSHORE_LEASE_SECONDS": "soon"}, "LONGSHORE_LEASE_SECONDS: Input should be a valid number"),
    ],
)
def test_a_worker_with_a_wrong_environment_says_so_and_leaves(
    operator: Operator, env: dict[str, str], said: str
) -> None:
    command = "celery -A workers.app worker -Q messages -n wrong@%h"
    worker = operator.start(command, "wrong", ready=False, **env)
    assert worker.wait(60) != 0
    log = (operator.folder / "wrong.log").read_text()
    assert said in log
    assert "Traceback" not in log
    assert "hunter2" not in log


def _id(stdout: str) -> str:
    import json

    return str(json.loads(stdout)["id"])


@pytest.mark.spec("M1", "F4")
@pytest.mark.parametrize("sig", [signal.SIGTERM, pytest.param(signal.SIGQUIT, marks=pytest.mark.long)])
def test_a_message_that_is_being_accepted_when_its_worker_leaves_is_not_lost(
    operator: Operator, sig: signal.Signals
) -> None:
    operator.add_group()
    leaving = operator.worker(EVERYTHING, "leaving", LONGSHORE_GRACE_SECONDS="0.2")
    with psycopg.connect(operator.database_url) as blocker:
        blocker.execute("LOCK TABLE messages_in")
        message = ingest(operator)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        operator.wait_for(lambda: operator.value(waiting), "the worker to be in the middle of it")
        os.kill(leaving.pid, sig)
        with redis.Redis(port=operator.broker.port) as client:
            operator.wait_for(lambda: client.llen("messages") == 1, "the message to be back on its queue")
    assert leaving.wait(60) == 0
    operator.worker(EVERYTHING, "staying")
    # It may have been stored after all, with nobody left to ring: then the sweep finds it.
    operator.start("celery -A workers.app beat", "beat", ready=False)
    operator.wait_for(lambda: status(operator, message) == "completed", "another worker to take it")
    assert operator.value("SELECT count(*) FROM messages_in") == 1


@pytest.mark.spec("M1")
def test_a_message_that_meets_a_database_it_cannot_write_to_stays_with_the_broker(operator: Operator) -> None:
    operator.add_group()
    operator.worker(EVERYTHING)
    operator.administer("ALTER DATABASE {} SET default_transaction_read_only = on")
    message = ingest(operator)
    log = operator.folder / "worker.log"
    operator.wait_for(lambda: "message.not_stored" in log.read_text(), "the worker to meet it", 60)
    operator.administer("ALTER DATABASE {} SET default_transaction_read_only = off")
    operator.wait_for(lambda: status(operator, message) == "completed", "the message to be answered", 60)


@pytest.mark.spec("M1", "F1")
def test_a_worker_outlives_its_broker_in_the_middle_of_messages(operator: Operator) -> None:
    operator.add_group()
    worker = operator.worker(EVERYTHING)
    operator.start("celery -A workers.app beat", "beat", ready=False)
    with psycopg.connect(operator.database_url) as blocker:
        blocker.execute("LOCK TABLE messages_in")
        app = producer(operator)
        for number in range(20):
            ingest(operator, app, message_id=str(number))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        operator.wait_for(lambda: operator.value(waiting), "the worker to be in the middle of them")
        operator.broker.stop(signal.SIGKILL)
        log = operator.folder / "worker.log"
        operator.wait_for(lambda: "Connection to broker lost" in log.read_text(), "the worker to notice")
    operator.broker.start()
    for number in range(20):  # as a producer does that has no answer
        ingest(operator, message_id=str(number))
    done = "SELECT count(*) FROM messages_in WHERE status = 'completed'"
    operator.wait_for(lambda: operator.value(done) == 20, "all of them to be answered", 60)
    assert worker.poll() is None
