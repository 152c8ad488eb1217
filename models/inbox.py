"""messages_in: everything an agent is asked, from acceptance to answer. A retry and a schedule are dates on a row."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    and_,
    bindparam,
    case,
    func,
    select,
    text,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column

from models.base import AnyRow, Base, Id, Json, Timestamp, Words, given, new_id, now, values

KINDS = ("chat", "chat-sdk", "task", "webhook", "system")
FOLLOW_UPS = ("enqueue", "interrupt", "separate")
# A message that failed this often no longer shares a turn: a poisonous neighbour must not take it along.
TRAVELS_ALONE_AFTER = 2
BATCH_LIMIT = 100

_DUE_CHATS = text("status = 'pending' AND kind <> 'task'")
_DUE_TASKS = text("status = 'pending' AND kind = 'task'")
_OPEN = text("status IN ('pending', 'processing')")
RECURRING = text("recurrence IS NOT NULL AND NOT recurred AND status IN ('completed', 'failed', 'discarded')")
_DEAD = text("status = 'failed'")
_PAUSED = text("status = 'paused'")


class MessageIn(Base):
    __tablename__ = "messages_in"
    __table_args__ = (
        CheckConstraint(f"kind IN {KINDS}", name="kind"),
        CheckConstraint(
            "status IN ('pending', 'processing', 'completed', 'failed', 'paused', 'discarded')", name="status"
        ),
        CheckConstraint(f"follow_up IN {FOLLOW_UPS}", name="follow_up"),
        UniqueConstraint("session_id", "seq"),
        UniqueConstraint("series_id", "process_after"),
        Index(
            "uq_messages_in_platform_message",
            # The agent last: whether a platform's message was heard before is asked whoever it went to.
            "channel_type",
            "platform_id",
            "platform_message_id",
            "agent_group_id",
            unique=True,
            postgresql_where=text("platform_message_id IS NOT NULL"),
            sqlite_where=text("platform_message_id IS NOT NULL"),
        ),
        # These hold only rows that still need something: finished rows cost the sweep nothing.
        # Tasks apart: however many of them are late, a chat is found as soon.
        Index(
            "ix_messages_in_due", "process_after", "session_id", postgresql_where=_DUE_CHATS, sqlite_where=_DUE_CHATS
        ),
        Index(
            "ix_messages_in_due_tasks",
            "process_after",
            "session_id",
            postgresql_where=_DUE_TASKS,
            sqlite_where=_DUE_TASKS,
        ),
        Index("ix_messages_in_open", "session_id", "seq", postgresql_where=_OPEN, sqlite_where=_OPEN),
        Index("ix_messages_in_recurring", "id", postgresql_where=RECURRING, sqlite_where=RECURRING),
        Index("ix_messages_in_dead", "status_changed_at", postgresql_where=_DEAD, sqlite_where=_DEAD),
        Index("ix_messages_in_waiting", "channel_type", "sender_id", postgresql_where=_PAUSED, sqlite_where=_PAUSED),
        Index("ix_messages_in_turn_id", "turn_id"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    # With the platform's id it says which messages are the same: those inside may send one to several agents.
    agent_group_id: Mapped[str | None] = mapped_column(ForeignKey("agent_groups.id"))
    seq: Mapped[int] = mapped_column(Integer)
    kind: Mapped[str] = mapped_column(String(10))
    status: Mapped[str] = mapped_column(String(10), default="pending")
    status_changed_at: Mapped[datetime] = mapped_column(Timestamp, default=now())
    # False: rides along with the next turn, does not start one.
    wakes: Mapped[bool] = mapped_column(Boolean, default=True)
    # What it does when it comes while a turn runs; what would be refused is no row.
    follow_up: Mapped[str] = mapped_column(String(10), default="enqueue")
    process_after: Mapped[datetime] = mapped_column(Timestamp, default=now())
    # The date a schedule names, from which its next is computed; `process_after` may lie a little later (jitter).
    scheduled_for: Mapped[datetime | None] = mapped_column(Timestamp)
    recurrence: Mapped[str | None] = mapped_column(String(100))
    timezone: Mapped[str] = mapped_column(String(50), default="UTC")
    series_id: Mapped[str | None] = mapped_column(Id)
    recurred: Mapped[bool] = mapped_column(Boolean, default=False)
    tries: Mapped[int] = mapped_column(Integer, default=0)
    turn_id: Mapped[str | None] = mapped_column(ForeignKey("turns.id"))
    # Where it came from, and so where the answer goes. Never shown to the agent.
    channel_type: Mapped[str] = mapped_column(String(50))
    platform_id: Mapped[str] = mapped_column(String(255))
    thread_id: Mapped[str | None] = mapped_column(String(255))
    platform_message_id: Mapped[str | None] = mapped_column(String(255))
    sender_id: Mapped[str | None] = mapped_column(String(255))
    # Who is to run it, where somebody has chosen: one that was tried again, or is replayed, on another provider.
    provider: Mapped[str | None] = mapped_column(String(100))
    model: Mapped[str | None] = mapped_column(String(200))
    replay_of: Mapped[str | None] = mapped_column(Id)  # the message this is a copy of
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    error_class: Mapped[str | None] = mapped_column(String(30))
    error: Mapped[str | None] = mapped_column(Words)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


_table = cast(Table, MessageIn.__table__)
_SHOWN = (
    _table.c.id,
    _table.c.seq,
    _table.c.kind,
    _table.c.status,
    _table.c.status_changed_at,
    _table.c.wakes,
    _table.c.follow_up,
    _table.c.tries,
    _table.c.turn_id,
    _table.c.process_after,
    _table.c.scheduled_for,
    _table.c.timezone,
    _table.c.series_id,
    _table.c.recurrence,
    _table.c.recurred,
    _table.c.channel_type,
    _table.c.platform_id,
    _table.c.thread_id,
    _table.c.sender_id,
    _table.c.provider,
    _table.c.model,
    _table.c.content,
    _table.c.created_at,
)
_date_of_task = case((MessageIn.series_id.is_not(None), MessageIn.process_after))
_DUE = (
    select(*_SHOWN)
    .where(
        MessageIn.session_id == given("session"),
        MessageIn.status.in_(["pending", "processing"]),
        MessageIn.process_after <= now(),
    )
    # Those of an unfinished turn first: they must be seen however many others are due. Then what people say: nobody
    # waits behind the tasks of a conversation, which come in the order of their dates.
    .order_by(MessageIn.turn_id.is_(None), MessageIn.series_id.is_not(None), _date_of_task, MessageIn.seq)
    .limit(BATCH_LIMIT + 1)
)


async def due_messages(conn: AsyncConnection, session_id: str) -> list[AnyRow]:
    """What is due in a session. A message that has a turn belongs to one that was not finished, and comes first; runs
    of tasks come last."""
    return list((await conn.execute(_DUE, values(session=session_id))).all())


def batch(due: Sequence[AnyRow]) -> list[AnyRow]:
    """Those of the due messages that one new turn takes. Empty unless at least one of them starts a turn."""
    taken: list[AnyRow] = []
    for row in due[:BATCH_LIMIT]:
        alone = _travels_alone(row)
        if alone and any(earlier.wakes for earlier in taken):
            break
        taken.append(row)
        if alone and row.wakes:  # but for what rides along
            break
    return taken if any(row.wakes for row in taken) else []


def _travels_alone(row: AnyRow) -> bool:
    """One that failed before may be what breaks turns. One of a series has terms (a script, a budget, a provider) that
    would be everybody's; and so would be the provider of one that names who is to run it."""
    return row.tries >= TRAVELS_ALONE_AFTER or row.series_id is not None or row.provider is not None


