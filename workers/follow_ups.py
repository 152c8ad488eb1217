"""Follow-ups for a provider that takes them while it runs: what people say meanwhile joins the turn.

Told first, written down after: if the worker dies between the two, the message is still to be answered, by an attempt
that remembers nothing of having been told."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import Query
from adapters.events import MessagesJoined
from models.base import AnyRow
from models.database import Database
from models.inbox import begin_processing, due_messages, joining
from models.sessions import hear
from workers.formatting import format_prompt, plain_text
from workers.journal import Journal
from workers.media import Media
from workers.opening import OpenedTurn


class FollowUps:
    """`turn.messages` grows with what joins it. `plain`: the provider is told people's words as they are."""

    def __init__(self, db: Database, journal: Journal, turn: OpenedTurn, media: Media, *, plain: bool) -> None:
        self._db = db
        self._journal = journal
        self._turn = turn
        self._media = media
        self._plain = plain
        self._one_at_a_time = asyncio.Lock()

    async def pass_on(self, query: Query) -> None:
        """Tell the agent what has come. What comes too late stays for the next turn."""
        async with self._one_at_a_time:
            due = await self._db.read(lambda conn: due_messages(conn, self._turn.lease.session_id))
            new = joining(due)
            if not new:
                return
            await self._media.prepare(new)
            if not await query.push(self._told(new)):
                return
            await self._join(due, new)

    def _told(self, new: list[AnyRow]) -> str:
        if self._plain:
            return "\n".join(plain_text(message) for message in new)
        return format_prompt(new, self._media.notes)

    async def _join(self, due: list[AnyRow], new: list[AnyRow]) -> None:
        turn = self._turn

        async def work(conn: AsyncConnection, _: int) -> None:
            await begin_processing(conn, [row.id for row in new], turn.id)
            if not [row for row in due if row.turn_id is None and row.wakes and row not in new]:
                await hear(conn, turn.lease.session_id)  # nothing is left to be rung for

        joined = MessagesJoined(messages=tuple(row.seq for row in new))
        await self._journal.write(work, events=[joined])
        turn.messages.extend(new)
