"""A direct chat as it goes on, for one browser, in the words of `timeline.live`: lines under their ids, and text that
is being written.

Lines come from rows, all of the last ones whenever one has changed: a browser that was away has them with the first
look, and none twice. Only what is new or has changed is rendered."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

import structlog
from fastapi.sse import ServerSentEvent

from adapters.events import Envelope, TextDelta, TurnEnded, TurnStarted
from gateway.console.chat.lines import Chat, Line, read_chat
from gateway.console.rendering.templates import environment
from gateway.console.timeline.writing import Writing
from gateway.console.visitors import Guest
from gateway.http.api.streams import CHECK_SECONDS, RETRY_MS, Allowed
from gateway.http.news import News
from models.database import Database
from models.errors import StoreError

log = structlog.get_logger()

TURN: Final = "chat"  # the one list of a chat's page
_REST_SECONDS: Final = 0.2  # between two looks: while an agent writes, events come by the dozen
_OF_WEB: Final = b'"channel":"web"'
_BEHIND: Final = 500
# What was written stays until the answer it has become is delivered, and for so long if there is none.
_LATE_SECONDS: Final = 2.0


class LiveChat:
    def __init__(self, db: Database, news: News, guest: Guest) -> None:
        self._db = db
        self._news = news
        self._guest = guest
        self._macros: Any = environment().get_template("chat_lines.html").make_module({"guest": guest})
        self._queue: asyncio.Queue[ServerSentEvent | None] = asyncio.Queue(_BEHIND)
        self._shown: dict[str, Line] = {}
        self._work = ""
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[str, tuple[datetime, float]] = {}  # turns whose answers are to come: since when
        self._ready = False

    async def events(self, still: Callable[[], Awaitable[bool]]) -> AsyncIterator[ServerSentEvent]:
        yield ServerSentEvent(retry=RETRY_MS)
        looking = asyncio.create_task(self._look_again_and_again(Allowed(still)))
        try:
            while (event := await self._queue.get()) is not None:
                yield event
                # A full queue has no room for the end, and readers would fill it for ever.
                if looking.done():
                    break
            await looking
        finally:
            tasks = [looking, *self._readers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_again_and_again(self, allowed: Allowed) -> None:
        try:
            with self._news.ear(words=_OF_WEB) as ear:
                while not ear.closed and await allowed.still():
                    chat = await self._db.read(lambda conn: read_chat(conn, self._guest))
                    ear.sessions = {row.id for row in chat.sessions}
                    for row in chat.sessions:
                        if row.id not in self._readers:
                            self._readers[row.id] = asyncio.create_task(self._hear(row.id, row.folder))
                    for event in await self._changes(chat):
                        await self._queue.put(event)
                    await self._say_ready()
                    await asyncio.sleep(_REST_SECONDS)
                    await (ear.wait(_LATE_SECONDS) if self._ended else ear.wait())
        except StoreError as error:
            log.warning("console.store_away", error=str(error))
        finally:
            with contextlib.suppress(asyncio.QueueFull):
                self._queue.put_nowait(None)

    async def _say_ready(self) -> None:
        """Once: who is about to say something waits for it, because pieces of text are not kept."""
        if not self._ready:
            self._ready = True
            await self._queue.put(ServerSentEvent(event="ready", data={}))

    async def _changes(self, chat: Chat) -> list[ServerSentEvent]:
        lines = {line.key: line for line in chat.lines}
        order = list(lines)
        following = dict(zip(order, [*order[1:], None], strict=True)) if order else {}
        # The last first: what another stands before must be there.
        changed = [lines[key] for key in reversed(order) if self._shown.get(key) != lines[key]]
        # Beside the loop: at the first look this is all of them, and an agent may have written anything.
        html = await asyncio.to_thread(self._write, changed)
        entries = [
            {"key": line.key, "html": part, "before": following[line.key]}
            for line, part in zip(changed, html, strict=True)
        ]
        settled = self._settled(chat.lines)
        work = str(self._macros.working(chat.sessions))
        sent = []
        if entries or settled:
            sent.append(_patch(entries, settled))
        if self._work != work:
            sent.append(ServerSentEvent(event="part", data={"id": "working", "html": work}))
        self._shown, self._work = lines, work
        return sent

    def _settled(self, lines: Sequence[Line]) -> list[str]:
        """Turns whose text is not being written any more: their answers are there, or there are none."""
        late = asyncio.get_running_loop().time() - _LATE_SECONDS
        settled = [
            turn
            for turn, (at, heard) in self._ended.items()
            if heard < late or any(line.turn == turn and line.at >= at for line in lines)
        ]
        for turn in settled:
            del self._ended[turn]
        return settled

    def _write(self, lines: Sequence[Line]) -> list[str]:
        return [str(self._macros.line(line)) for line in lines]

    async def _hear(self, session_id: str, agent: str) -> None:
        writing = Writing()
        async with self._news.listen(session_id, so_far=True) as reader:
            while not reader.closed:
                item = await reader.next(CHECK_SECONDS)
                if item is not None and item.turn is not None:
                    await self._take(item, item.turn, agent, writing)

    async def _take(self, item: Envelope, turn: str, agent: str, writing: Writing) -> None:
        match item.event:
            case TextDelta() as delta:
                if (piece := writing.take(turn, delta)) is not None:
                    data = {"turn": TURN, "by": agent, **piece}
                    await self._queue.put(ServerSentEvent(event="delta", data=data))
            case TurnEnded(status="completed"):
                self._ended[turn] = (item.at, asyncio.get_running_loop().time())
            case TurnStarted() | TurnEnded():  # what was written is void, or was said to nobody
                self._ended.pop(turn, None)
                await self._queue.put(_patch([], [turn]))


def _patch(entries: list[dict[str, Any]], settled: list[str]) -> ServerSentEvent:
    return ServerSentEvent(event="patch", data={"turn": TURN, "entries": entries, "settles": settled})
