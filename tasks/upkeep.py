"""`upkeep.sweep`: look for what nobody rang for, and ring."""

from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from models.fleet import report_alive
from models.rounds import begin_round
from scheduler.ringing import Pace
from scheduler.sweep import sweep as find_due
from workers.app import Call, coroutine_task

log = structlog.get_logger()

# Then the next ring goes on: a worker that is told to stop, and other sweepers, wait for a few seconds at most.
MAX_LOOKS: Final = 10


@coroutine_task("upkeep.sweep")
async def sweep(call: Call, rung_by: str | None = None) -> dict[str, int]:
    """One that comes while another has just begun does nothing: several beats, and a pile of rings that nobody was
    there to take, cost a statement each. One that comes while a long sweep is under way shares its work."""
    runtime, settings = call.runtime, call.runtime.settings

    async def begin(conn: AsyncConnection) -> bool:
        if rung_by is not None:
            await report_alive(conn, rung_by[:200], "beat", pid=0)
        return await begin_round(conn, "sweep", settings.sweep_seconds / 2)

    if not await runtime.db.transact(begin):
        return {"rung": 0}
    pace = Pace(settings.repeat_seconds, settings.default_provider, settings.alive_seconds)
    rung = 0
    for _ in range(MAX_LOOKS):
        found = await find_due(runtime.db, pace)
        for wake in found.wakes:
            if wake.provider in runtime.registry.providers.names:
                runtime.bells.wake(wake.session_id, wake.provider)
            else:
                log.warning("sweep.no_such_provider", session=wake.session_id, provider=wake.provider)
        for message_out_id in found.deliveries:
            runtime.bells.deliver(message_out_id)
        for message_out_id in found.doubtful:
            runtime.bells.settle(message_out_id)
        for workflow_id in found.workflows:
            runtime.bells.advance(workflow_id)
        rung += len(found.workflows) + len(found.wakes) + len(found.deliveries) + len(found.doubtful)
        if not found.full:
            break
    return {"rung": rung}
