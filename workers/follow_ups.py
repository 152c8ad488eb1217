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
            if new := await self._new():
                await self._media.prepare(new)
                if await query.push(self._told(new)):
                    await self._join(new)

    async def take(self) -> bool:
        """What has come joins the turn, and the agent is told by its next attempt. False: nothing has."""
        async with self._one_at_a_time:
            if new := await self._new():
                await self._join(new)
            return bool(new)

    async def _new(self) -> list[AnyRow]:
        return joining(await self._db.read(lambda conn: due_messages(conn, self._turn.lease.session_id)))

    def _told(self, new: list[AnyRow]) -> str:
        if self._plain:
            return "\n".join(plain_text(message) for message in new)
        return format_prompt(new, self._media.notes, self._turn.facts)

    async def _join(self, new: list[AnyRow]) -> None:
        turn = self._turn

        async def work(conn: AsyncConnection, _: int) -> None:
            await begin_processing(conn, [row.id for row in new], turn.id)
            left = await due_messages(conn, turn.lease.session_id)  # now: more may have come meanwhile
            if not [row for row in left if row.turn_id is None and row.wakes]:
                await hear(conn, turn.lease.session_id)  # nothing is left to be rung for

        joined = MessagesJoined(messages=tuple(row.seq for row in new))
        await self._journal.write(work, events=[joined])
        turn.messages.extend(new)
