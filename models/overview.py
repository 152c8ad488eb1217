"""The fleet at a glance: who works, on what, what waits in which queue, how often it goes wrong, what today costs.

For the API and the console's first page, so it is asked often: each query goes by an index that holds only unfinished
rows, or by the time that is in the ids. `Mine` narrows everything to the agents that the reader may look at."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Select, TextClause, case, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.fleet import Process, Rejected
from models.groups import AgentGroup, MessagingGroup
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.series import Series
from models.sessions import Session, not_resting
from models.spending import Mine, Spent, start_of_day, usage_in_total
from models.turns import Turn

AnySelect = Select[*tuple[Any, ...]]

SHOWN_TURNS: Final = 100
RATE_SECONDS: Final = 3600
# Turns that began longer ago than this before the hour are not counted when they end in it.
LONGEST_TURN_SECONDS: Final = 6 * 3600
DELIVERY: Final = "delivery"
AGENT_QUEUE: Final = "agent."

# Written out, as in the indexes that hold only these.
_OPEN_TURN: Final = text("turns.status IN ('running', 'waiting', 'parked')")
_WAITING: Final = {
    "messages": text("messages_in.status = 'pending' AND messages_in.kind <> 'task'"),
    "tasks": text("messages_in.status = 'pending' AND messages_in.kind = 'task'"),
}
_UNSENT: Final = text("messages_out.status = 'pending'")
_DEAD: Final = text("messages_in.status = 'failed'")


@dataclass(frozen=True)
class Waiting:
    """What is due in a queue and has not begun. `oldest`: since when the first of it is due."""

    queue: str
    messages: int = 0
    tasks: int = 0
    oldest: datetime | None = None

    def __add__(self, other: "Waiting") -> "Waiting":
        dates = [date for date in (self.oldest, other.oldest) if date is not None]
        oldest = min(dates, default=None)
        return Waiting(self.queue, self.messages + other.messages, self.tasks + other.tasks, oldest)


@dataclass(frozen=True)
class Ended:
    """How turns ended within the last hour."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def error_rate(self) -> float | None:
        """Of those that came to an end by themselves, the share that failed. None: there were none."""
        over = self.completed + self.failed
        return self.failed / over if over else None


@dataclass(frozen=True)
class Overview:
    """`at`: the database's clock, by which all of it is told. `turns`: unfinished ones, the oldest first, at most
    `SHOWN_TURNS` of `open_turns`."""

    at: datetime
    processes: list[AnyRow]
    turns: list[AnyRow]
    open_turns: int
    waiting: list[Waiting]
    dead: int
    ended: Ended
    today: Spent


async def look_over(
    conn: AsyncConnection, mine: Mine, *, default_provider: str, alive_seconds: float, processes: bool = True
) -> Overview:
    """`processes`: also who works, which is no agent's business. `alive_seconds`: so lately one must have said that it
    lives."""
    at = (await conn.execute(select(now()))).scalar_one()
    return Overview(
        at=at,
        processes=await _processes(conn, alive_seconds) if processes else [],
        turns=await _turns(conn, mine),
        open_turns=await _count(conn, _of_sessions(select(func.count()).select_from(Turn), Turn, mine, _OPEN_TURN)),
        waiting=await _waiting(conn, mine, default_provider),
        dead=await _count(conn, _of_sessions(select(func.count()).select_from(MessageIn), MessageIn, mine, _DEAD)),
        ended=await _ended(conn, mine, at),
        today=await usage_in_total(conn, await start_of_day(conn), mine=mine),
    )


async def _processes(conn: AsyncConnection, alive_seconds: float) -> list[AnyRow]:
    """Also those that have stopped saying that they live: somebody should look after them."""
    alive = case((Process.seen_at > now(-alive_seconds), True), else_=False).label("alive")
    return list((await conn.execute(select(Process.__table__, alive).order_by(Process.kind, Process.name))).all())


