"""What came of a message: how its turn stands, and what was said in it to the place the message came from."""

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.turns import Turn

_ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Fate:
    """`status`: the turn's once it has ended; `parked` while it waits for a person; None while it goes on."""

    status: str | None
    said: tuple[AnyRow, ...] = ()


async def fate_of(conn: AsyncConnection, message_id: str) -> Fate:
    message = (await conn.execute(select(MessageIn.__table__).where(MessageIn.id == message_id))).one()
    turn = await _turn(conn, message)
    if turn is None:
        given_up = message.status in ("failed", "discarded")
        return Fate("failed" if given_up else None)
    said = tuple(await _said(conn, message, turn.id))
    return Fate(turn.status if turn.status in (*_ENDED, "parked") else None, said)


async def _turn(conn: AsyncConnection, message: AnyRow) -> AnyRow | None:
    turn_id = message.turn_id
    if turn_id is None and message.status == "completed":
        # It answered a question: what was said next belongs to the turn that had asked.
        later = select(MessageOut.turn_id).where(
            MessageOut.session_id == message.session_id, MessageOut.seq > message.seq, MessageOut.turn_id.is_not(None)
        )
        turn_id = (await conn.execute(later.order_by(MessageOut.seq).limit(1))).scalar_one_or_none()
    if turn_id is None:
        return None
    return (await conn.execute(select(Turn.id, Turn.status).where(Turn.id == turn_id))).one()


async def _said(conn: AsyncConnection, message: AnyRow, turn_id: str) -> list[AnyRow]:
    query = select(MessageOut.__table__).where(
        MessageOut.turn_id == turn_id,
        MessageOut.seq > message.seq,
        MessageOut.channel_type == message.channel_type,
        MessageOut.platform_id == message.platform_id,
        MessageOut.status != "cancelled",
    )
    return list((await conn.execute(query.order_by(MessageOut.seq))).all())
