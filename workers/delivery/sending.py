"""Sending what agents said: claim a row, hand it over under its key, write down how that ended; then the next in line.

A row is sent in order with its neighbours to the same place, retried with backoff, and never sent under a second
key."""

from time import monotonic

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import AdapterError, DeliveryError, ErrorClass, ToolError
from models.base import AnyRow
from models.database import uninterrupted
from models.errors import StoreError
from models.outbox import claim_delivery, next_in_line
from models.sessions import may_reach
from workers.agents import AGENT, hand_to_agent
from workers.delivery.doubt import UndecidedError
from workers.delivery.handover import Handing, NoRoomError, TakenAwayError
from workers.delivery.outcomes import delivered, failed, give_up, postponed
from workers.runtime import Runtime

log = structlog.get_logger()


async def send(runtime: Runtime, message_out_id: str) -> None:
    """Send a message and whatever waits behind it."""
    following: str | None = message_out_id
    while following is not None:
        before = monotonic()
        claimed = await _claim(runtime, following)
        if claimed is None:
            return
        following = await _send_claimed(runtime, *claimed, before)


async def _claim(runtime: Runtime, message_out_id: str) -> tuple[AnyRow, bool] | None:
    """The row, now ours to send, and whether its agent may send there at all."""

    async def work(conn: AsyncConnection) -> tuple[AnyRow, bool] | None:
        row = await claim_delivery(conn, message_out_id, runtime.settings.delivery_seconds)
        if row is None:
            return None
        # Notices are the fleet's own, to the place a message came from and to owners. To agents, only actions write.
        if row.kind == "notice" or row.channel_type == AGENT:
            return row, True
        return row, await may_reach(conn, row.session_id, row.channel_type, row.platform_id)

    return await runtime.db.transact(work)


async def _send_claimed(runtime: Runtime, row: AnyRow, may_go_there: bool, claimed: float) -> str | None:
    """Send it, ours since `claimed` at least (monotonic); returns the next in line."""
    if row.status == "cancelled":  # of a replay from which nothing leaves
        return await runtime.db.read(lambda conn: next_in_line(conn, row))
    if not may_go_there:
        why = f"this agent may not send to {row.channel_type} {row.platform_id!r}"
        return await give_up(runtime, row, ErrorClass.INVALID_REQUEST, why)
    if row.channel_type == AGENT:
        return await _to_agent(runtime, row)
    try:
        channel = runtime.registry.channels.get(row.channel_type)
    except AdapterError as error:
        return await give_up(runtime, row, ErrorClass.INVALID_REQUEST, str(error))
    handing = Handing(runtime, channel, row, claimed)
    try:
        receipt = await handing.run()
    except NoRoomError as error:
        await postponed(runtime, row, error.seconds)
        return None
    except UndecidedError as error:
        error_class = ErrorClass.WORKER_LOST if row.error is None else ErrorClass.TRANSPORT
        return await give_up(runtime, row, error_class, f"{error}{handing.progress.words()}", status="unknown")
    except TakenAwayError:
        log.warning("delivery.taken_away", message=row.id, channel=row.channel_type)
        return None
    except StoreError:  # what was sent is not on record: the row stays in doubt, and is settled later
        raise
    except DeliveryError as error:
        return await failed(runtime, row, channel, handing, error)
    except TimeoutError:
        late = DeliveryError("no answer in time", retryable=True, may_have_arrived=True)
        return await failed(runtime, row, channel, handing, late)
    except Exception as error:  # a driver's bug must not leave the row in doubt for ever
        log.exception("channel.crashed", channel=row.channel_type)
        # Only its type: the text of a driver's error may hold an address with a key in it.
        crash = DeliveryError(f"the channel crashed ({type(error).__name__})", retryable=True, may_have_arrived=True)
        return await failed(runtime, row, channel, handing, crash)
    return await delivered(runtime, row, receipt)


async def _to_agent(runtime: Runtime, row: AnyRow) -> str | None:
    async def work(conn: AsyncConnection) -> tuple[tuple[str, str | None] | None, str | None]:
        woken = await hand_to_agent(conn, row, runtime.settings.repeat_seconds)
        return woken, await next_in_line(conn, row)

    try:
        woken, following = await uninterrupted(runtime.db.transact(work))
    except ToolError as error:
        return await give_up(runtime, row, ErrorClass.INVALID_REQUEST, str(error))
    if woken is not None:
        runtime.bells.wake(woken[0], woken[1] or runtime.settings.default_provider)
    return following
