"""Two agents: `boss`, who steers sessions of `worker`."""

from typing import Any

import pytest

from models import AgentGroup, Session
from tests.support.fake_platform import grant_role, post_message, wire
from tests.support.fleet import Fleet, MakeFleet
from tests.support.tool_calls import tool_registry

ANSWER_PREFIXES = ("first review", "second review")


@pytest.fixture
async def fleet(make_fleet: MakeFleet) -> Fleet:
    """`worker`, in every thread of a room; `boss`, who steers it, in the office; ada, an admin of the worker."""
    fleet = await make_fleet(tool_registry())
    worker = await fleet.add_group("worker", script=f"{ANSWER_PREFIXES[0]}: {{texts}}")
    await wire(fleet, worker, session_mode="per-thread")
    boss = await fleet.add_group("boss", config={"policy": {"steers": ["worker"]}})
    await wire(fleet, boss, "office")
    await grant_role(fleet, "ada", "admin", worker)
    await grant_role(fleet, "ada", "member", boss)
    return fleet


async def hold_conversation(fleet: Fleet, *texts: str, thread: str = "t1") -> str:
    for text in texts:
        session_id = (await post_message(fleet, text, "ada", thread_id=thread)).session_id
        await fleet.settle_down()
    return session_id


async def fetch_sessions(fleet: Fleet, folder: str) -> list[Any]:
    groups = {row.folder: row.id for row in await fleet.rows(AgentGroup)}
    return [row for row in await fleet.rows(Session, Session.created_at) if row.agent_group_id == groups[folder]]


async def fetch_answers(fleet: Fleet, session_id: str) -> list[tuple[str, str]]:
    rows = [row for row in await fleet.outbox() if row.session_id == session_id]
    return [(row.status, row.content["text"]) for row in rows]
