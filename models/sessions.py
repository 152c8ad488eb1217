"""Sessions, and the lease that lets at most one worker run one.

Every write of a running turn goes through `hold` or `release`: one UPDATE of the session's row that checks the fencing
token, takes the row's lock until the commit, and hands out the numbers for messages and events. Whoever lost the
lease gets LeaseLostError and can write nothing. What locks a session's row and rows of its messages
locks the session's first."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    CheckConstraint,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.sql.dml import ReturningUpdate

from models.base import AnyRow, Base, Id, Json, Timestamp, given, given_seconds, new_id, now, values
from models.errors import LeaseLostError
from models.groups import AgentGroup, MessagingGroup, Wiring
from models.inbox import MessageIn
from models.upsert import insert_ignoring

_ACTIVE = text("status = 'active'")
_LEASED = text("lease_expires_at IS NOT NULL")
_RUNG = text("woken_at IS NOT NULL")
_REPLAYS = text("replay_of IS NOT NULL")
_OF_WORKFLOWS = text("workflow_id IS NOT NULL")


class Session(Base):
    __tablename__ = "sessions"
    __table_args__ = (
        CheckConstraint("status IN ('active', 'closed')", name="status"),
        Index(
            "uq_sessions_active",
            "agent_group_id",
            "messaging_group_id",
            "thread_id",
            unique=True,
            postgresql_where=_ACTIVE,
            sqlite_where=_ACTIVE,
        ),
        Index("ix_sessions_lease", "lease_expires_at", postgresql_where=_LEASED, sqlite_where=_LEASED),
        Index("ix_sessions_rung", "woken_at", postgresql_where=_RUNG, sqlite_where=_RUNG),
        Index("ix_sessions_last_active", "last_active"),
        Index("ix_sessions_replay_of", "replay_of", postgresql_where=_REPLAYS, sqlite_where=_REPLAYS),
        Index("ix_sessions_workflow_id", "workflow_id", postgresql_where=_OF_WORKFLOWS, sqlite_where=_OF_WORKFLOWS),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    agent_group_id: Mapped[str] = mapped_column(ForeignKey("agent_groups.id"))
    messaging_group_id: Mapped[str | None] = mapped_column(ForeignKey("messaging_groups.id"), index=True)
    thread_id: Mapped[str] = mapped_column(String(255), default="")
    provider: Mapped[str | None] = mapped_column(String(100))
    model: Mapped[str | None] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(10), default="active")
    continuation: Mapped[dict[str, Any] | None] = mapped_column(Json)
    # The last numbers given out: to messages in and out, to turns, to lasting events.
    message_seq: Mapped[int] = mapped_column(Integer, default=0)
    turn_seq: Mapped[int] = mapped_column(Integer, default=0)
    event_seq: Mapped[int] = mapped_column(BigInteger, default=0)
    # The lease.
    lease_owner: Mapped[str | None] = mapped_column(String(200))
    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    lease_expires_at: Mapped[datetime | None] = mapped_column(Timestamp)
    activity: Mapped[str | None] = mapped_column(String(200))
    activity_since: Mapped[datetime | None] = mapped_column(Timestamp)
    # When somebody last rang for this session and no worker has taken it since: further wakes are not sent.
    woken_at: Mapped[datetime | None] = mapped_column(Timestamp)
    # Nothing of this session runs before (a retry waits, a provider asked for patience).
    resume_after: Mapped[datetime | None] = mapped_column(Timestamp)
    # The session whose messages this one was given again, and whether what its agent says leaves the house.
    replay_of: Mapped[str | None] = mapped_column(Id)
    delivers: Mapped[bool] = mapped_column(Boolean, default=True, server_default=true())
    workflow_id: Mapped[str | None] = mapped_column(Id)  # whose stages are run here
    last_active: Mapped[datetime] = mapped_column(Timestamp, default=now())
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


_table = cast(Table, Session.__table__)


@dataclass(frozen=True)
class Lease:
    """The right to run a session, until somebody with a higher token takes it."""

    session_id: str
    owner: str
    token: int


@dataclass(frozen=True)
class Admission:
    """What a new message got from its session: its number, and whether somebody must be woken for it."""

    session_id: str
    provider: str | None
    seq: int
    ring: bool
    running: bool  # a worker has the session
    resting: bool  # nothing of it runs before a later time: a retry waits, or a person is asked


def not_leased() -> ColumnElement[bool]:
    return or_(Session.lease_expires_at.is_(None), Session.lease_expires_at < now())


def not_resting() -> ColumnElement[bool]:
    return or_(Session.resume_after.is_(None), Session.resume_after <= now())


def not_rung(minus_repeat: float | BindParameter[float]) -> ColumnElement[bool]:
    """Nobody has rung for it within the last seconds (given as a negative number)."""
    return or_(Session.woken_at.is_(None), Session.woken_at < now(minus_repeat))


async def ensure_session(conn: AsyncConnection, agent_group_id: str, messaging_group_id: str, thread_id: str) -> bool:
    """Make the active session of a conversation if there is none. A thousand callers at once make one, and one of them
    is told that it has (True)."""
    return await insert_ignoring(
        conn,
        Session,
        agent_group_id=agent_group_id,
        messaging_group_id=messaging_group_id,
        thread_id=thread_id,
    )


async def find_active_session(
    conn: AsyncConnection, agent_group_id: str, messaging_group_id: str, thread_id: str
) -> str | None:
    query = select(Session.id).where(
        Session.agent_group_id == agent_group_id,
        Session.messaging_group_id == messaging_group_id,
        Session.thread_id == thread_id,
        Session.status == "active",
    )
    return (await conn.execute(query)).scalar_one_or_none()


def _admit(wakes: bool) -> ReturningUpdate[Any]:
    ringing = and_(not_leased(), not_resting(), not_rung(bindparam("given_minus_repeat", type_=Float)))
    # Also while leased: that is how the worker learns that there is more.
    bell = case((or_(ringing, ~not_leased()), now()), else_=Session.woken_at)
    return (
        update(_table)
        .where(
            Session.agent_group_id == given("agent_group"),
            Session.messaging_group_id == given("place"),
            Session.thread_id == given("thread"),
            Session.status == "active",
        )
        .values(message_seq=Session.message_seq + 1, last_active=now(), woken_at=bell if wakes else Session.woken_at)
        # Plain columns, judged below: SQLite gets expressions in RETURNING wrong next to a partial index.
        .returning(
            _table.c.id,
            _table.c.provider,
            _table.c.message_seq,
            _table.c.woken_at,
            _table.c.last_active,
            _table.c.lease_expires_at,
            _table.c.resume_after,
        )
    )


_ADMIT = {wakes: _admit(wakes) for wakes in (True, False)}


async def admit(
    conn: AsyncConnection,
    agent_group_id: str,
    messaging_group_id: str,
    thread_id: str,
    *,
    wakes: bool,
    repeat_seconds: float,
) -> Admission | None:
    """Give the next message number of a conversation's active session, and decide whether to ring. None: no session.

    A wake is not needed while one is on its way (younger than `repeat_seconds`), while a worker has the session (it
    looks again before it lets go: `release` tells it) or while the session rests until a later time."""
    key = values(agent_group=agent_group_id, place=messaging_group_id, thread=thread_id)
    asked = key | values(minus_repeat=-repeat_seconds) if wakes else key
    row = (await conn.execute(_ADMIT[wakes], asked)).one_or_none()
    if row is None:
        return None
    leased = row.lease_expires_at is not None and row.lease_expires_at >= row.last_active
    # Both were set from one reading of the clock exactly when the bell was set.
    ring = wakes and not leased and row.woken_at == row.last_active
    resting = row.resume_after is not None and row.resume_after > row.last_active
    return Admission(row.id, row.provider, row.message_seq, ring, leased, resting)


_DUE = select(MessageIn.id).where(
    MessageIn.session_id == given("session"),
    MessageIn.status.in_(["pending", "processing"]),
    MessageIn.process_after <= now(),
)
_CLAIM = (
    update(_table)
    .where(Session.id == given("session"), Session.status == "active", not_leased(), not_resting(), _DUE.exists())
    .values(
        lease_owner=given("owner"),
        lease_token=Session.lease_token + 1,
        lease_expires_at=given_seconds("lease"),
        activity="calling model",
        activity_since=now(),
        woken_at=None,
        resume_after=None,
        event_seq=Session.event_seq + 1,
        turn_seq=Session.turn_seq + 1,
    )
    .returning(
        _table.c.id,
        _table.c.agent_group_id,
        _table.c.provider,
        _table.c.model,
        _table.c.continuation,
        _table.c.lease_token,
        _table.c.event_seq,
        _table.c.turn_seq,
        _table.c.activity_since,  # the database's clock at this moment
        _table.c.replay_of,
        _table.c.delivers,
        _table.c.workflow_id,
    )
)


async def claim(conn: AsyncConnection, session_id: str, owner: str, lease_seconds: float) -> AnyRow | None:
    """Take the session if nobody has it. The next turn's number and its first event's are given out with it.

    None means: nothing is due, somebody has it, it rests, it is closed, or it does not exist. Nothing was changed."""
    asked = values(session=session_id, owner=owner, lease=lease_seconds)
    claimed: AnyRow | None = (await conn.execute(_CLAIM, asked)).one_or_none()
    return claimed


_ACTIVITY = select(_table.c.activity, _table.c.activity_since, _table.c.lease_owner).where(
    Session.id == given("session")
)


async def find_activity(conn: AsyncConnection, session_id: str) -> AnyRow | None:
    """What a session is at, since when, and whose it is."""
    return (await conn.execute(_ACTIVITY, values(session=session_id))).one_or_none()


_EXISTS = select(_table.c.id).where(Session.id == given("session"))


async def session_exists(conn: AsyncConnection, session_id: str) -> bool:
    return (await conn.execute(_EXISTS, values(session=session_id))).one_or_none() is not None


async def give_back_turn_number(conn: AsyncConnection, session_id: str) -> None:
    """The claim goes on with an open turn and needs no new number."""
    statement = update(_table).where(Session.id == session_id)
    await conn.execute(statement.values(turn_seq=Session.turn_seq - 1, activity="resuming"))


async def take_numbers(conn: AsyncConnection, session_id: str, count: int) -> int:
    """Message numbers for somebody who does not run the session; returns the last of them."""
    statement = update(_table).where(Session.id == session_id).values(message_seq=Session.message_seq + count)
    return int((await conn.execute(statement.returning(_table.c.message_seq))).scalar_one())


async def set_numbers(conn: AsyncConnection, session_id: str, *, messages: int, turns: int) -> None:
    """The last ones that were given out, by whoever has just made the session and filled it; they ring for it."""
    statement = update(_table).where(Session.id == session_id)
    await conn.execute(statement.values(message_seq=messages, turn_seq=turns, woken_at=now()))


async def set_session(conn: AsyncConnection, session_id: str, **changes: Any) -> None:
    await conn.execute(update(_table).where(Session.id == session_id).values(**changes))


async def take_numbers_of_many(conn: AsyncConnection, counts: Mapping[str, int]) -> dict[str, int]:
    """The same for many sessions, for whoever has locked them: a statement for each different count."""
    last: dict[str, int] = {}
    for count in sorted(set(counts.values())):
        ids = [session_id for session_id, wanted in counts.items() if wanted == count]
        statement = update(_table).where(Session.id.in_(ids)).values(message_seq=Session.message_seq + count)
        rows = await conn.execute(statement.returning(_table.c.id, _table.c.message_seq))
        last |= {row.id: row.message_seq for row in rows.all()}
    return last


_OURS = and_(
    Session.id == given("session"), Session.lease_token == given("token"), Session.lease_owner == given("owner")
)
_NUMBERS = {
    "message_seq": Session.message_seq + given("messages"),
    "event_seq": Session.event_seq + given("events"),
}
_HOLD = (
    update(_table)
    .where(_OURS)
    .values(
        **_NUMBERS,
        activity=func.coalesce(given("activity"), Session.activity),
        activity_since=case((given("activity").is_(None), Session.activity_since), else_=now()),
    )
    .returning(_table.c.message_seq, _table.c.event_seq)
)


async def hold(
    conn: AsyncConnection, lease: Lease, *, activity: str | None = None, messages: int = 0, events: int = 0
) -> tuple[int, int]:
    """Check that the lease is ours and keep it ours until the commit; say what we are doing; take numbers.

    Returns the last message number and the last event number given out."""
    asked = _of(lease) | values(messages=messages, events=events, activity=activity and activity[:200])
    row = (await conn.execute(_HOLD, asked)).one_or_none()
    if row is None:
        raise LeaseLostError(f"session {lease.session_id}: lease {lease.token} is no longer ours")
    return row.message_seq, row.event_seq


@dataclass(frozen=True)
class Released:
    message_seq: int
    event_seq: int
    more: bool  # somebody rang while we had it


_RELEASE = (
    update(_table)
    .where(_OURS)
    .values(
        **_NUMBERS,
        lease_owner=None,
        lease_expires_at=None,
        activity=given("activity"),
        activity_since=now(),
        # Whoever calls this rings if it must; the mark keeps the sweep from ringing as well.
        # One that rests has no mark: the sweep is to ring on time.
        woken_at=case((given("rests"), None), (or_(given("ring"), Session.woken_at.is_not(None)), now()), else_=None),
        resume_after=case((given("rests"), given_seconds("rest")), else_=None),
        continuation=func.coalesce(
            bindparam("given_continuation", type_=_table.c.continuation.type), Session.continuation
        ),
    )
    .returning(_table.c.message_seq, _table.c.event_seq, _table.c.woken_at)
)


async def release(
    conn: AsyncConnection,
    lease: Lease,
    *,
    messages: int = 0,
    events: int = 0,
    rest_seconds: float | None = None,
    activity: str | None = None,
    ring: bool = False,
    continuation: dict[str, Any] | None = None,
) -> Released:
    """Let go of the session, as the first statement of the transaction that writes how its turn ended.

    `activity` says what it waits for, if it rests."""
    asked = _of(lease) | values(
        messages=messages,
        events=events,
        ring=ring,
        rests=rest_seconds is not None,
        rest=rest_seconds or 0.0,
        activity=activity and activity[:200],
        continuation=continuation,
    )
    row = (await conn.execute(_RELEASE, asked)).one_or_none()
    if row is None:
        raise LeaseLostError(f"session {lease.session_id}: lease {lease.token} is no longer ours")
    return Released(row.message_seq, row.event_seq, more=row.woken_at is not None)


def _of(lease: Lease) -> dict[str, Any]:
    return values(session=lease.session_id, token=lease.token, owner=lease.owner)


async def hear(conn: AsyncConnection, session_id: str) -> None:
    """The running turn has taken what it was rung for."""
    await conn.execute(update(_table).where(Session.id == session_id).values(woken_at=None))


async def evict(conn: AsyncConnection, session_id: str) -> None:
    """Take the session from whoever has it: they can write nothing any more, and let go when they notice. Locked until
    the commit."""
    nobody = {"lease_owner": None, "lease_expires_at": None, "lease_token": Session.lease_token + 1}
    idle = {"resume_after": None, "activity": None, "activity_since": now()}
    await conn.execute(update(_table).where(Session.id == session_id).values(**idle, **nobody))


async def take_event_number(conn: AsyncConnection, session_id: str) -> int:
    """The next event's, for whoever has taken the session from its worker."""
    statement = update(_table).where(Session.id == session_id).values(event_seq=Session.event_seq + 1)
    return int((await conn.execute(statement.returning(_table.c.event_seq))).scalar_one())