async def _turns(conn: AsyncConnection, mine: Mine) -> list[AnyRow]:
    shown = select(
        Turn.id,
        Turn.session_id,
        Turn.number,
        Turn.status,
        Turn.attempt,
        Turn.provider,
        Turn.model,
        Turn.worker,
        Turn.started_at,
        Session.activity,
        Session.activity_since,
        Session.lease_expires_at,
        Session.resume_after,
        AgentGroup.folder,
        MessagingGroup.channel_type,
        MessagingGroup.platform_id,
        Session.thread_id,
        now().label("at"),
    )
    query = (
        _of_sessions(shown.select_from(Turn), Turn, mine, _OPEN_TURN)
        .outerjoin(MessagingGroup, MessagingGroup.id == Session.messaging_group_id)
        .order_by(Turn.started_at, Turn.id)
        .limit(SHOWN_TURNS)
    )
    return list((await conn.execute(query)).all())


async def _waiting(conn: AsyncConnection, mine: Mine, default_provider: str) -> list[Waiting]:
    provider = func.coalesce(
        MessageIn.provider, Series.provider, Session.provider, AgentGroup.provider, default_provider
    )
    found: dict[str, Waiting] = {}
    for kind, condition in _WAITING.items():
        # Grouped by its label: PostgreSQL takes the default's two appearances for two different values.
        counted = select(provider.label("queue"), func.count().label("count"), func.min(MessageIn.process_after))
        query = (
            _of_sessions(counted.select_from(MessageIn), MessageIn, mine, condition)
            .outerjoin(Series, Series.id == MessageIn.series_id)
            .where(MessageIn.process_after <= now(), MessageIn.wakes, Session.status == "active", not_resting())
            .group_by(text("queue"))
        )
        for name, count, oldest in (await conn.execute(query)).all():
            queue = AGENT_QUEUE + name
            found[queue] = found.get(queue, Waiting(queue)) + Waiting(queue, **{kind: count}, oldest=oldest)
    unsent = _of_sessions(
        select(func.count(), func.min(MessageOut.deliver_after)).select_from(MessageOut), MessageOut, mine, _UNSENT
    )
    count, oldest = (await conn.execute(unsent.where(MessageOut.deliver_after <= now()))).one()
    if count:
        found[DELIVERY] = Waiting(DELIVERY, messages=count, oldest=oldest)
    return [found[queue] for queue in sorted(found)]


async def _ended(conn: AsyncConnection, mine: Mine, at: datetime) -> Ended:
    earliest = at - timedelta(seconds=RATE_SECONDS + LONGEST_TURN_SECONDS)
    query = (
        _of_sessions(select(Turn.status, func.count()).select_from(Turn), Turn, mine)
        .where(Turn.id >= first_id_of(earliest), Turn.ended_at > now(-RATE_SECONDS))
        .where(Turn.status.in_(["completed", "failed", "cancelled"]))
        .group_by(Turn.status)
    )
    return Ended(**{str(status): int(count) for status, count in (await conn.execute(query)).all()})


def first_id_of(moment: datetime) -> str:
    """Ids made since then sort after it: a UUIDv7 begins with its milliseconds."""
    milliseconds = f"{int(moment.timestamp() * 1000):012x}"
    return f"{milliseconds[:8]}-{milliseconds[8:]}-"


def _of_sessions(query: AnySelect, table: Any, mine: Mine, *where: TextClause) -> AnySelect:
    """Rows that belong to a session, with it and its agent."""
    joined = query.join(Session, Session.id == table.session_id)
    joined = joined.join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    return joined.where(*where, mine(Session.agent_group_id))


async def _count(conn: AsyncConnection, query: AnySelect) -> int:
    return int((await conn.execute(query)).scalar_one())


async def counts(conn: AsyncConnection) -> dict[str, int]:
    """Rows that need attention, for a look at the whole."""
    queries = {
        "pending": select(func.count()).where(
            MessageIn.status == "pending", MessageIn.wakes, MessageIn.process_after <= now()
        ),
        "dead": select(func.count()).where(MessageIn.status == "failed"),
        "unsent": select(func.count()).where(MessageOut.status == "pending", MessageOut.deliver_after <= now()),
        "undelivered": select(func.count()).where(MessageOut.status.in_(["failed", "unknown"])),
        "rejected": select(func.count()).select_from(Rejected),
    }
    return {name: int((await conn.execute(query)).scalar_one()) for name, query in queries.items()}