def joining(due: Sequence[AnyRow]) -> list[AnyRow]:
    """Those of the due messages that join a turn under way: up to the first that wants a turn of its own. One that
    failed before does not join: it may be what breaks turns. A task that has come due meanwhile waits for its own, and
    what people say passes it by. None joins a turn that somebody has put on a provider: only one message was meant."""
    if any(row.turn_id is not None and row.provider is not None for row in due):
        return []
    joined: list[AnyRow] = []
    for row in due[:BATCH_LIMIT]:
        if row.turn_id is not None or row.series_id is not None:
            continue
        if row.follow_up == "separate" or row.tries >= TRAVELS_ALONE_AFTER or row.provider is not None:
            break
        joined.append(row)
    return joined if any(row.wakes for row in joined) else []


async def waits_to_interrupt(conn: AsyncConnection, session_id: str) -> bool:
    """Whether a message would join a turn under way that does not want the agent to finish its sentence."""
    return any(row.follow_up == "interrupt" for row in joining(await due_messages(conn, session_id)))


async def messages_of_turn(conn: AsyncConnection, turn_id: str) -> list[AnyRow]:
    query = select(*_SHOWN).where(MessageIn.turn_id == turn_id).order_by(MessageIn.seq)
    return list((await conn.execute(query)).all())


