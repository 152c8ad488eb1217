"""`upkeep.sweep`: look for what nobody rang for, and ring."""

import structlog

from models.fleet import report_alive
from scheduler.sweep import sweep as find_due
from workers.app import Call, coroutine_task

log = structlog.get_logger()


@coroutine_task("upkeep.sweep")
async def sweep(call: Call, rung_by: str | None = None) -> dict[str, int]:
    runtime = call.runtime
    if rung_by is not None:
        await runtime.db.transact(lambda conn: report_alive(conn, rung_by[:200], "beat", pid=0))
    rung = 0
    while True:
        found = await find_due(runtime.db, repeat_seconds=runtime.settings.repeat_seconds)
        for wake in found.wakes:
            provider = wake.provider or runtime.settings.default_provider
            if provider in runtime.registry.providers.names:
                runtime.bells.wake(wake.session_id, provider)
            else:
                log.warning("sweep.no_such_provider", session=wake.session_id, provider=provider)
        for message_out_id in found.deliveries:
            runtime.bells.deliver(message_out_id)
        for message_out_id in found.doubtful:
            runtime.bells.settle(message_out_id)
        rung += len(found.wakes) + len(found.deliveries) + len(found.doubtful)
        if not found.full:
            return {"rung": rung}
