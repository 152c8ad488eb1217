"""Short ids, as a terminal shows them: how they are made of an id, and what people mean by one.

What there is to look at, page by page, is `models.browsing`'s."""

from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, storable
from models.browsing import dead_messages, undelivered_answers
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import Session
from models.workflows import Workflow

SHORT: Final = 8
_MOST: Final = 5  # with more than one, people have to say more of it


def short(row_id: str) -> str:
    """The end of an id: a UUIDv7 begins with the time, so its end tells rows apart."""
    return row_id[-SHORT:]


async def find_sessions(conn: AsyncConnection, ending: str) -> list[str]:
    query = select(Session.id).where(Session.id.endswith(ending, autoescape=True)).limit(_MOST)
    return list((await conn.execute(query)).scalars())


async def find_workflows(conn: AsyncConnection, ending: str) -> list[str]:
    query = select(Workflow.id).where(Workflow.id.endswith(storable(ending), autoescape=True)).limit(_MOST)
    return list((await conn.execute(query)).scalars())


async def find_dead(conn: AsyncConnection, ending: str) -> list[AnyRow]:
    query = dead_messages().where(MessageIn.id.endswith(ending, autoescape=True)).limit(_MOST)
    return list((await conn.execute(query)).all())


async def find_undelivered(conn: AsyncConnection, ending: str) -> list[AnyRow]:
    query = undelivered_answers().where(MessageOut.id.endswith(ending, autoescape=True)).limit(_MOST)
    return list((await conn.execute(query)).all())
