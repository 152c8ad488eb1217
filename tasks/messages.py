"""`messages.ingest`: a message from another service's Celery app."""

import asyncio
from typing import Any

import structlog
from celery.exceptions import Reject

from models.errors import StoreError
from workers.app import Call, coroutine_task
from workers.discretion import DiscreetRequest
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.intake.rejections import record_rejection, row_id_of
from workers.refusals import RefusedError

log = structlog.get_logger()

# How long a message stays off the queue when the database is away.
PAUSE_SECONDS = 1.0


@coroutine_task("messages.ingest", acks_late=True, reject_on_worker_lost=True, Request=DiscreetRequest)
async def ingest(call: Call, /, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Store it and wake its agent. Acknowledged after the commit; what cannot be accepted is kept with the reason."""
    try:
        accepted = await _accept(call, args, kwargs)
    except Exception as error:  # neither stored nor kept as refused: the broker keeps it
        log.error("message.not_stored", task=call.task_id, error=type(error).__name__)
        await asyncio.sleep(PAUSE_SECONDS)
        raise Reject(type(error).__name__, requeue=True) from error
    if accepted is None:
        return {"rejected": True}
    accepted.ring(call.runtime.bells)
    return accepted.public()


async def _accept(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Accepted | None:
    """None: refused, and kept with the reason."""
    runtime = call.runtime
    try:
        if args:
            raise RefusedError("send keyword arguments: send_task('messages.ingest', kwargs={...})")
        row_id = row_id_of(call.task_id)
        return await accept(runtime.db, runtime.registry, runtime.settings, parse_incoming(kwargs), row_id=row_id)
    except StoreError:
        raise
    except RefusedError as error:
        reason = str(error)
    except Exception as error:  # the broker's copy is gone when we return: what we did not foresee is kept too
        log.exception("message.not_foreseen", task=call.task_id)
        reason = f"it could not be stored ({type(error).__name__})"
    log.warning("message.rejected", task=call.task_id, reason=reason)
    payload = {"args": list(args), "kwargs": kwargs}
    await record_rejection(runtime.db, call.task_id, "messages.ingest", reason, payload)
    return None
