"""A turn opened by hand, for tests that want its tools and no provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.policy import parse_policy
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
