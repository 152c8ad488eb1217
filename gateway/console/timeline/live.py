"""A session's timeline as it goes on, for one browser: events in, pieces of the page out.

What is kept comes as rendered parts, each under its entry's id, with the event's number as the stream's id: a browser
that comes back with the last one has each once. Text that is just being written comes as JSON, for text nodes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import structlog
from fastapi.sse import ServerSentEvent
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.events import (
    DeliveryChanged,
    Envelope,
    Message,
    MessagesJoined,
    Result,
    TextDelta,
    Thinking,
    ToolCall,
    ToolProgress,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UsageReport,
)
from gateway.console.timeline.entries import Asked, Call, Entry, Sent
from gateway.console.timeline.joining import join
from gateway.console.timeline.pen import Pen
from gateway.console.timeline.turn_view import TurnView
from gateway.console.timeline.writing import Writing
from gateway.http.api.streams import RETRY_MS, Allowed
from gateway.http.news import News, Reader
from models.browsing import find_shown_session
from models.database import Database
from models.errors import StoreError
from models.timeline import (
    Rows,
    events_of_turns,
    find_turns,
    rows_of_call,
    rows_of_turns,
    turn_of_event,
    waiting_messages,
)
from workers.events import Follower, stored_envelope

log = structlog.get_logger()

AROUND_SECONDS: Final = 0.3
# Nothing of rows is new with these.
_WITHOUT_ROWS: Final = (Message, ToolCall, UsageReport)
# The text that was being written is whole now, or void.
_SETTLES: Final = (Message, Result, TurnStarted, TurnEnded)


async def live_timeline(
    db: Database,
    news: News,
    pen: Pen,
    after: int,
    still: Callable[[], Awaitable[bool]],
    *,
    resumed: bool,
) -> AsyncIterator[ServerSentEvent]:
    """`resumed`: the browser has been away, and rows may have changed meanwhile without any event."""
    yield ServerSentEvent(retry=RETRY_MS)
    allowed = Allowed(still)
    live = LiveTimeline(db, pen)
    try:
        async with news.listen(pen.session.id, so_far=True) as reader:
            await live.begin(after)
            # Pieces of text are not kept: who is about to cause some waits for this.
            yield ServerSentEvent(event="ready", data={})
            if resumed:
                for event in await live.look():
                    yield event
            async for item in Follower(db, _Heard(reader), pen.session.id, after).beats():
                if not await allowed.still():
                    return
                for event in await live.take(item) if item is not None else await live.look():
                    yield event
    except StoreError as error:
        log.warning("console.store_away", session=pen.session.id, error=str(error))


class _Heard:
    """A live side that listens already."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @asynccontextmanager
    async def listen(self, _session_id: str | None) -> AsyncIterator[Reader]:
        yield self._reader


