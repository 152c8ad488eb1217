"""Agents on model APIs in real worker processes: a worker is killed in mid-turn, a question is answered from
elsewhere, and what it cost is on the bill. The models are a stand-in server that speaks the vendors' wires."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.model_api import Call, ModelApiThread, reply, rule, script, stall
from tests.support.processes import Operator

ZONES = ("UTC", "Europe/Vienna", "Asia/Tokyo", "America/Lima", "Africa/Cairo")
SCRIPT = script(
    rule(
        "tour",
        *(reply(Call("clock", {"timezone": z}), Call("send_message", {"text": z})) for z in ZONES),
        "That was all.",
    ),
    rule(
        "paint",
        reply(Call("ask_user_question", {"title": "Colour", "question": "Which?", "options": ["red", "blue"]})),
        "Painting it {result}.",
    ),
)
QUEUES = "messages,upkeep,delivery,agent.anthropic,agent.openai"
KEY = "sk-never-to-be-seen"


@pytest.fixture
def api() -> Iterator[ModelApiThread]:
    with ModelApiThread(SCRIPT) as server:
        yield server
        assert server.problems == []


@pytest.mark.spec("M7", "P3", "P4", "M17", "P21", "G6", "F9")
def test_a_killed_worker_a_question_and_the_bill(operator: Operator, api: ModelApiThread) -> None:
    keys = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": api.url,
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": api.openai_url,
    }
    operator.env |= keys
    operator.cli("groups", "add", "claude", "--provider", "anthropic", "--daily-budget", "50")
    operator.cli("groups", "add", "gpt", "--provider", "openai", "--model", "gpt-6.1-terra")
    operator.start("celery -A workers.app beat", "beat", ready=False)
    first = operator.worker(QUEUES, "first")

    # The sixth request is the last of a ten-tool turn: it hangs, and its worker is killed.
    api.fail(stall(200), predicate=lambda talk: talk.rounds == len(ZONES))
    operator.cli("send", "claude", "take me on a tour", "--no-wait")
    api.wait(1, "hanging", 60)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    api.heal()
    api.release()
    operator.worker(QUEUES, "second")
    done = "SELECT count(*) FROM turns WHERE status = 'completed'"
    operator.wait_for(lambda: operator.value(done) == 1, "the turn to be continued", 60)
    assert operator.rows("SELECT kind, count(*), count(DISTINCT key) FROM steps GROUP BY kind ORDER BY kind") == [
        ("model", 6, 6),
        ("tool", 10, 10),
    ]
    said = [row[0] for row in operator.rows("SELECT content->>'text' FROM messages_out ORDER BY seq")]
    assert said == [*ZONES, "That was all."]
    assert operator.value("SELECT max(attempt) FROM turns") == 2
    assert len(api.requests) == 7, "only the call that was cut was made again"

    operator.cli("send", "gpt", "paint the boat", "--no-wait")
    parked = "SELECT count(*) FROM turns WHERE status = 'parked'"
    operator.wait_for(lambda: operator.value(parked) == 1, "the turn to be parked")
    [asked] = json.loads(operator.cli("questions", "--json").stdout)
    assert "blue" in json.dumps(asked)
    operator.cli("answer", asked["id"][-8:], "2")
    operator.wait_for(lambda: operator.value(done) == 2, "the answered turn to end")
    painted = "SELECT count(*) FROM messages_out WHERE content->>'text' = 'Painting it blue.'"
    assert operator.value(painted) == 1

    used = json.loads(operator.cli("usage", "--by", "agent,model", "--json").stdout)["rows"]
    assert {(row["agent"], row["calls"]) for row in used} == {("claude", 6), ("gpt", 2)}
    assert all(row["cost_usd"] > 0 for row in used if row["agent"] == "claude")
    everything = operator.logs(100_000) + "".join(
        str(operator.rows(f"SELECT * FROM {table}"))
        for table in ("messages_in", "messages_out", "events", "steps", "transcript_items", "turns", "provider_health")
    )
    assert KEY not in everything
