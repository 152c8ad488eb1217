"""The fleet at a glance: what runs, what waits in which queue, how it went, and only what is mine."""

from datetime import datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import ColumnElement, insert
from sqlalchemy.orm import InstrumentedAttribute

from gateway.session_words import turn_standing
from models import AgentGroup, Database, MessageIn, MessageOut, Process, Session, Turn, Usage
from models.base import Base, new_id, now
from models.overview import Ended, Overview, Waiting, first_id_of, look_over
from models.spending import Mine, everybodys

pytestmark = pytest.mark.both_databases


class Yard:
    """Rows of a fleet with as little around them as the tables allow."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._seq = 0

    async def put(self, table: type[Base], **values: Any) -> str:
        row = {"id": new_id()} | values
        await self.db.transact(lambda conn: conn.execute(insert(table).values(**row)))
        return str(row["id"])

    async def session(self, folder: str, provider: str | None = None, **values: Any) -> dict[str, str]:
        group = await self.put(AgentGroup, folder=folder, name=folder, provider=provider)
        return {"agent_group_id": group, "session_id": await self.put(Session, agent_group_id=group, **values)}

    async def turn(self, of: dict[str, str], status: str, **values: Any) -> str:
        self._seq += 1
        row = {"number": self._seq, "provider": "openai", "lease_token": 1, "status": status} | values
        return await self.put(Turn, session_id=of["session_id"], **row)

    async def message(self, of: dict[str, str], kind: str = "chat", **values: Any) -> None:
        self._seq += 1
        row = {"seq": self._seq, "kind": kind, "channel_type": "local", "platform_id": "p", "content": {}} | values
        await self.put(MessageIn, **of, **row)

    async def look(self, mine: Mine = everybodys, **how: Any) -> Overview:
        asked: dict[str, Any] = {"default_provider": "anthropic", "alive_seconds": 30.0} | how
        return await self.db.read(lambda conn: look_over(conn, mine, **asked))


@pytest.fixture
def yard(db: Database) -> Yard:
    return Yard(db)


def only(group: str) -> Mine:
    def mine(column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        return column == group

    return mine


@pytest.mark.spec("G2", "G3")
async def test_what_is_due_is_counted_by_queue(yard: Yard) -> None:
    plain, other = await yard.session("plain"), await yard.session("other", "openai")
    await yard.message(plain)
    await yard.message(plain, process_after=now(3600))  # tomorrow's
    await yard.message(plain, wakes=False)
    await yard.message(plain, status="completed")
    await yard.message(other)
    await yard.message(other, kind="task")
    await yard.message(other, provider="scripted")
    resting = await yard.session("resting", resume_after=now(3600))
    await yard.message(resting)
    sent = {"kind": "notice", "idempotency_key": "k", "channel_type": "local", "platform_id": "p", "content": {}}
    await yard.put(MessageOut, session_id=plain["session_id"], seq=1, **sent)
    found = {item.queue: (item.messages, item.tasks) for item in (await yard.look()).waiting}
    assert found == {
        "agent.anthropic": (1, 0),
        "agent.openai": (1, 1),
        "agent.scripted": (1, 0),
        "delivery": (1, 0),
    }
    assert all(item.oldest is not None for item in (await yard.look()).waiting)
    narrow = await yard.look(only(plain["agent_group_id"]))
    assert [item.queue for item in narrow.waiting] == ["agent.anthropic", "delivery"]


@pytest.mark.spec("G2", "G3")
async def test_unfinished_turns_are_told_in_words_and_only_mine(yard: Yard) -> None:
    at_work: dict[str, Any] = {"lease_expires_at": now(60), "lease_owner": "w", "activity": "tool: read_file"}
    busy, lost = await yard.session("busy", **at_work), await yard.session("lost", lease_expires_at=now(-1))
    for of, status in ((busy, "running"), (lost, "running")):
        await yard.turn(of, status)
    await yard.turn(busy, "completed", ended_at=now())
    seen = await yard.look()
    assert [(row.folder, turn_standing(row)) for row in seen.turns] == [
        ("busy", "running read_file"),
        ("lost", "has lost its worker; another takes over"),
    ]
    assert seen.open_turns == 2
    narrow = await yard.look(only(lost["agent_group_id"]))
    assert ([row.folder for row in narrow.turns], narrow.open_turns) == (["lost"], 1)


@pytest.mark.spec("G2", "G3")
async def test_the_error_rate_is_that_of_the_last_hour(yard: Yard) -> None:
    of = await yard.session("one")
    assert (await yard.look()).ended.error_rate is None
    for status in ("completed", "completed", "completed", "failed", "cancelled"):
        await yard.turn(of, status, ended_at=now(-60))
    await yard.turn(of, "failed", ended_at=now(-4000))
    seen = await yard.look()
    assert seen.ended == Ended(completed=3, failed=1, cancelled=1)
    assert seen.ended.error_rate == 0.25
    assert (await yard.look(only("another"))).ended == Ended()


@pytest.mark.spec("G2", "G3")
async def test_cost_dead_letters_and_processes(yard: Yard) -> None:
    of = await yard.session("one")
    turn = await yard.turn(of, "completed", ended_at=now())
    spent = {"turn_id": turn, "provider": "openai", "model": "m", "input_tokens": 1, "output_tokens": 1}
    await yard.put(Usage, **of, **spent, cost_usd=Decimal("0.25"))
    await yard.put(Usage, **of, **spent, cost_usd=Decimal("9"), created_at=datetime.fromisoformat("2020-01-01T00:00Z"))
    await yard.message(of, status="failed")
    for name, seen_at in (("alive", now()), ("dead", now(-100))):
        values = {"name": name, "kind": "worker", "pid": 1, "seen_at": seen_at}
        await yard.db.transact(lambda conn, v=values: conn.execute(insert(Process).values(**v)))  # type: ignore[misc]
    seen = await yard.look()
    assert (seen.today.cost_usd, seen.dead) == (0.25, 1)
    assert [(row.name, row.alive) for row in seen.processes] == [("alive", True), ("dead", False)]
    narrow = await yard.look(only("another"), processes=False)
    assert (narrow.today.calls, narrow.dead, narrow.processes) == (0, 0, [])


def test_what_a_turn_is_at() -> None:
    def state(status: str, activity: str | None = None, left: float | None = 10) -> str:
        at = datetime.fromisoformat("2026-01-01T00:00Z")
        ends = None if left is None else at + timedelta(seconds=left)
        row: Any = SimpleNamespace(status=status, activity=activity, lease_expires_at=ends, at=at)
        return turn_standing(row)

    assert state("running", "calling model") == "asking the model"
    assert state("running", "resuming") == "going on where another worker stopped"
    assert state("running", "resuming", left=None) == "has lost its worker; another takes over"
    assert state("running") == "beginning"
    assert state("waiting", "rate limited", None) == "rests: rate limited"
    assert state("waiting", None, None) == "waits to be tried again"
    assert state("parked", "awaiting human", None) == "waits for a person"


def test_ids_sort_after_the_moment_they_were_made_at() -> None:
    moment = datetime.fromisoformat("2026-01-01T00:00Z")
    assert first_id_of(moment) < first_id_of(moment + timedelta(milliseconds=1)) < new_id()
    assert Waiting("q") + Waiting("q", 1, 2, moment) == Waiting("q", 1, 2, moment)