class LiveTimeline:
    def __init__(self, db: Database, pen: Pen) -> None:
        self._db = db
        self._pen = pen
        self._turn: TurnView | None = None
        self._writing = Writing()
        self._looked = 0.0
        self._shown: dict[str, str] = {}  # parts that stand outside of turns, as they were sent last

    async def begin(self, after: int) -> None:
        """Where the reader is: in the middle of a turn, of which they have seen the events up to this number."""
        session_id = self._pen.session.id

        async def read(conn: AsyncConnection) -> tuple[str | None, list[Any]]:
            turn_id = await turn_of_event(conn, session_id, after)
            return turn_id, await events_of_turns(conn, session_id, [turn_id], after) if turn_id else []

        turn_id, rows = await self._db.read(read)
        if turn_id is not None:
            self._turn = TurnView(turn_id)
            for row in rows:
                if (item := stored_envelope(row)) is not None:
                    self._turn.feed(item)

    async def take(self, item: Envelope) -> list[ServerSentEvent]:
        event = item.event
        if isinstance(event, TextDelta):
            piece = self._writing.take(item.turn, event)
            return [ServerSentEvent(event="delta", data={"turn": item.turn, **piece})] if piece is not None else []
        if isinstance(event, ToolProgress):
            key = self._running(event.id)
            return [ServerSentEvent(event="progress", data={"key": key, "seconds": event.elapsed})] if key else []
        if isinstance(event, DeliveryChanged):
            return await self.look()
        if item.seq is None or item.turn is None:
            return []
        if self._turn is None or self._turn.id != item.turn:
            self._turn = TurnView(item.turn)
        changed = self._turn.feed(item)
        if isinstance(event, Thinking):
            return [self._thought(item.seq, changed[0], event.text)]
        if isinstance(event, ToolResult):
            changed += await self._join_call(self._turn, event)
        elif not isinstance(event, _WITHOUT_ROWS):
            changed += await self._join(self._turn)
        patch = await self._patch(self._turn, changed, settles=isinstance(event, _SETTLES))
        if isinstance(event, TurnStarted):
            patch["shell"] = self._pen.turn(replace(self._turn, entries=[]))
        sent = [ServerSentEvent(event="patch", id=str(item.seq), data=patch)]
        if isinstance(event, TurnStarted | TurnEnded | MessagesJoined) or self._is_time():
            sent += await self._around()
        return sent

    def _is_time(self) -> bool:
        """How a session stands changes with every call; nobody reads faster than this."""
        return asyncio.get_running_loop().time() - self._looked > AROUND_SECONDS

    async def look(self) -> list[ServerSentEvent]:
        """Nothing has happened that would have been told; rows may have changed all the same."""
        sent = await self._around()
        if self._turn is not None and (self._waits(self._turn) or not self._shown.get("turn")):
            self._shown["turn"] = self._turn.id
            if changed := await self._join(self._turn):
                sent.append(ServerSentEvent(event="patch", data=await self._patch(self._turn, changed, settles=False)))
        return sent

    def _waits(self, turn: TurnView) -> bool:
        """Whether something in it is still to be sent, or to be decided."""
        return any(
            isinstance(entry, Sent | Asked) and entry.row is not None and entry.row.status in ("pending", "sending")
            for entry in turn.entries
        )

    async def _join(self, turn: TurnView) -> list[Entry]:
        session_id = self._pen.session.id

        async def read(conn: AsyncConnection) -> Rows:
            numbers = [entry.number for entry in turn.entries if entry.kind == "received"]  # type: ignore[attr-defined]
            return await rows_of_turns(conn, session_id, await find_turns(conn, [turn.id]), numbers)

        return join(turn, await self._db.read(read))

    async def _join_call(self, turn: TurnView, result: ToolResult) -> list[Entry]:
        return join(turn, await self._db.read(lambda conn: rows_of_call(conn, turn.id, result.id, result.name)))

    async def _around(self) -> list[ServerSentEvent]:
        """How the session stands, and what waits in it, if that is new."""
        session_id = self._pen.session.id

        async def read(conn: AsyncConnection) -> tuple[Any, list[Any]]:
            return await find_shown_session(conn, session_id), await waiting_messages(conn, session_id)

        self._looked = asyncio.get_running_loop().time()
        session, waiting = await self._db.read(read)
        parts = {"state": self._pen.state(session), "waiting": self._pen.waiting(waiting)}
        new = {name: html for name, html in parts.items() if self._shown.get(name) != html}
        self._shown |= new
        return [ServerSentEvent(event="part", data={"id": name, "html": html}) for name, html in new.items()]

    async def _patch(self, turn: TurnView, changed: list[Entry], *, settles: bool) -> dict[str, Any]:
        order = [entry.key for entry in turn.entries]
        # Before which entry each stands, for one that is new in the middle.
        following = dict(zip(order, [*order[1:], None], strict=True))
        keys = {entry.key for entry in changed}
        # The last first: what another stands before must be there.
        new = [entry for entry in reversed(turn.entries) if entry.key in keys]
        # Beside the loop: there may be many of them, with anything in it.
        html = await asyncio.to_thread(lambda: [self._pen.entry(entry, turn) for entry in new])
        entries = [
            {"key": entry.key, "html": part, "before": following[entry.key]}
            for entry, part in zip(new, html, strict=True)
        ]
        settled = [turn.id] if settles else []
        return {"turn": turn.id, "head": self._pen.head(turn), "entries": entries, "settles": settled}

    def _thought(self, seq: int, entry: Entry, piece: str) -> ServerSentEvent:
        assert self._turn is not None
        shape = replace(entry, text="")  # type: ignore[call-arg]
        data = {"turn": self._turn.id, "key": entry.key, "text": piece, "html": self._pen.entry(shape, self._turn)}
        return ServerSentEvent(event="thought", id=str(seq), data=data)

    def _running(self, call: str) -> str | None:
        calls = [entry for entry in self._turn.entries if isinstance(entry, Call)] if self._turn else []
        return next((entry.key for entry in reversed(calls) if entry.call == call), None)
