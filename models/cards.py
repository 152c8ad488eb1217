"""Cards: messages with buttons, each bound to what it asks about, where it lies, and to whom an approval was put.

What is decided, answered or over has no open card: whoever ends it closes its cards in the same transaction, and each
place where one lies is told what came of it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, new_id, now
from models.outbox import MessageOut, notice
from models.sessions import take_numbers
from models.upsert import insert_ignoring

KINDS = ("question", "approval", "card")
# Nobody has so many open questions in one place that he could tell them apart.
MOST_OPEN = 50


class Card(Base):
    __tablename__ = "cards"
    __table_args__ = (
        CheckConstraint(f"kind IN {KINDS}", name="kind"),
        CheckConstraint("status IN ('open', 'closed')", name="status"),
        Index("ix_cards_place", "channel_type", "platform_id", "status"),
        Index("ix_cards_subject_id", "subject_id"),
        Index("ix_cards_message_out_id", "message_out_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    message_out_id: Mapped[str] = mapped_column(ForeignKey("messages_out.id"))
    kind: Mapped[str] = mapped_column(String(10))
    subject_id: Mapped[str | None] = mapped_column(Id)  # the question or the approval
    payload_hash: Mapped[str | None] = mapped_column(String(64))  # what was shown is what is decided
    user_id: Mapped[str | None] = mapped_column(String(255))  # whom an approval was put to
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    options: Mapped[list[dict[str, Any]]] = mapped_column(Json)  # label, value
    status: Mapped[str] = mapped_column(String(10), default="open")  # open: something waits for it
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


def token(card_id: str, number: int) -> str:
    """What comes back when the button of an option (from 1 on) is pressed."""
    return f"{card_id}:{number}"


async def put_card(
    conn: AsyncConnection,
    card_id: str,
    kind: str,
    message: Mapping[str, Any],
    options: Sequence[Mapping[str, str]],
    **subject: str | None,
) -> None:
    """Write down the card of an outbound message, in the transaction that writes the message."""
    place = {key: message[key] for key in ("session_id", "channel_type", "platform_id", "thread_id")}
    status = "closed" if kind == "card" else "open"  # nothing waits for what an agent just offers
    row = {"id": card_id, "kind": kind, "status": status, "options": [dict(option) for option in options]}
    await insert_ignoring(conn, Card, **row, **place, message_out_id=message["id"], **subject)


async def find_card(conn: AsyncConnection, card_id: str) -> AnyRow | None:
    return (await conn.execute(select(Card.__table__).where(Card.id == card_id))).one_or_none()


async def open_cards(conn: AsyncConnection, channel_type: str, platform_id: str, thread_id: str | None) -> list[AnyRow]:
    """What waits for an answer in a place; a card in a thread only there."""
    query = select(Card.__table__).where(_in_place(channel_type, platform_id, thread_id), Card.status == "open")
    return list((await conn.execute(query.order_by(Card.created_at, Card.id).limit(MOST_OPEN))).all())


async def cards_by_code(
    conn: AsyncConnection, channel_type: str, platform_id: str, thread_id: str | None, code: str
) -> list[AnyRow]:
    """Those of a place, open or not, whose question or approval has an id that ends so."""
    query = select(Card.__table__).where(
        _in_place(channel_type, platform_id, thread_id), Card.subject_id.endswith(code, autoescape=True)
    )
    return list((await conn.execute(query.order_by(Card.created_at, Card.id).limit(MOST_OPEN))).all())


def _in_place(channel_type: str, platform_id: str, thread_id: str | None) -> Any:
    here = (Card.channel_type == channel_type) & (Card.platform_id == platform_id)
    return here & or_(Card.thread_id.is_(None), Card.thread_id == thread_id)


async def close_cards(conn: AsyncConnection, subject_id: str, outcome: str) -> list[str]:
    """Nothing can be chosen any more: each open card becomes its `outcome` (Markdown). Returns the rows to ring for.

    Takes numbers of the session that asked, so whoever calls this has locked its row first."""
    closing = update(Card).where(Card.subject_id == subject_id, Card.status == "open").values(status="closed")
    closed = (await conn.execute(closing.returning(*Card.__table__.columns))).all()
    if not closed:
        return []
    messages = select(MessageOut.id, MessageOut.seq).where(MessageOut.id.in_([card.message_out_id for card in closed]))
    numbers = {row.id: row.seq for row in (await conn.execute(messages)).all()}
    cards = sorted(closed, key=lambda card: numbers[card.message_out_id])
    seq = await take_numbers(conn, cards[0].session_id, len(cards)) - len(cards)
    changes = []
    for card in cards:
        seq += 1
        row = notice(
            session_id=card.session_id,
            seq=seq,
            key=f"{card.id}:closed",
            channel_type=card.channel_type,
            platform_id=card.platform_id,
            thread_id=card.thread_id,
            content={"operation": "edit", "message": numbers[card.message_out_id], "text": outcome},
        )
        if await insert_ignoring(conn, MessageOut, **row):
            changes.append(str(row["id"]))
    return changes
