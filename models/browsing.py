"""Looking through what there is, page by page: sessions, their messages, turns and steps, and what went wrong.

Pages go on after a point and not after a count, so that what comes in meanwhile moves nothing. Whose rows may be seen
is for the caller to say: `mine` narrows to the agents of somebody's reach."""

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import InstrumentedAttribute

from models.base import AnyRow, now
from models.fleet import Rejected
from models.groups import AgentGroup, MessagingGroup, is_ours
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import Session
from models.spending import Mine
from models.turns import Step, Turn

State = Literal["working", "worker lost", "resting", "waiting", "idle", "closed"]
_MOST_MICROS: Final = 253_402_300_799_000_000  # the end of the year 9999
# Written out, as in the indexes that hold only these.
_OPEN: Final = text("messages_in.status IN ('pending', 'processing')")
_DEAD: Final = text("messages_in.status = 'failed'")
_OPEN_TURN: Final = text("turns.status IN ('running', 'waiting', 'parked')")
_UNDELIVERED: Final = text("messages_out.status IN ('failed', 'unknown')")


@dataclass(frozen=True)
class Point:
    """Where a page ended: a moment, and the row among those of that moment."""

    at: datetime
    row_id: str

    @classmethod
    def parse(cls, text: str) -> "Point | None":
        """None: that is not one of ours."""
        try:
            plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        except (binascii.Error, ValueError):
            return None
        stamp, _, row_id = plain.partition("_")
        if not (stamp.isascii() and stamp.isdigit() and row_id and "\x00" not in row_id and len(row_id) <= 36):
            return None
        if len(stamp) > 18 or int(stamp) > _MOST_MICROS:
            return None
        # Not by way of a float, which would lose the microseconds.
        seconds, micros = divmod(int(stamp), 1_000_000)
        return cls(datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros), row_id)

    def __str__(self) -> str:
        stamp = int(self.at.timestamp()) * 1_000_000 + self.at.microsecond
        # Ids may be a producer's own, of any letters: they do not fit into an address as they are.
        return base64.urlsafe_b64encode(f"{stamp}_{self.row_id}".encode()).decode().rstrip("=")


def _before(
    at: InstrumentedAttribute[datetime], row_id: InstrumentedAttribute[str], point: Point | None
) -> list[ColumnElement[bool]]:
    """What follows a point in a list with the latest first. In these words an index on the moment is used."""
    if point is None:
        return []
    return [and_(at <= point.at, or_(at < point.at, row_id < point.row_id))]


def _sessions() -> Select[Any]:
    own = select(func.count()).where(MessageIn.session_id == Session.id)
    due = own.where(_OPEN, MessageIn.wakes, MessageIn.process_after <= now())
    pending, dead = due.scalar_subquery(), own.where(_DEAD).scalar_subquery()
    return (
        select(
            Session.__table__,
            AgentGroup.folder,
            AgentGroup.provider.label("group_provider"),
            AgentGroup.model.label("group_model"),
            MessagingGroup.channel_type,
            MessagingGroup.platform_id,
            pending.label("pending"),
            dead.label("dead"),
            exists().where(Turn.session_id == Session.id, _OPEN_TURN).label("has_turn"),
            now().label("at"),
        )
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .outerjoin(MessagingGroup, MessagingGroup.id == Session.messaging_group_id)
        .where(~AgentGroup.folder.startswith("."))  # the fleet's own never run
    )


async def sessions_page(
    conn: AsyncConnection,
    mine: Mine,
    limit: int,
    after: Point | None = None,
    *,
    agent: str | None = None,
    status: str | None = None,
    search: str | None = None,
) -> list[AnyRow]:
    """The most recently active first; one that is spoken to meanwhile moves to the front. `at`: the database's time;
    `has_turn`: one that has not ended, and could be cancelled.
    `search`: what stands in the name of the agent, the place or the thread, or ends the id."""
    narrow = [AgentGroup.folder == agent] if agent is not None else []
    narrow += [Session.status == status] if status is not None else []
    narrow += [_named(search)] if search else []
    query = _sessions().where(mine(Session.agent_group_id), *narrow, *_before(Session.last_active, Session.id, after))
    query = query.order_by(Session.last_active.desc(), Session.id.desc()).limit(limit)
    return list((await conn.execute(query)).all())


def _named(search: str) -> ColumnElement[bool]:
    named = (AgentGroup.folder, AgentGroup.name, MessagingGroup.channel_type, MessagingGroup.platform_id)
    inside = [column.icontains(search, autoescape=True) for column in (*named, Session.thread_id)]
    return or_(*inside, Session.id.endswith(search.lower(), autoescape=True))


async def find_shown_session(conn: AsyncConnection, session_id: str) -> AnyRow | None:
    """As in `sessions_page`."""
    found: AnyRow | None = (await conn.execute(_sessions().where(Session.id == session_id))).one_or_none()
    return found


def state_of(row: AnyRow, at: datetime | None = None) -> State:
    """How a session stands, by the database's clock, which rows of these queries have with them."""
    at = at or row.at
    if row.status == "closed":
        return "closed"
    if row.lease_expires_at is not None:
        return "working" if row.lease_expires_at >= at else "worker lost"
    if row.resume_after is not None and row.resume_after > at:
        return "resting"
    return "waiting" if row.pending else "idle"


