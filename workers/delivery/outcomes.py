"""How a sending ended, written down under the sender's claim, and who is told. What returns something returns the next
message in line."""

import asyncio
from typing import Any, Literal

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import Channel, Receipt
from adapters.errors import DeliveryError, ErrorClass
from adapters.events import DeliveryChanged
from models.base import AnyRow, now
from models.database import uninterrupted
from models.notices import owner_notices, store_notices, tell_agent
from models.outbox import MessageOut, mark_delivered, next_in_line, settle_delivery
from models.people import owner_addresses
from models.quoting import quoted
from models.sessions import living_session, take_numbers
from scheduler.backoff import MAX_WAIT_SECONDS
from workers.consent.undelivered import card_failed
from workers.delivery.doubt import claimed_at, may_be_resolved
from workers.delivery.handover import Handing
from workers.events import envelope
from workers.runtime import Runtime

log = structlog.get_logger()

# So long ago that the sweep rings as soon as the row is due.
_LONG_AGO_SECONDS = 3600.0


async def delivered(runtime: Runtime, row: AnyRow, receipt: Receipt) -> str | None:
    """A database that is away is waited for as long as nobody else takes the row."""
    stored = {"platform_message_id": receipt.platform_message_id, **receipt.details}

    async def work(conn: AsyncConnection) -> tuple[bool, str | None]:
        done = await mark_delivered(conn, row.id, row.claim_token, stored)
        return done, await next_in_line(conn, row)

    done, following = await uninterrupted(runtime.db.transact(work, patience=runtime.settings.delivery_seconds))
    if done and row.content.get("outbox"):
        await asyncio.to_thread(runtime.outbox.remove, row.id)
    if done:
        files = tuple(receipt.details.get("files", ()))
        event = DeliveryChanged(message=row.seq, status="delivered", channel=row.channel_type, files=files)
        runtime.publisher.publish(envelope(row.session_id, event, turn_id=row.turn_id))
    return following


async def postponed(runtime: Runtime, row: AnyRow, seconds: float) -> None:
    """The platform's limits leave no room for it yet: nobody's fault, and no try. Those behind it wait for it."""
    changes = {"attempts": MessageOut.attempts - 1, "rung_at": now(-_LONG_AGO_SECONDS)}
    await runtime.db.transact(
        lambda conn: settle_delivery(
            conn, row.id, row.claim_token, status="pending", deliver_after=now(seconds), **changes
        )
    )


async def failed(runtime: Runtime, row: AnyRow, channel: Channel, handing: Handing, error: DeliveryError) -> str | None:
    why = runtime.redactor.text(str(error))
    progress = handing.progress
    if error.may_have_arrived and not handing.repeatable:
        progress = progress.doubting(handing.began)
        if not may_be_resolved(channel, runtime.settings):
            return await give_up(runtime, row, ErrorClass.TRANSPORT, why + progress.words(), status="unknown")
    if error.retry_after is not None:
        await runtime.rates.pause(row.channel_type, row.platform_id, channel.capabilities, error.retry_after)
    delay = held_back = _held_back_seconds(runtime, row, error)
    if held_back is None and error.retryable:
        delay = runtime.backoff.delay(row.attempts, error.retry_after)
    if delay is None:
        error_class = ErrorClass.TRANSPORT if error.retryable else ErrorClass.INVALID_REQUEST
        # A try before this one may have arrived.
        in_doubt = progress.doubt_since is not None
        status: Literal["failed", "unknown"] = "unknown" if in_doubt else "failed"
        return await give_up(runtime, row, error_class, why + progress.words(), status=status)
    log.warning("delivery.retry", message=row.id, channel=row.channel_type, error=why, retry_in=delay)
    changes: dict[str, Any] = {
        "status": "pending",
        "error": why,
        "error_class": ErrorClass.TRANSPORT,
        "deliver_after": now(delay),
    }
    changes |= {"receipt": progress.over().receipt(), "attempts": row.attempts - (held_back is not None)}
    await runtime.db.transact(lambda conn: settle_delivery(conn, row.id, row.claim_token, **changes))
    event = DeliveryChanged(message=row.seq, status="retrying", channel=row.channel_type, error=why)
    runtime.publisher.publish(envelope(row.session_id, event, turn_id=row.turn_id))
    return None  # those behind it wait for it


def _held_back_seconds(runtime: Runtime, row: AnyRow, error: DeliveryError) -> float | None:
    """The platform asks for patience and has not taken it: for how long, and the longer it goes on the longer. That
    uses up no try until the row is too old for it (None), as with providers."""
    asked, settings = error.retry_after, runtime.settings
    if not error.retryable or error.may_have_arrived or asked is None or asked >= MAX_WAIT_SECONDS:
        return None
    age = (claimed_at(row, settings) - (row.scheduled_for or row.created_at)).total_seconds()
    return max(asked, age / 10 - 1) if age < settings.limit_seconds else None


async def give_up(
    runtime: Runtime,
    row: AnyRow,
    error_class: ErrorClass,
    why: str,
    *,
    status: Literal["failed", "unknown"] = "failed",
) -> str | None:
    """Nobody will send this again by itself: the agent hears of it in its next turn, the owners at once. Whom an
    approval's card does not reach, somebody else is asked instead."""
    log.error("delivery.given_up", message=row.id, channel=row.channel_type, status=status, error=why)

    async def work(conn: AsyncConnection) -> list[str]:
        changes = {"status": status, "error": why, "error_class": error_class}
        if row.kind == "notice":  # about which nobody is told in turn
            await settle_delivery(conn, row.id, row.claim_token, **changes)
            return []
        owners = await owner_addresses(conn)
        # The agent may have begun anew since: it hears of it where it goes on.
        session_id = await living_session(conn, row.session_id)
        last = await take_numbers(conn, session_id, 1 + len(owners))
        if not await settle_delivery(conn, row.id, row.claim_token, **changes):
            return []
        result = {"message": row.seq, "error": why, "text": str(row.content.get("text", ""))[:200]}
        content = {"action": "deliver", "status": status, "result": result}
        await tell_agent(conn, session_id=session_id, seq=last, place=row, content=content)
        place = f"{row.channel_type} {quoted(row.platform_id)}"
        text = f"A message to {place} could not be delivered ({status}): {quoted(why)}"
        first = last - len(owners)
        return await store_notices(
            conn, owner_notices(owners, session_id=session_id, first_seq=first, key=f"{row.id}:{status}", text=text)
        )

    for message_out_id in await uninterrupted(runtime.db.transact(work)):
        runtime.bells.deliver(message_out_id)
    event = DeliveryChanged(message=row.seq, status=status, channel=row.channel_type, error=why)
    runtime.publisher.publish(envelope(row.session_id, event, turn_id=row.turn_id))
    if row.kind == "notice":
        await card_failed(runtime, row)
    return await runtime.db.read(lambda conn: next_in_line(conn, row))
