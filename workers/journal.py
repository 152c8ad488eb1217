"""What a running turn writes: events, steps, and messages sent on the way. Every transaction checks the lease first.

Lasting events are written before they are published, so that no reader sees what a crash then undoes. They are
gathered for a moment and ride along with whatever is written next; an ordinary turn writes them with its end.

No event leaves with a secret in it. Text that is just being said is held back while its end may be the beginning of
one; whatever else happens comes after that."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.events import AnyEvent, Envelope, Message, TextDelta, event_to_dict, is_lasting
from adapters.redaction import Redactor, process_redactor
from models.base import rows
from models.conversation import Event
from models.database import Database, uninterrupted
from models.errors import LeaseLostError
from models.sessions import Lease, hold
from workers.events import Publisher, envelope
from workers.loop import Job, Stop

GATHER_SECONDS = 0.02
# Returning something makes SQLAlchemy send several rows in one statement, for half the CPU.
_INSERT = insert(Event.__table__).returning(Event.seq)  # type: ignore[arg-type]


class Journal:
    def __init__(
        self,
        db: Database,
        publisher: Publisher,
        lease: Lease,
        turn_id: str,
        last_seq: int,
        job: Job,
        redactor: Redactor | None = None,
    ) -> None:
        """Without a `redactor`, the one that knows this process's environment."""
        self._db = db
        self._publisher = publisher
        self._job = job
        self.lease = lease
        self.turn_id = turn_id
        self._last_seq = last_seq
        self._waiting: list[AnyEvent] = []
        self._lock = asyncio.Lock()
        self._flusher: asyncio.Task[None] | None = None
        self.redactor = redactor or process_redactor()
        self._saying = self.redactor.stream()
        self._said = 0  # characters of the text that is being said

    def add(self, event: AnyEvent, *, soon: bool = True) -> None:
        """Take an event. `soon=False`: something that is about to be written will take it along."""
        if isinstance(event, TextDelta):
            if said := self._saying.feed(event.text):
                self._add(self._piece(said), soon=soon)
            return
        for rest in self._rest():
            self._add(rest, soon=False)
        if isinstance(event, Message):
            self._said = 0
        self._add(event if is_lasting(event) else redacted(event, self.redactor), soon=soon)

    def end_text(self) -> None:
        """What was said is whole, and is told of later: what is said next is another text."""
        for rest in self._rest():
            self._add(rest, soon=False)
        self._said = 0

    def _rest(self) -> list[AnyEvent]:
        """Something else happens, or nothing more: what was held back is not the beginning of a secret."""
        rest = self._saying.flush()
        return [self._piece(rest)] if rest else []

    def _piece(self, text: str) -> TextDelta:
        offset, self._said = self._said, self._said + len(text)
        return TextDelta(text=text, offset=offset)

    def _add(self, event: AnyEvent, *, soon: bool) -> None:
        if not is_lasting(event) and not self._waiting and not self._lock.locked():
            self._publisher.publish(envelope(self.lease.session_id, event, turn_id=self.turn_id, after=self._last_seq))
            return
        self._waiting.append(event)  # also a passing one: it must not overtake what came before it
        if (soon or not is_lasting(event)) and (self._flusher is None or self._flusher.done()):
            self._flusher = asyncio.create_task(self._flush_soon())

    async def write(
        self,
        work: Callable[[AsyncConnection, int], Awaitable[None]] | None = None,
        *,
        activity: str | None = None,
        messages: int = 0,
        events: Sequence[AnyEvent] = (),
    ) -> None:
        """One transaction under the lease: what `work` does, the `events` that tell of it, and those gathered so far.

        `work` gets the connection and the first of the `messages` numbers it asked for."""
        async with self._lock:
            gathered = [*self._take(), *(self._rest() if events else ())]
            events = [*gathered, *events]

            async def run(conn: AsyncConnection) -> list[Envelope]:
                lasting = count_lasting(events)
                message_seq, event_seq = await hold(
                    conn, self.lease, activity=activity, messages=messages, events=lasting
                )
                if event_seq - lasting > self._last_seq:
                    # Only we give out numbers, so this very write has taken effect: the answer to its commit was lost.
                    await conn.rollback()
                    return self._numbered(events, self._last_seq + lasting)[1]
                if work is not None:
                    await work(conn, message_seq - messages + 1)
                return await self.store(conn, events, event_seq)

            async def run_and_publish() -> None:
                self.publish(await self._db.transact(run))

            try:
                await uninterrupted(run_and_publish())
            except LeaseLostError:
                self._job.stop(Stop.LEASE_LOST)
                raise
            except Exception:
                self._waiting = gathered + self._waiting  # not written: the turn's end takes them along
                raise

    def take(self) -> list[AnyEvent]:
        """All that is not written yet, for the turn's end."""
        return [*self._take(), *self._rest()]

    def _take(self) -> list[AnyEvent]:
        events, self._waiting = self._waiting, []
        return events

    async def store(self, conn: AsyncConnection, events: list[AnyEvent], last_seq: int) -> list[Envelope]:
        """Write the lasting ones, the last with the number `last_seq`; all are to be published after the commit."""
        stored, envelopes = self._numbered(events, last_seq)
        if stored:
            await conn.execute(_INSERT, rows(stored))
        return envelopes

    def _numbered(self, events: list[AnyEvent], last_seq: int) -> tuple[list[dict[str, Any]], list[Envelope]]:
        stored: list[dict[str, Any]] = []
        envelopes: list[Envelope] = []
        seq = last_seq - count_lasting(events)
        ids = {"session_id": self.lease.session_id, "turn_id": self.turn_id}
        for event in events:
            if not isinstance(event, TextDelta):
                event = redacted(event, self.redactor)
            if is_lasting(event):
                seq += 1
                stored.append(ids | {"seq": seq, "type": event.type, "payload": event_to_dict(event)})
                envelopes.append(envelope(self.lease.session_id, event, turn_id=self.turn_id, seq=seq))
            else:
                envelopes.append(envelope(self.lease.session_id, event, turn_id=self.turn_id, after=seq))
        return stored, envelopes

    def publish(self, envelopes: list[Envelope]) -> None:
        if envelopes:
            self._last_seq = envelopes[-1].seq or envelopes[-1].after or self._last_seq
            self._publisher.publish(*envelopes)

    async def close(self) -> None:
        """No more flushing behind our back: the end of the turn writes what is left."""
        self._waiting += self._rest()
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        async with self._lock:
            pass

    async def _flush_soon(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        if self._waiting:
            await self.write()


def count_lasting(events: list[AnyEvent]) -> int:
    return sum(1 for event in events if is_lasting(event))


def redacted(event: AnyEvent, redactor: Redactor) -> AnyEvent:
    """The same event, if there is nothing to hide in it."""
    changes = {}
    for name, value in event.__dict__.items():
        if type(value) in _MAY_HIDE and (shown := redactor.value(value)) is not value:
            changes[name] = shown
    return event.model_copy(update=changes) if changes else event


_MAY_HIDE = frozenset((str, dict, list, tuple))
