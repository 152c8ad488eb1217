"""Handing a claimed row to its platform: a message, part by part, or a change to an earlier one as far as the platform
can show it. Every part is written down before the next one goes out."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Final, TypeVar

from adapters.channel_port import Channel, Destination, OutboundMessage, Receipt
from adapters.errors import ChannelError, DeliveryError
from models.base import AnyRow
from models.database import uninterrupted
from models.outbox import note_progress, platform_message_id
from workers.delivery.doubt import claimed_at, may_be_resolved, resolve
from workers.delivery.parts import Part, parts_of, with_buttons
from workers.delivery.progress import Progress
from workers.runtime import Runtime

T = TypeVar("T")

# Reading and splitting a text takes some microseconds a character, during which nothing else is done.
LONG: Final = 2000


class NoRoomError(Exception):
    """The platform's limits leave no room for so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class TakenAwayError(Exception):
    """Somebody else has the row now."""


class Handing:
    """`progress` is how far it came, also if it fails, `began` when its last step was begun by the database's clock.
    `repeatable`: doing it twice shows nothing twice. `claimed`: since when the row is ours at least, by the clock of
    this process."""

    def __init__(self, runtime: Runtime, channel: Channel, row: AnyRow, claimed: float) -> None:
        self._runtime = runtime
        self._channel = channel
        self._row = row
        self._destination = Destination(row.platform_id, row.thread_id)
        self.progress = Progress.of(row.receipt)
        self.began = claimed_at(row, runtime.settings)
        self.repeatable = False
        self._ours_since = claimed

    async def run(self) -> Receipt:
        operation = self._row.content.get("operation")
        if operation is not None and (changed := await self._change(operation)) is not None:
            return changed
        return await self._send()

    # --- a change to an earlier message ---

    async def _change(self, operation: str) -> Receipt | None:
        """None: it is to be said in a new message."""
        row, channel = self._row, self._channel
        target = await self._runtime.db.read(
            # Of a message in parts it is the last one, where its buttons are.
            lambda conn: platform_message_id(conn, row.session_id, row.content["message"])
        )
        if operation == "reaction":
            if target is None or not channel.capabilities.reactions:
                return Receipt(details={"skipped": "no reactions there"})
            act = partial(channel.react, self._destination, target, row.content["emoji"])
        else:
            text, buttons = with_buttons(row.content, channel)
            fits = channel.length(text) <= channel.capabilities.max_text
            if target is None or not channel.capabilities.edits or not fits:
                return None
            act = partial(channel.edit, self._destination, target, {"text": text}, buttons)
        self.repeatable = True
        try:
            await self._find_room()
            await self._hold()
            async with self._time():
                await act()
        except DeliveryError:
            raise
        except ChannelError as error:
            raise DeliveryError(str(error), retryable=False) from error
        return Receipt(target)

    # --- a message ---

    async def _send(self) -> Receipt:
        parts, key = await self._parts(), self._row.idempotency_key
        # Fewer than were sent already: the channel has changed meanwhile. The last is enough then.
        first = min(len(self.progress.parts), len(parts) - 1)
        for number, part in enumerate(parts[first:], first + 1):
            receipt = await self._send_part(part, key if len(parts) == 1 else f"{key}#{number}")
            if number < len(parts):
                await self._note(self.progress.beyond(receipt.platform_message_id))
        if len(parts) == 1:
            return receipt
        sent = self.progress.beyond(receipt.platform_message_id).parts
        return Receipt(receipt.platform_message_id, receipt.details | {"parts": list(sent)})

    async def _parts(self) -> tuple[Part, ...]:
        content = self._row.content
        if len(str(content.get("text", ""))) < LONG:
            return parts_of(content, self._channel)
        return await self._in_thread(parts_of, content, self._channel)

    async def _send_part(self, part: Part, key: str) -> Receipt:
        since = self.progress.doubt_since
        if since is not None:
            arrived = await resolve(self._runtime, self._channel, self._row, key, since)
            if arrived is not None:
                return arrived
            await self._note(self.progress)  # asking has taken its time
        files = await self._in_thread(self._runtime.outbox.files, self._row.id) if part.has_files else ()
        message = OutboundMessage(self._destination, part.content, key, self._row.kind, files, part.buttons)
        await self._find_room()
        await self._hold()
        async with self._time():
            return await self._channel.deliver(message)

    # --- our claim ---

    async def _hold(self) -> None:
        """Directly before the platform is asked for anything: make sure that nobody else has the row by now. A stopped
        process, a slow disk or database may have taken longer than the claim lasts."""
        begins = not (self.repeatable or may_be_resolved(self._channel, self._runtime.settings))
        if begins or monotonic() - self._ours_since > self._runtime.settings.delivery_seconds / 4:
            await self._note(self.progress.beginning() if begins else self.progress)

    async def _note(self, progress: Progress) -> None:
        """Written down, and ours for another while."""
        runtime, row = self._runtime, self._row
        seconds = runtime.settings.delivery_seconds
        stored = progress.receipt() or {}
        asked = monotonic()
        until = await uninterrupted(
            runtime.db.transact(
                lambda conn: note_progress(conn, row.id, row.claim_token, stored, seconds), patience=seconds / 2
            )
        )
        if until is None:
            raise TakenAwayError
        self.progress, self._ours_since = progress, asked
        self.began = until - timedelta(seconds=seconds)

    async def _find_room(self) -> None:
        row = self._row
        wait = await self._runtime.rates.take(row.channel_type, row.platform_id, self._channel.capabilities)
        if wait > 0:
            raise NoRoomError(wait)

    async def _in_thread(self, work: Callable[..., T], *given: object) -> T:
        """Not for as long as it likes: a shared folder may hang."""
        try:
            async with asyncio.timeout(self._runtime.settings.delivery_seconds / 2):
                return await asyncio.to_thread(work, *given)
        except TimeoutError:
            raise DeliveryError("it could not be prepared in time", retryable=True) from None

    def _time(self) -> asyncio.Timeout:
        """Ends before the claim does, so that nobody else settles the row while we still send."""
        seconds = self._runtime.settings.delivery_seconds
        return asyncio.timeout(max(seconds / 2, seconds * 0.75 - (monotonic() - self._ours_since)))
