"""Messages while everything dies: every one is answered, once, in order. `LONGSHORE_CHAOS=full` is the long version.

A message that lost its worker five times is declared dead, as it should be (`worker_lost`). The storm kills at a pace
that makes this rare; where it happens the test does what an operator would (`longshore dead retry`), counts it, and
allows it for one message in a hundred."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from models import MessageIn, MessageOut
from models.dead_letters import revive
from tests.support.storm.fault_injector import FaultInjector
from tests.support.storm.installation import MAX_TRIES, StormFleet, open_storm_fleet, until
from tests.support.storm.ledger import Complaint, Ledger, Planned
from tests.support.storm.producers import Producers
from tests.support.storm.report import Outcome
from tests.support.storm.scale import FULL, MIDDLE, SHORT, Scale, plan_messages

SCALES = [
    pytest.param(SHORT, id="short", marks=pytest.mark.timeout(SHORT.timeout)),
    pytest.param(MIDDLE, id="middle", marks=[pytest.mark.long, pytest.mark.timeout(MIDDLE.timeout)]),
]
if os.environ.get("LONGSHORE_CHAOS") == "full":
    SCALES = [pytest.param(FULL, id="full", marks=pytest.mark.timeout(FULL.timeout))]


@pytest.mark.spec("M1", "M4", "M7", "M8", "M9", "M10", "M12", "S5", "S6")
@pytest.mark.parametrize("scale", SCALES)
async def test_nothing_is_lost_and_nothing_is_answered_twice(scale: Scale, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    planned = plan_messages(scale)
    async with open_storm_fleet() as fleet:
        fleet.start_processes(scale)
        processes = set(fleet.processes.members)

        async def all_up() -> bool:
            return await fleet.ready() == processes

        await until(all_up, 90, "the fleet's start")
        up_after = time.monotonic() - started
        producers, injector = Producers(fleet), FaultInjector(fleet, scale)
        async with _running(injector.supervise()):
            async with _running(injector.inject_faults()) as faults:
                await _feed(producers, planned, scale.storm_seconds)
                await faults
            calm = time.monotonic()
            revived, late = await _drain(fleet, producers, planned, scale.drain_seconds)
            drained_after = time.monotonic() - calm
        await producers.close()
        ledger = Ledger(
            planned,
            list(fleet.receiver.arrivals),
            MAX_TRIES,
            revived=frozenset(revived),
            **await fleet.evidence(),
        )
        outcome = Outcome(
            scale, ledger, injector, producers, fleet, revived, up_after, drained_after, time.monotonic() - started
        )
        with capsys.disabled():
            print(outcome.summary())
        complaints = [*_of_the_fleet(scale, fleet, injector, producers, late, revived), *ledger.complaints()]
        if complaints:
            pytest.fail(outcome.report(complaints), pytrace=False)
    assert injector.kills == scale.kills


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Nothing may start or kill processes once the test has left: also not when it fails half-way."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _feed(producers: Producers, planned: list[Planned], seconds: float) -> None:
    """At an even pace over the length of the storm; a producer that waits holds nobody else up."""
    pace = seconds / len(planned)
    started = time.monotonic()
    sending: list[asyncio.Task[None]] = []
    repeated = started
    for number, message in enumerate(planned):
        await asyncio.sleep(max(0.0, started + number * pace - time.monotonic()))
        sending.append(asyncio.create_task(producers.send(message)))
        if time.monotonic() - repeated > 1:
            repeated = time.monotonic()
            sending.append(asyncio.create_task(_repeat(producers)))
    await asyncio.gather(*sending)


async def _repeat(producers: Producers) -> None:
    await producers.repeat_missed()


async def _drain(
    fleet: StormFleet, producers: Producers, planned: list[Planned], seconds: float
) -> tuple[set[str], bool]:
    """Until nothing is left to do. Returns what an operator had to bring back, and whether time ran out."""
    poison = {message.word for message in planned if message.poison}
    revived: set[str] = set()

    async def empty() -> bool:
        complete = await producers.repeat_missed()
        for row in await fleet.rows(MessageIn, MessageIn.status == "failed", MessageIn.error_class == "worker_lost"):
            if row.platform_message_id not in poison | revived:
                revived.add(row.platform_message_id)
                await fleet.db.transact(lambda conn, row=row: revive(conn, row.id))  # type: ignore[misc]
                await producers.wake(row.session_id)
        waiting = await fleet.rows(MessageIn, MessageIn.status.in_(["pending", "processing"]))
        unsent = await fleet.rows(MessageOut, MessageOut.status.in_(["pending", "sending"]))
        return complete and not waiting and not unsent

    done = await until(empty, seconds, "the end of all work", every=0.5, soft=True)
    return revived, not done


def _of_the_fleet(
    scale: Scale, fleet: StormFleet, injector: FaultInjector, producers: Producers, late: bool, revived: set[str]
) -> list[Complaint]:
    found = [Complaint(f"a process died by itself: {how}") for how in injector.fallen]
    found += [Complaint(f"{word} was accepted as two rows", (word,)) for word in producers.doubled]
    if late:
        found.append(Complaint(f"work was left {scale.drain_seconds:g} s after the storm"))
    if len(revived) > scale.messages // 100:
        found.append(Complaint(f"{len(revived)} messages lost their worker {MAX_TRIES} times", tuple(sorted(revived))))
    # Only a database that is away may fail a task: whatever else it meets, it knows what to do.
    crashes = [
        line for line in fleet.processes.mentions(["raised unexpected: "], 1000) if "DatabaseDownError" not in line
    ]
    found += [Complaint(f"a task crashed: {line}") for line in crashes[:20]]
    found += [Complaint(f"a request that is not ours: {what}") for what in fleet.receiver.forged]
    return found
