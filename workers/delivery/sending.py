"""Sending what agents said: claim the row, send with its key, write down the receipt; then the next in line.

A row is sent in order with its neighbours to the same place, retried with backoff, and never sent under a second key.
When a sender died half-way, a channel that honours keys is sent it again; one that does not is asked, or the row ends
as `unknown` and people are told: guessing could say it twice."""

import asyncio
from dataclasses import replace
from typing import Literal

import structlog
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import Channel, Destination, OutboundMessage, Receipt
from adapters.errors import AdapterError, ChannelError, DeliveryError, ErrorClass, ToolError
from adapters.events import DeliveryChanged
from models.base import AnyRow, now
from models.database import uninterrupted
from models.outbox import (
    MessageOut,
    claim_delivery,
    mark_delivered,
    next_in_line,
    platform_message_id,
    settle_delivery,
)
from models.people import owner_addresses
from models.sessions import living_session, may_reach, take_numbers
from workers.agents import AGENT, hand_to_agent
from workers.events import envelope
from workers.notices import owner_notices, store_notices, tell_agent
from workers.runtime import Runtime

log = structlog.get_logger()


async def send(runtime: Runtime, message_out_id: str) -> None:
    """Send a message and whatever waits behind it."""
    following: str | None = message_out_id
    while following is not None:
        claimed = await _claim(runtime, following)
        if claimed is None:
            return
        following = await _send_claimed(runtime, *claimed)


async def settle_doubtful(runtime: Runtime, message_out_id: str) -> None:
    """Decide about a row whose sender died between sending and writing it down."""
    row = await runtime.db.transact(
        lambda conn: _take_doubtful(conn, message_out_id, runtime.settings.delivery_seconds)
    )
    if row is None:
        return
    following = await _settle(runtime, row)
    if following is not None:
        runtime.bells.deliver(following)


async def _settle(runtime: Runtime, row: AnyRow) -> str | None:
    if row.channel_type == AGENT:  # sent and written down in one: it was not sent
        await runtime.db.transact(lambda conn: settle_delivery(conn, row.id, row.claim_token, status="pending"))
        return str(row.id)
    try:
        channel = runtime.registry.channels.get(row.channel_type)
    except AdapterError as error:
        return await _give_up(runtime, row, ErrorClass.INVALID_REQUEST, str(error))
    receipt = None
    try:
        async with asyncio.timeout(runtime.settings.delivery_seconds * 0.75):
            receipt = await channel.find_receipt(Destination(row.platform_id, row.thread_id), row.idempotency_key)
    except Exception as error:  # then nobody knows  # noqa: BLE001
        log.warning("delivery.not_found_out", message=row.id, channel=row.channel_type, error=type(error).__name__)
    if receipt is not None:
        return await _delivered(runtime, row, receipt)
    # A message that kills its senders must not do so for ever.
    if channel.capabilities.idempotent and row.attempts < runtime.settings.max_tries:
        await runtime.db.transact(lambda conn: settle_delivery(conn, row.id, row.claim_token, status="pending"))
        return str(row.id)
    why = "its sender died while sending; the platform cannot say whether it arrived"
    return await _give_up(runtime, row, ErrorClass.WORKER_LOST, why, status="unknown")


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


async def _take_doubtful(conn: AsyncConnection, message_out_id: str, seconds: float) -> AnyRow | None:
    statement = (
        update(MessageOut)
        .where(MessageOut.id == message_out_id, MessageOut.status == "sending", MessageOut.claim_expires_at < now())
        .values(claim_token=MessageOut.claim_token + 1, claim_expires_at=now(seconds))
        .returning(MessageOut.__table__)
    )
    taken: AnyRow | None = (await conn.execute(statement)).one_or_none()
    return taken


async def _send_claimed(runtime: Runtime, row: AnyRow, may_go_there: bool) -> str | None:
    """Send it; returns the next in line."""
    if not may_go_there:
        why = f"this agent may not send to {row.channel_type} {row.platform_id!r}"
        return await _give_up(runtime, row, ErrorClass.INVALID_REQUEST, why)
    if row.channel_type == AGENT:
        return await _to_agent(runtime, row)
    try:
        channel = runtime.registry.channels.get(row.channel_type)
    except AdapterError as error:
        return await _give_up(runtime, row, ErrorClass.INVALID_REQUEST, str(error))
    try:
        # Ends before the claim does, so that nobody else settles the row while we still send.
        async with asyncio.timeout(runtime.settings.delivery_seconds * 0.75):
            receipt = await _hand_over(runtime, channel, row)
    except DeliveryError as error:
        return await _failed(runtime, row, channel, error)
    except TimeoutError:
        late = DeliveryError("no answer in time", retryable=True, may_have_arrived=True)
        return await _failed(runtime, row, channel, late)
    except Exception as error:  # a driver's bug must not leave the row in doubt for ever
        log.exception("channel.crashed", channel=row.channel_type)
        # Only its type: the text of a driver's error may hold an address with a key in it.
        crash = DeliveryError(f"the channel crashed ({type(error).__name__})", retryable=True, may_have_arrived=True)
        return await _failed(runtime, row, channel, crash)
    return await _delivered(runtime, row, receipt)


