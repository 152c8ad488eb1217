"""A turn opened by hand, for tests that want its tools and no provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import update

from adapters.policy import parse_policy
from models import MessageIn, Session
from models.base import now
from tests.support.fleet import Fleet
from workers.actions.caller import Caller
from workers.consent.risky_calls import Consent
from workers.journal import Journal
from workers.loop import current_job
from workers.opening import OpenedTurn, open_next
from workers.toolbox import Equipment, JournaledToolBox
from workers.toolset import tools_of
from workers.watchdog import Watchdog


@asynccontextmanager
async def opened_tools(fleet: Fleet, folder: str = "demo", *, key_prefix: str = "") -> AsyncIterator[JournaledToolBox]:
    """The tool box of a turn that answers `hello`, made as workers make it. The turn is not ended; its lease is kept
    until here."""
    runtime = fleet.runtime
    accepted = await fleet.send("hello", agent_group=folder)
    turn = await fleet.db.transact(
        lambda conn: open_next(conn, runtime.registry, runtime.settings, accepted.session_id, runtime.owner, None)
    )
    assert isinstance(turn, OpenedTurn)
    job = current_job()
    journal = Journal(runtime.db, runtime.publisher, turn.lease, turn.id, turn.event_seq, job)
    caller = Caller(turn, parse_policy(turn.config), runtime.registry, "scripted")
    workspace = await runtime.workspace(turn.folder)
    with runtime.leases.hold(turn.lease, job):
        try:
            yield JournaledToolBox(
                runtime.db,
                runtime.bells,
                tools_of(runtime.registry, caller.policy, sandboxed=False),
                journal,
                Watchdog(runtime.settings.silent_seconds),
                caller,
                Equipment(workspace, runtime.outbox.root, runtime.web, runtime.redactor),
                Consent(runtime.db, runtime.bells, journal, caller, 60.0),
                key_prefix=key_prefix,
            )
        finally:
            await journal.close()


async def retry_now(fleet: Fleet) -> list[str]:
    """What the sweep does when the time has come."""
    await fleet.execute(update(Session).values(resume_after=now(-1), woken_at=None))
    await fleet.execute(update(MessageIn).where(MessageIn.status == "pending").values(process_after=now(-1)))
    await fleet.sweep()
    return await fleet.answer_wakes()


async def abandon_turn(fleet: Fleet, session_id: str) -> Any:
    """What a kill -9 leaves: the turn is open, its messages are processing, the lease runs out."""
    runtime = fleet.runtime
    opened = await fleet.db.transact(
        lambda conn: open_next(conn, runtime.registry, runtime.settings, session_id, "a worker that dies", "scripted")
    )
    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))
    return opened
