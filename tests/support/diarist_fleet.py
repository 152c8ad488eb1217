"""A fleet whose agent is the `diarist`, a program that does what it is told and remembers it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import update

from adapters.model_port import AnyProvider
from adapters.registry import Drivers, Registry
from models import Approval, ProgramState
from tests.support.conditions import wait_for_condition
from tests.support.directive_provider import Diarist
from tests.support.fleet import Fleet, MakeFleet
from workers.consent.approvals import decide
from workers.loop import Job

MakeDiarists = Callable[..., Awaitable[tuple[Fleet, Diarist]]]


@pytest.fixture
def make_worker(make_fleet: MakeFleet) -> MakeDiarists:
    async def make(**changes: Any) -> tuple[Fleet, Diarist]:
        diarist = Diarist()
        drivers: dict[str, AnyProvider] = {"diarist": diarist}
        registry = Registry(providers=Drivers("provider", drivers))
        changes = {"sandbox": "none", "default_provider": "diarist"} | changes
        return await make_fleet(registry, **changes), diarist

    return make


@pytest.fixture
async def worker(make_worker: MakeDiarists) -> tuple[Fleet, Diarist]:
    fleet, diarist = await make_worker()
    await fleet.add_group(provider="diarist")
    return fleet, diarist


async def fetch_answers(fleet: Fleet) -> list[str]:
    return [row.content["text"] for row in await fleet.outbox() if row.kind == "chat" and "question" not in row.content]


async def answer_approval(fleet: Fleet, *, yes: bool = True) -> Any:
    approval = (await fleet.rows(Approval, Approval.created_at))[-1]
    decided = await decide(fleet.db, approval.id, approve=yes)
    for session_id, provider in decided.wakes:
        fleet.bells.wake(session_id, provider or "diarist")
    return approval


async def set_next_prompt(fleet: Fleet, words: str) -> None:
    """The next attempt at the turn is told these, as if a program did what it was told."""
    await fleet.execute(update(ProgramState).values(reason=f"go on\n{words}\n"))


async def start_turn(fleet: Fleet, diarist: Diarist, text: str) -> tuple[str, Job, "asyncio.Task[str]"]:
    accepted = await fleet.send(text)
    job = Job()
    running = asyncio.create_task(job.run(fleet.wake(accepted.session_id, "diarist")))
    await wait_for_condition(lambda: diarist.queries)
    await diarist.queries[-1].listening.wait()
    return accepted.session_id, job, running


async def send_during_turn(fleet: Fleet, session_id: str, text: str) -> None:
    await fleet.send(text)
    fleet.runtime.leases.mail(session_id)
    async with asyncio.timeout(20):
        while "messages_joined" not in [row.type for row in await fleet.events()]:
            await asyncio.sleep(0.02)
