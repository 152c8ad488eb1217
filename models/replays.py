"""Replays: sessions that are given another's messages again. Reading what there was, and writing the copies.

A replay is nobody's conversation (it has no place), so no message from outside ever finds it."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, and_, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, new_id
from models.conversation import Compaction, TranscriptItem
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import Session
from models.turns import Step, Turn
from models.upsert import insert_ignoring

_COPIED = ("agent_group_id", "kind", "timezone", "channel_type", "platform_id", "thread_id", "sender_id", "content")


async def put_replay(conn: AsyncConnection, session_id: str, **values: Any) -> bool:
    """False: it is there already."""
    return await insert_ignoring(conn, Session, id=session_id, **values)


async def messages_by_turn(conn: AsyncConnection, turns: Sequence[str]) -> dict[str, list[AnyRow]]:
    """What each turn answered, in order. A turn whose messages went on in another, or are pruned, is not among them."""
    return await _by_turn(conn, select(MessageIn.__table__).where(MessageIn.turn_id.in_(turns)).order_by(MessageIn.seq))


def copy_of(row: AnyRow, session_id: str, seq: int, **changes: Any) -> dict[str, Any]:
    """The same words from the same person, said again in a replay: without dates, and by no platform. When they were
    said first stays: an agent is shown it."""
    kept = {name: getattr(row, name) for name in _COPIED} | {"created_at": row.created_at}
    return kept | {"id": new_id(), "session_id": session_id, "seq": seq, "replay_of": row.id} | changes


async def put_copies(conn: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
    await conn.execute(insert(MessageIn), list(rows))


async def copy_context(conn: AsyncConnection, original: str, session_id: str, before: int) -> int:
    """What the original had said before its turn of that number becomes what the replay has said: its turns, with what
    is left of their words, and the summary that stands for the older ones. Returns the number of the last."""
    summaries = select(Compaction.__table__).where(Compaction.session_id == original, Compaction.through_turn < before)
    summary = (await conn.execute(summaries.order_by(Compaction.through_turn.desc()).limit(1))).one_or_none()
    if summary is not None:
        await conn.execute(insert(Compaction).values(**summary._asdict() | {"session_id": session_id}))
    after = summary.through_turn if summary is not None else 0
    items = (
        select(TranscriptItem.__table__)
        .join(Turn, Turn.id == TranscriptItem.turn_id)
        .where(TranscriptItem.session_id == original, Turn.number > after, Turn.number < before)
        .order_by(Turn.number, TranscriptItem.position)
    )
    words = [row._asdict() for row in (await conn.execute(items)).all()]
    known = {row["turn_id"]: new_id() for row in words}
    turns = (await conn.execute(select(Turn.__table__).where(Turn.id.in_(known)).order_by(Turn.number))).all()
    if turns:
        shown = ("number", "provider", "model", "started_at", "ended_at")
        ended = {"session_id": session_id, "status": "completed", "lease_token": 0}
        copies = [{name: getattr(turn, name) for name in shown} | ended | {"id": known[turn.id]} for turn in turns]
        await conn.execute(insert(Turn), copies)
        ours = [row | {"id": new_id(), "session_id": session_id, "turn_id": known[row["turn_id"]]} for row in words]
        await conn.execute(insert(TranscriptItem), ours)
    return int(turns[-1].number if turns else after)


# --- comparing ---


async def copies_of(conn: AsyncConnection, session_id: str) -> list[AnyRow]:
    """What was said again in a replay, in order, each with the turn of the original (`original_turn`; None: pruned)."""
    original = MessageIn.__table__.alias()
    query = (
        select(MessageIn.__table__, original.c.turn_id.label("original_turn"))
        .outerjoin(original, original.c.id == MessageIn.replay_of)
        .where(MessageIn.session_id == session_id, MessageIn.replay_of.is_not(None))
        .order_by(MessageIn.seq)
    )
    return list((await conn.execute(query)).all())


async def turns_named(conn: AsyncConnection, ids: Sequence[str]) -> dict[str, AnyRow]:
    query = select(Turn.__table__).where(Turn.id.in_(ids))
    return {row.id: row for row in (await conn.execute(query)).all()}


async def originals_of(conn: AsyncConnection, session_id: str) -> dict[str, AnyRow]:
    """The messages that a replay's are copies of, by id; those that are left."""
    copy = MessageIn.__table__.alias()
    copied = select(copy.c.replay_of).where(copy.c.session_id == session_id)
    query = select(MessageIn.__table__).where(MessageIn.id.in_(copied))
    return {row.id: row for row in (await conn.execute(query)).all()}


async def said_in(conn: AsyncConnection, turns: Sequence[str]) -> dict[str, list[AnyRow]]:
    """What each turn said, in order; without the fleet's own notices."""
    said = select(MessageOut.__table__).where(MessageOut.turn_id.in_(turns), MessageOut.kind != "notice")
    return await _by_turn(conn, said.order_by(MessageOut.seq))


async def called_in(conn: AsyncConnection, turns: Sequence[str]) -> dict[str, list[AnyRow]]:
    """The tools each turn called, in order."""
    called = select(Step.__table__).where(and_(Step.turn_id.in_(turns), Step.kind == "tool"))
    return await _by_turn(conn, called.order_by(Step.number))


async def _by_turn(conn: AsyncConnection, query: Select[Any]) -> dict[str, list[AnyRow]]:
    found: dict[str, list[AnyRow]] = {}
    for row in (await conn.execute(query)).all():
        found.setdefault(row.turn_id, []).append(row)
    return found