async def end_rest(conn: AsyncConnection, session_id: str) -> None:
    """What the session waited for has come. Whoever calls this rings."""
    statement = update(_table).where(Session.id == session_id)
    await conn.execute(statement.values(resume_after=None, activity=None, woken_at=now()))


async def renew(conn: AsyncConnection, owner: str, session_ids: list[str], lease_seconds: float) -> dict[str, bool]:
    """Extend all leases of one process in one statement. Returns those that are still its own, each with whether
    somebody has rung for it meanwhile."""
    statement = (
        update(Session)
        .where(Session.lease_owner == owner, Session.id.in_(session_ids))
        .values(lease_expires_at=now(lease_seconds))
        .returning(_table.c.id, _table.c.woken_at)
    )
    return {row.id: row.woken_at is not None for row in (await conn.execute(statement)).all()}


_CLOSE = (
    update(_table)
    .where(Session.id == given("session"), Session.status == "active")
    .values(status="closed", woken_at=None, activity=None, activity_since=now())
    .returning(
        _table.c.agent_group_id,
        _table.c.messaging_group_id,
        _table.c.thread_id,
        _table.c.provider,
        _table.c.model,
        _table.c.workflow_id,
    )
)


async def succeed(conn: AsyncConnection, session_id: str, new: str | None = None) -> str | None:
    """Close a session and make the next one of its conversation; returns its id (`new`, if that is given). None: it was
    closed already.

    For whoever holds the session's row (`release` was the first statement): a message that is being accepted meanwhile
    was admitted before and is among those that `move_waiting` takes along, or waits for the row and then finds the new
    session."""
    closed = (await conn.execute(_CLOSE, values(session=session_id))).one_or_none()
    if closed is None:
        return None
    new = new or new_id()
    await conn.execute(insert(Session).values(id=new, **closed._mapping))
    return new