async def messages_page(
    conn: AsyncConnection, session_id: str, limit: int | None, after: int = 0
) -> list[tuple[Literal["in", "out"], AnyRow]]:
    """Both directions in their order, from a number on; None: to the end."""
    heard = select(MessageIn.__table__).where(MessageIn.session_id == session_id, MessageIn.seq > after)
    said = select(MessageOut.__table__).where(MessageOut.session_id == session_id, MessageOut.seq > after)
    found: list[tuple[Literal["in", "out"], AnyRow]] = []
    found += [("in", row) for row in (await conn.execute(heard.order_by(MessageIn.seq).limit(limit))).all()]
    found += [("out", row) for row in (await conn.execute(said.order_by(MessageOut.seq).limit(limit))).all()]
    return sorted(found, key=lambda one: one[1].seq)[:limit]


def _turns() -> Select[Any]:
    return (
        select(Turn.__table__, Session.agent_group_id, AgentGroup.folder)
        .join(Session, Session.id == Turn.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    )


async def turns_page(conn: AsyncConnection, session_id: str, limit: int, after: int = 0) -> list[AnyRow]:
    """In their order, from a number on."""
    query = _turns().where(Turn.session_id == session_id, Turn.number > after).order_by(Turn.number).limit(limit)
    return list((await conn.execute(query)).all())


async def find_turn(conn: AsyncConnection, turn_id: str) -> AnyRow | None:
    found: AnyRow | None = (await conn.execute(_turns().where(Turn.id == turn_id))).one_or_none()
    return found


async def steps_page(conn: AsyncConnection, turn_id: str, limit: int, after: int = 0) -> list[AnyRow]:
    query = select(Step.__table__).where(Step.turn_id == turn_id, Step.number > after).order_by(Step.number)
    return list((await conn.execute(query.limit(limit))).all())


def _messages() -> Select[Any]:
    # By the session's agent: it is the one that has the message, whoever it was sent to first.
    return (
        select(MessageIn.__table__, Session.agent_group_id.label("owner_id"), AgentGroup.folder)
        .join(Session, Session.id == MessageIn.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    )


def dead_messages() -> Select[Any]:
    return _messages().where(_DEAD)


async def find_message(conn: AsyncConnection, message_id: str) -> AnyRow | None:
    """With its agent (`owner_id`, `folder`), and its session's provider and state."""
    query = _messages().add_columns(
        func.coalesce(Session.provider, AgentGroup.provider).label("own_provider"),
        Session.status.label("session_status"),
        Session.replay_of.label("session_replay_of"),
    )
    found: AnyRow | None = (await conn.execute(query.where(MessageIn.id == message_id))).one_or_none()
    return None if found is None or is_ours(found.folder) else found


async def dead_page(
    conn: AsyncConnection,
    mine: Mine,
    limit: int,
    after: Point | None = None,
    *,
    agent: str | None = None,
) -> list[AnyRow]:
    """Dead letters with their agents, the latest first."""
    narrow = [AgentGroup.folder == agent] if agent is not None else []
    earlier = _before(MessageIn.status_changed_at, MessageIn.id, after)
    query = dead_messages().where(mine(Session.agent_group_id), *narrow, *earlier)
    query = query.order_by(MessageIn.status_changed_at.desc(), MessageIn.id.desc()).limit(limit)
    return list((await conn.execute(query)).all())


def _answers() -> Select[Any]:
    return (
        select(MessageOut.__table__, Session.agent_group_id.label("owner_id"), AgentGroup.folder)
        .join(Session, Session.id == MessageOut.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    )


def undelivered_answers() -> Select[Any]:
    return _answers().where(_UNDELIVERED)


async def find_answer(conn: AsyncConnection, message_out_id: str) -> AnyRow | None:
    """With its agent: `owner_id` and `folder`."""
    found: AnyRow | None = (await conn.execute(_answers().where(MessageOut.id == message_out_id))).one_or_none()
    return found


async def undelivered_page(conn: AsyncConnection, mine: Mine, limit: int, after: Point | None = None) -> list[AnyRow]:
    """Replies that nobody will send again by itself, the latest first; also what the fleet itself says."""
    query = undelivered_answers().where(
        mine(Session.agent_group_id), *_before(MessageOut.created_at, MessageOut.id, after)
    )
    query = query.order_by(MessageOut.created_at.desc(), MessageOut.id.desc()).limit(limit)
    return list((await conn.execute(query)).all())


async def find_undelivered_one(conn: AsyncConnection, message_id: str) -> AnyRow | None:
    found: AnyRow | None = (await conn.execute(undelivered_answers().where(MessageOut.id == message_id))).one_or_none()
    return found


async def rejected_page(conn: AsyncConnection, limit: int, after: Point | None = None) -> list[AnyRow]:
    """Input that was refused, the latest first."""
    query = select(Rejected.__table__).where(*_before(Rejected.created_at, Rejected.id, after))
    query = query.order_by(Rejected.created_at.desc(), Rejected.id.desc()).limit(limit)
    return list((await conn.execute(query)).all())