async def _to_agent(runtime: Runtime, row: AnyRow) -> str | None:
    async def work(conn: AsyncConnection) -> tuple[tuple[str, str | None] | None, str | None]:
        woken = await hand_to_agent(conn, row, runtime.settings.repeat_seconds)
        return woken, await next_in_line(conn, row)

    try:
        woken, following = await uninterrupted(runtime.db.transact(work))
    except ToolError as error:
        return await _give_up(runtime, row, ErrorClass.INVALID_REQUEST, str(error))
    if woken is not None:
        runtime.bells.wake(woken[0], woken[1] or runtime.settings.default_provider)
    return following


async def _hand_over(runtime: Runtime, channel: Channel, row: AnyRow) -> Receipt:
    """A message, or a change to an earlier one as far as the platform can show it."""
    destination = Destination(row.platform_id, row.thread_id)
    message = OutboundMessage(destination, row.content, row.idempotency_key, row.kind)
    operation = row.content.get("operation")
    if operation is None:
        if not row.content.get("outbox"):
            return await channel.deliver(message)
        content = {key: value for key, value in row.content.items() if key != "outbox"}
        if not channel.capabilities.files:
            names = ", ".join(str(file["name"]) for file in content["files"])
            content["text"] = f"{content['text']}\n[{names}: files cannot be sent here]".strip()
            return await channel.deliver(replace(message, content=content))
        files = await asyncio.to_thread(runtime.outbox.files, row.id)
        return await channel.deliver(replace(message, content=content, files=files))
    target = await runtime.db.read(lambda conn: platform_message_id(conn, row.session_id, row.content["message"]))
    try:
        if operation == "edit" and target is not None and channel.capabilities.edits:
            await channel.edit(destination, target, {"text": row.content["text"]})
            return Receipt(target)
        if operation == "reaction":
            if target is None or not channel.capabilities.reactions:
                return Receipt(details={"skipped": "no reactions there"})
            await channel.react(destination, target, row.content["emoji"])
            return Receipt(target)
    except DeliveryError:
        raise
    except ChannelError as error:
        raise DeliveryError(str(error), retryable=False) from error
    return await channel.deliver(replace(message, content={"text": row.content["text"]}))


async def _delivered(runtime: Runtime, row: AnyRow, receipt: Receipt) -> str | None:
    stored = {"platform_message_id": receipt.platform_message_id, **receipt.details}

    async def work(conn: AsyncConnection) -> tuple[bool, str | None]:
        done = await mark_delivered(conn, row.id, row.claim_token, stored)
        return done, await next_in_line(conn, row)

    done, following = await uninterrupted(runtime.db.transact(work, patience=runtime.settings.delivery_seconds / 2))
    if done and row.content.get("outbox"):
        await asyncio.to_thread(runtime.outbox.remove, row.id)
    if done:
        files = tuple(receipt.details.get("files", ()))
        event = DeliveryChanged(message=row.seq, status="delivered", channel=row.channel_type, files=files)
        runtime.publisher.publish(envelope(row.session_id, event, turn_id=row.turn_id))
    return following


async def _failed(runtime: Runtime, row: AnyRow, channel: Channel, error: DeliveryError) -> str | None:
    why = runtime.redactor.text(str(error))
    if error.may_have_arrived and not channel.capabilities.idempotent:
        return await _give_up(runtime, row, ErrorClass.TRANSPORT, why, status="unknown")
    delay = runtime.backoff.delay(row.attempts, error.retry_after) if error.retryable else None
    if delay is None:
        error_class = ErrorClass.TRANSPORT if error.retryable else ErrorClass.INVALID_REQUEST
        return await _give_up(runtime, row, error_class, why)
    log.warning("delivery.retry", message=row.id, channel=row.channel_type, error=why, retry_in=delay)
    changes = {"status": "pending", "error": why, "error_class": ErrorClass.TRANSPORT}
    await runtime.db.transact(
        lambda conn: settle_delivery(conn, row.id, row.claim_token, deliver_after=now(delay), **changes)
    )
    event = DeliveryChanged(message=row.seq, status="retrying", channel=row.channel_type, error=why)
    runtime.publisher.publish(envelope(row.session_id, event, turn_id=row.turn_id))
    return None  # those behind it wait for it


async def _give_up(
    runtime: Runtime,
    row: AnyRow,
    error_class: ErrorClass,
    why: str,
    *,
    status: Literal["failed", "unknown"] = "failed",
) -> str | None:
    """Nobody will send this again by itself: the agent hears of it in its next turn, the owners at once."""
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
        text = f"A message to {row.channel_type} {row.platform_id} could not be delivered ({status}): {why}"
        first = last - len(owners)
        return await store_notices(
            conn, owner_notices(owners, session_id=session_id, first_seq=first, key=f"{row.id}:{status}", text=text)
        )

    for message_out_id in await uninterrupted(runtime.db.transact(work)):
        runtime.bells.deliver(message_out_id)
    event = DeliveryChanged(message=row.seq, status=status, channel=row.channel_type, error=why)
    runtime.publisher.publish(envelope(row.session_id, event, turn_id=row.turn_id))
    return await runtime.db.read(lambda conn: next_in_line(conn, row))