async def close_session(conn: AsyncConnection, session_id: str) -> bool:
    """Nothing waits in it: the conversation's next one is made when somebody says something. False: it was closed
    already."""
    return (await conn.execute(_CLOSE, values(session=session_id))).one_or_none() is not None


async def lock_session(conn: AsyncConnection, session_id: str) -> None:
    """Until the commit: nobody begins or ends a turn of it meanwhile, and what is said to it waits."""
    await conn.execute(select(_table.c.id).where(Session.id == session_id).with_for_update())


async def place_of(conn: AsyncConnection, session_id: str) -> AnyRow | None:
    """Where a session's conversation is held; None: it is none."""
    query = select(MessagingGroup.__table__).join(Session, Session.messaging_group_id == MessagingGroup.id)
    return (await conn.execute(query.where(Session.id == session_id))).one_or_none()


async def living_session(conn: AsyncConnection, session_id: str) -> str:
    """The session itself, or, if it was closed, the active one of the same conversation. Locked until the commit, so
    that it is not closed meanwhile: what is put there is read. (A replay is no conversation: none follows it.)"""
    query = select(_table).where(Session.id == session_id).with_for_update()
    session = (await conn.execute(query)).one()
    if session.status == "active" or session.messaging_group_id is None:
        return session_id
    await ensure_session(conn, session.agent_group_id, session.messaging_group_id, session.thread_id)
    following = select(_table.c.id).where(
        Session.status == "active",
        Session.agent_group_id == session.agent_group_id,
        Session.messaging_group_id == session.messaging_group_id,
        Session.thread_id == session.thread_id,
    )
    return str((await conn.execute(following.with_for_update())).scalar_one())


