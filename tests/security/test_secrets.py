"""Turns in which everybody lets secrets slip: none may be found afterwards in a row, an event or a log."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio
import structlog
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ToolError
from adapters.redaction import process_redactor
from adapters.redaction_stream import LABEL
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from models import TranscriptItem
from models.base import Base
from tests.support.api_fleet import model_api
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import Call, Think, refuse, reply, rule, script
from workers import tool_loop
from workers.events import ALL, redis_client
from workers.logs import configure_logs, hide_secrets

pytestmark = pytest.mark.spec("F9")

KNOWN = "vault-9f8e7d6c5b4a3f2e"
SHAPED = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6"
PASSWORD = "pw-of-the-database"
ADDRESS = f"postgresql://me:{PASSWORD}@db.example.com/x"
SECRETS = (KNOWN, SHAPED, PASSWORD)
SLIP = f"first {KNOWN}, then {SHAPED}, and {ADDRESS}"


class Leaked(BaseModel):
    what: str = ""
    fail: bool = False


async def _leak(arguments: Leaked, context: ToolContext) -> str:
    logging.getLogger("some.library").warning("asked with %s", arguments)
    if arguments.fail:
        raise ToolError(f"refused: {SLIP}")
    return f"it is {SLIP}"


LEAK = Tool("leak", "Says too much.", Leaked, _leak, idempotent=True)


@pytest.fixture(autouse=True)
def _known_secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SOME_SERVICE_TOKEN", KNOWN)
    process_redactor.cache_clear()
    yield
    process_redactor.cache_clear()


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    """All that is logged, ours and of the libraries down to DEBUG, as it is written."""
    written, before = io.StringIO(), structlog.get_config()
    configure_logs("DEBUG", as_json=True)
    # Not kept by the modules' loggers: they go on to live in other tests.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(written), cache_logger_on_first_use=False)
    root, level = logging.getLogger(), logging.getLogger().level
    handler = logging.StreamHandler(written)
    hide_secrets(handler)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield written
    root.removeHandler(handler)
    root.setLevel(level)
    structlog.configure(**before)


class Heard:
    """Everything that is published, as it comes."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub
        self.texts: list[str] = []

    async def ends(self, count: int) -> list[dict[str, Any]]:
        """Up to the so many-th end of a turn."""
        async with asyncio.timeout(20):
            while sum(event["type"] == "turn_ended" for event in self.events) < count:
                raw = await self._pubsub.get_message(timeout=1)
                if raw is not None:
                    self.texts.append(raw["data"].decode())
        return self.events

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(text)["event"] for text in self.texts]

    @property
    def said(self) -> str:
        return "".join(event["text"] for event in self.events if event["type"] == "text_delta")


@pytest.fixture
async def heard(redis_url: str) -> AsyncIterator[Heard]:
    client: redis.asyncio.Redis = redis_client(redis_url)
    async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(ALL)
        assert await pubsub.get_message(timeout=5) is None
        yield Heard(pubsub)
    await client.aclose()


@pytest.fixture
async def leaky(make_fleet: MakeFleet) -> Fleet:
    return await make_fleet(Registry(tools=Drivers("tool", {"leak": LEAK})), max_tries=1)


async def _stored(fleet: Fleet, *, but: str = "") -> str:
    """Every column of every row."""

    async def read(conn: AsyncConnection) -> str:
        found = []
        for table in Base.metadata.sorted_tables:
            if table.name != but:
                for row in (await conn.execute(select(table))).all():
                    found.append(f"{table.name} {json.dumps(row._asdict(), default=str, ensure_ascii=False)}")
        return "\n".join(found)

    return await fleet.db.read(read)


def _assert_clean(what: str, text: str) -> None:
    for secret in SECRETS:
        place = text.find(secret)
        assert place < 0, f"{what}: …{text[max(0, place - 300) : place + 60]}…"


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.parametrize("chunk", [1, 7])
async def test_a_model_and_a_tool_that_say_too_much(
    leaky: Fleet, heard: Heard, logs: io.StringIO, monkeypatch: pytest.MonkeyPatch, provider: str, chunk: int
) -> None:
    said = script(
        rule(
            "go",
            reply(Think(f"I know {SLIP}."), f"Look: {SLIP}.", Call("leak", {"what": SLIP})),
            reply("Again.", Call("leak", {"what": SLIP, "fail": True})),
            f"It said {{result}}, and {SLIP}; that is all.",
        )
    )
    monkeypatch.setattr(tool_loop, "GATHER_SECONDS", 0.0)  # every piece is shown as it comes
    async with model_api(monkeypatch, said) as server:
        server.manner = replace(server.manner, chunk=chunk)
        await leaky.add_group(provider=provider)
        await leaky.send("go")
        assert await leaky.answer_wakes() == ["completed"]
    await heard.ends(1)
    stored = await _stored(leaky)
    _assert_clean("row", stored)
    _assert_clean("event", "\n".join(heard.texts))
    _assert_clean("deltas", heard.said)
    _assert_clean("log", logs.getvalue())
    assert f"first {LABEL}, then {LABEL}, and postgresql://me:{LABEL}@db.example.com/x" in heard.said
    assert heard.said.endswith("that is all."), "what was held back at the end is said"
    assert "asked with" in logs.getvalue()
    [answer] = await leaky.outbox()
    assert answer.content["text"].endswith(f"and postgresql://me:{LABEL}@db.example.com/x; that is all.")
    thoughts = [row.content for row in await leaky.rows(TranscriptItem) if row.type == "thinking"]
    assert all(LABEL not in json.dumps(thought["opaque"]) for thought in thoughts), "whole, or not at all"


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_vendor_whose_error_says_too_much(
    leaky: Fleet, heard: Heard, logs: io.StringIO, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    async with model_api(monkeypatch) as server:
        server.faults.add(refuse("invalid", message=f"no: {SLIP}", times=None))
        await leaky.add_group(provider=provider)
        await leaky.send("go")
        assert await leaky.answer_wakes() == ["failed"]
    events = await heard.ends(1)
    _assert_clean("row", await _stored(leaky))
    _assert_clean("event", "\n".join(heard.texts))
    _assert_clean("log", logs.getvalue())
    [turn] = await leaky.turns()
    assert LABEL in turn.error
    assert LABEL in events[-1]["error"]


@pytest.mark.parametrize("act", ["fail: {class: auth, message: 'no: %s'}", "crash: true"])
async def test_a_provider_with_a_loop_of_its_own(leaky: Fleet, heard: Heard, logs: io.StringIO, act: str) -> None:
    acts = [f"think: 'hm: {SLIP}'", f"say: '{SLIP}'", f"progress: '{SLIP}'", "tool: leak\n      with: {fail: true}"]
    acts += [f"approval: {{category: deploy, summary: '{SLIP}', risk: high}}", f"answer: 'so: {SLIP}'"]
    acts.append(act.replace("%s", SLIP))
    await leaky.add_group(script="- play:\n" + "".join(f"    - {act}\n" for act in acts))
    await leaky.send("go")
    await leaky.answer_wakes()
    await heard.ends(1)
    _assert_clean("row", await _stored(leaky, but="agent_groups"))  # the script is there
    _assert_clean("event", "\n".join(heard.texts))
    _assert_clean("log", logs.getvalue())
    assert {"thinking", "text_delta", "message", "progress", "tool_call", "approval_requested", "turn_ended"} <= {
        event["type"] for event in heard.events
    }