_BEGIN = (
    update(_table)
    .where(MessageIn.id.in_(bindparam("given_ids", expanding=True)))
    .values(status="processing", status_changed_at=now(), tries=MessageIn.tries + 1, turn_id=given("turn"))
)


async def begin_processing(conn: AsyncConnection, message_ids: list[str], turn_id: str) -> None:
    await conn.execute(_BEGIN, values(ids=message_ids, turn=turn_id))


_COMPLETE = (
    update(_table)
    .where(MessageIn.turn_id == given("turn"))
    .values(status="completed", status_changed_at=now(), error=None, error_class=None)
)


async def complete_messages(conn: AsyncConnection, turn_id: str) -> None:
    await conn.execute(_COMPLETE, values(turn=turn_id))


_LEAVE = (
    update(_table)
    .where(MessageIn.turn_id == given("turn"), ~MessageIn.wakes)
    .values(status="pending", status_changed_at=now(), tries=MessageIn.tries - 1, turn_id=None)
)


async def leave_for_later(conn: AsyncConnection, turn_id: str) -> None:
    """What rode along with a turn whose agent was never asked rides along with the next one."""
    await conn.execute(_LEAVE, values(turn=turn_id))


async def settle(conn: AsyncConnection, of_turn: str, status: str, **changes: Any) -> None:
    """Move all messages of a turn to a new status."""
    statement = update(MessageIn).where(MessageIn.turn_id == of_turn)
    await conn.execute(statement.values(status=status, status_changed_at=now(), **changes))


async def has_waiting(conn: AsyncConnection, session_id: str) -> bool:
    """Whether messages of a session are still to be answered, or wait for somebody's word."""
    waiting = select(MessageIn.id).where(MessageIn.session_id == session_id)
    waiting = waiting.where(MessageIn.status.in_(["pending", "processing", "paused"]))
    return bool((await conn.execute(select(waiting.exists()))).scalar_one())


async def discard_waiting(conn: AsyncConnection, session_id: str, why: str) -> None:
    """What no turn has taken is answered by none."""
    statement = update(MessageIn).where(MessageIn.session_id == session_id, MessageIn.status.in_(["pending", "paused"]))
    await conn.execute(statement.values(status="discarded", status_changed_at=now(), error=why))


_HEARD = select(MessageIn.id, MessageIn.session_id, MessageIn.seq).where(
    MessageIn.channel_type == given("channel"),
    MessageIn.platform_id == given("place"),
    MessageIn.platform_message_id == given("message"),
)


async def heard_before(
    conn: AsyncConnection, channel_type: str, platform_id: str, platform_message_id: str
) -> AnyRow | None:
    """The row of a platform's message, whichever agent it went to. Copies that come at once look one after the other,
    each when the transaction of the one before is over: what was decided about the first is seen by the others."""
    if conn.dialect.name == "postgresql":  # SQLite has one writer at a time anyway
        key = hashlib.sha256(json.dumps([channel_type, platform_id, platform_message_id]).encode()).digest()
        await conn.execute(select(func.pg_advisory_xact_lock(int.from_bytes(key[:8], signed=True))))
    asked = values(channel=channel_type, place=platform_id, message=platform_message_id)
    return (await conn.execute(_HEARD.limit(1), asked)).one_or_none()


def waiting_of(channel_type: str, sender_id: str | None, agent_group_id: str | None) -> ColumnElement[bool]:
    """Somebody's messages that wait to be let in, by one agent or (None) by any. (A task that is paused waits for
    something else.)"""
    return and_(
        MessageIn.agent_group_id == agent_group_id if agent_group_id is not None else true(),
        MessageIn.channel_type == channel_type,
        MessageIn.sender_id == sender_id,
        MessageIn.status == "paused",
        MessageIn.kind != "task",
    )
