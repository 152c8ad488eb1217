"""Answering whoever asked in the same request: `Prefer: wait=30` holds it until the turn has ended, or for so long.

The same request again, with its id, finds the same message: so an answer that took longer is fetched by asking again.
What is said here has the ids it is pushed with."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi.responses import JSONResponse

from gateway.http.news import Ear, News
from models.base import AnyRow
from models.database import Database
from models.fates import Fate, fate_of
from workers.events import LOOK_AGAIN_SECONDS
from workers.intake.ingest import Accepted

LONGEST_SECONDS: Final = 60
MOST_WAITS: Final = 100  # at once, of one user
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})", re.IGNORECASE)


def asked_to_wait(prefer: str | None) -> int:
    """How many seconds the Prefer header (RFC 7240) asks for; 0 for none."""
    found = _WAIT.search(prefer or "")
    return min(int(found[1]), LONGEST_SECONDS) if found else 0


class Waits:
    """Made once per gateway. Counts who waits, so that one user does not hold all connections, with however many
    tokens."""

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()

    @contextmanager
    def room_for(self, user_id: str, seconds: int) -> Iterator[int]:
        """How many seconds they may wait: as asked for, or none if too many of theirs do already."""
        if not seconds or self._waiting[user_id] >= MOST_WAITS:
            yield 0
            return
        self._waiting[user_id] += 1
        try:
            yield seconds
        finally:
            self._waiting[user_id] -= 1
            if not self._waiting[user_id]:
                del self._waiting[user_id]


async def answer(db: Database, news: News, accepted: Accepted, seconds: int) -> JSONResponse:
    """200 with what was said once the turn has ended; else 202, with what was said so far, if anybody waited."""
    if accepted.handled is not None:  # there is no turn to wait for
        return JSONResponse(accepted.public(), 200)
    told = accepted.public()
    if not seconds:
        return JSONResponse(told, 202)
    fate = await wait_for_end(db, news, accepted.session_id, accepted.message_id, seconds)
    told["messages"] = list(_messages(fate.said))
    if fate.status is not None:
        told["status"] = fate.status
    return JSONResponse(told, 202 if fate.status in (None, "parked") else 200)


async def wait_for_end(db: Database, news: News, session_id: str, message_id: str, seconds: int) -> Fate:
    """What came of a message: once its turn has ended or waits for a person, or after so many seconds."""
    with news.ear() as ear:
        ear.sessions.add(session_id)
        return await _until_it_ends(db, ear, message_id, seconds)


async def _until_it_ends(db: Database, ear: Ear, message_id: str, seconds: int) -> Fate:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        fate = await db.read(lambda conn: fate_of(conn, message_id))
        if fate.status is not None or ear.closed or loop.time() >= deadline:
            return fate
        await ear.wait(min(deadline - loop.time(), LOOK_AGAIN_SECONDS))


def _messages(said: Iterable[AnyRow]) -> Iterable[dict[str, Any]]:
    """Without changes to what was said before, which only a chat can show."""
    for row in said:
        if "operation" not in row.content:
            yield {"id": row.idempotency_key, "text": str(row.content.get("text") or "")}
