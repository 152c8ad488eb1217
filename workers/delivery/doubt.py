"""When a message may have arrived although nobody wrote it down: its sender died, or the platform did not answer.

The next who sends it asks the platform first. A channel that honours keys is sent it again, as long as it remembers
them; one that can be asked and knows nothing of it as well. Otherwise it ends as `unknown`, or goes out again, as
LONGSHORE_DOUBTFUL_DELIVERY says: guessing could say it twice. There it is written down just before that it is being
sent, so that what was never sent is not in doubt."""

import asyncio
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import Channel, Destination, Receipt
from adapters.errors import AdapterError, DeliveryError
from models.base import AnyRow
from models.outbox import find_abandoned, settle_delivery
from workers.agents import AGENT
from workers.delivery.progress import Progress
from workers.runtime import Runtime
from workers.settings import Settings

log = structlog.get_logger()


class UndecidedError(Exception):
    """Nobody can say whether it arrived, and it is not to be sent again."""


async def settle_doubtful(runtime: Runtime, message_out_id: str) -> None:
    """Take a row from a sender that died between claiming it and writing down how it ended."""

    async def work(conn: AsyncConnection) -> bool:
        row = await find_abandoned(conn, message_out_id)
        if row is None:
            return False
        progress = Progress.of(row.receipt)
        if _may_have_left(runtime, row, progress):
            progress = progress.doubting(claimed_at(row, runtime.settings))
        receipt = progress.over().receipt()
        return await settle_delivery(conn, row.id, row.claim_token, status="pending", receipt=receipt)

    if await runtime.db.transact(work):
        runtime.bells.deliver(message_out_id)


def _may_have_left(runtime: Runtime, row: AnyRow, progress: Progress) -> bool:
    if row.channel_type == AGENT:  # there it is sent and written down in one: it was not sent
        return False
    # What kills whoever prepares it is not to do so for ever.
    if progress.begun or row.attempts >= runtime.settings.max_tries:
        return True
    try:
        channel = runtime.registry.channels.get(row.channel_type)
    except AdapterError:
        return True
    return may_be_resolved(channel, runtime.settings)  # those do not say when they begin


def claimed_at(row: AnyRow, settings: Settings) -> datetime:
    """When the row was claimed, by the database's clock."""
    until: datetime = row.claim_expires_at
    return until - timedelta(seconds=settings.delivery_seconds)


def may_be_resolved(channel: Channel, settings: Settings) -> bool:
    """Whether there is any use in coming back to a doubtful sending."""
    capabilities = channel.capabilities
    return capabilities.idempotent or capabilities.findable or settings.doubtful_delivery == "resend"


async def resolve(runtime: Runtime, channel: Channel, row: AnyRow, key: str, since: datetime) -> Receipt | None:
    """The receipt of what arrived, or None: it is to be sent (again). UndecidedError: neither; DeliveryError: ask again
    later."""
    capabilities, settings = channel.capabilities, runtime.settings
    answered = True
    try:
        async with asyncio.timeout(settings.delivery_seconds / 4):
            found = await channel.find_receipt(Destination(row.platform_id, row.thread_id), key)
    except Exception as error:  # then nobody knows  # noqa: BLE001
        log.warning("delivery.not_found_out", message=row.id, channel=row.channel_type, error=type(error).__name__)
        answered, found = False, None
    if found is not None:
        return found
    why = row.error or "its sender died while sending"
    if row.attempts > settings.max_tries:  # a message that kills its senders must not do so for ever
        raise UndecidedError(f"{why}; it was tried {settings.max_tries} times")
    age = (claimed_at(row, settings) - since).total_seconds()
    remembers = capabilities.key_seconds is None or age < capabilities.key_seconds
    if (capabilities.idempotent and remembers) or (capabilities.findable and answered):
        return None
    if settings.doubtful_delivery == "resend":
        log.warning("delivery.resent", message=row.id, channel=row.channel_type, reason=why)
        return None
    if capabilities.findable:
        raise DeliveryError("the platform could not be asked whether it arrived", retryable=True, may_have_arrived=True)
    raise UndecidedError(f"{why}; the platform cannot say whether it arrived")
