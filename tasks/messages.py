"""`messages.ingest`: a message from another service's Celery app."""

import asyncio
from typing import Any

import structlog
from celery.exceptions import Reject

from models.errors import StoreError
from workers.app import Call, coroutine_task
from workers.ingest import RefusedError, accept, parse_incoming, record_rejection

log = structlog.get_logger()

# How long a message stays off the queue when the database is away.
PAUSE_SECONDS = 1.0


@coroutine_task("messages.ingest", acks_late=True, reject_on_worker_lost=True)
async def ingest(call: Call, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Store it and wake its agent. Acknowledged after the commit; what cannot be accepted is kept with the reason."""
    runtime = call.runtime
    try:
        try:
            if args:
                raise RefusedError("send keyword arguments: send_task('messages.ingest', kwargs={...})")
            incoming = parse_incoming(kwargs)
            accepted = await accept(runtime.db, runtime.registry, runtime.settings, incoming, row_id=call.task_id)
        except RefusedError as error:
            log.warning("message.rejected", task=call.task_id, reason=str(error))
            payload = {"args": list(args), "kwargs": kwargs}
            await record_rejection(runtime.db, call.task_id, "messages.ingest", str(error), payload)
            return {"rejected": str(error)}
    except StoreError as error:
        log.error("message.database_away", task=call.task_id, error=str(error))
        await asyncio.sleep(PAUSE_SECONDS)
        raise Reject(str(error), requeue=True) from error  # back on the queue: nothing is lost while we wait
    if accepted.wake_provider is not None:
        runtime.bells.wake(accepted.session_id, accepted.wake_provider)
    return accepted.model_dump(exclude={"wake_provider"})