async def move_waiting(conn: AsyncConnection, old: str, new: str, after: int = 0) -> None:
    """Messages that no turn has taken go to a new session, numbered in their order behind the `after` it has."""
    waiting = (
        select(MessageIn.id, func.row_number().over(order_by=MessageIn.seq).label("number"))
        .where(MessageIn.session_id == old, MessageIn.status.in_(["pending", "paused"]))
        .subquery()
    )
    inbox = cast(Table, MessageIn.__table__)
    await conn.execute(
        update(inbox)
        .where(inbox.c.id == waiting.c.id)
        .values(session_id=new, seq=waiting.c.number + after, turn_id=None)
    )
    moved = select(func.count()).where(MessageIn.session_id == new).scalar_subquery()
    await conn.execute(update(_table).where(Session.id == new).values(message_seq=moved))


async def mark_if_due(conn: AsyncConnection, session_id: str) -> bool:
    """Set the mark of a session that has something to do now. Whoever calls this rings then."""
    due = _DUE.where(MessageIn.wakes).exists()
    statement = update(_table).where(Session.id == given("session"), due).values(woken_at=now())
    return (await conn.execute(statement.returning(_table.c.id), values(session=session_id))).one_or_none() is not None


async def sessions_named(conn: AsyncConnection, folders: Collection[str] | None, handle: str) -> list[AnyRow]:
    """Sessions of some agents (None: of all) that an id, or the end of one, may mean. Two are enough to be unsure."""
    query = (
        select(Session.__table__, AgentGroup.folder)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(or_(Session.id == handle, Session.id.endswith(handle, autoescape=True)))
        .limit(2)
    )
    if folders is not None:
        query = query.where(AgentGroup.folder.in_(folders))
    return list((await conn.execute(query)).all())


_group = select(_table.c.agent_group_id).where(Session.id == given("session")).scalar_subquery()
_place = select(MessagingGroup.id).where(
    MessagingGroup.channel_type == given("channel"), MessagingGroup.platform_id == given("place")
)
_REACHES = select(
    or_(
        select(Wiring.id).where(Wiring.agent_group_id == _group, Wiring.messaging_group_id.in_(_place)).exists(),
        select(Session.id).where(Session.agent_group_id == _group, Session.messaging_group_id.in_(_place)).exists(),
    )
)


async def may_reach(conn: AsyncConnection, session_id: str, channel_type: str, platform_id: str) -> bool:
    """Whether a session's agent may send to a place: it is wired there, or has a session there."""
    asked = values(session=session_id, channel=channel_type, place=platform_id)
    return bool((await conn.execute(_REACHES, asked)).scalar_one())


async def find_session(conn: AsyncConnection, session_id: str) -> AnyRow | None:
    query = (
        select(Session.__table__, AgentGroup.folder, AgentGroup.provider.label("group_provider"))
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(Session.id == session_id)
    )
    return (await conn.execute(query)).one_or_none()
