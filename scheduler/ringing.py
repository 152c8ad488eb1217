"""For how many tasks somebody is rung when many are due: for as many as the workers have room for.

Chats are rung for as they come. If tasks were too, a chat that comes after an hour of downtime would wait behind a
hundred thousand of them, in a queue that nobody can reorder. So tasks wait in the database, the oldest first, and
only so many are rung for that those and whatever runs fit into a share of the workers' slots."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Final

from sqlalchemy import ColumnElement, ColumnExpressionArgument, and_, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.database import Database
from models.fleet import living_processes
from models.groups import AgentGroup
from models.inbox import MessageIn
from models.rounds import begin_round
from models.series import Series
from models.sessions import Session, not_leased, not_resting, not_rung
from models.turns import Turn

# Of the slots of the workers that listen to a provider's queue: so many may be rung for or run before a task waits.
SHARE: Final = 0.75
# So many tasks are rung for even when chats fill every slot, so that they get their turn.
FLOOR: Final = 0.1
# What a worker that does not say is taken to have.
UNKNOWN_SLOTS: Final = 100
# Nobody listens: a few are rung for, and begin at once when somebody does. More would only pile up.
UNATTENDED: Final = 10
# So many of the oldest due rows are looked at each time, and as many more as there are slots.
NEAR: Final = 500
# All are looked at once in so many seconds, for those that stand behind the backlog of a provider without room.
FAR_SECONDS: Final = 10.0
# A ring that nobody takes counts as lost after `repeat_seconds` if slots were free; else it waits for one, and counts
# as lost after so many times that.
PATIENCE: Final = 12

AGENT_QUEUE: Final = "agent."
# Written out, as in the indexes that hold only these.
_TASK: Final = text("messages_in.status = 'pending' AND messages_in.kind = 'task'")
_OPEN_TASK: Final = text("messages_in.status IN ('pending', 'processing') AND messages_in.kind = 'task'")
_OPEN_TURN: Final = text("turns.status IN ('running', 'waiting', 'parked')")


@dataclass(frozen=True)
class Wake:
    session_id: str
    provider: str


@dataclass(frozen=True)
class Pace:
    """`repeat_seconds`: how old a ring must be before it counts as lost. `default_provider`: of agents that name none.
    `alive_seconds`: so lately a worker must have said that it lives."""

    repeat_seconds: float
    default_provider: str
    alive_seconds: float = 30.0

    def provider(self, *first: ColumnExpressionArgument[str | None]) -> ColumnElement[str]:
        """On whose queue a session is rung for: that of its message or task, if that names one, else of its agent."""
        return func.coalesce(*first, Session.provider, AgentGroup.provider, self.default_provider)

    @property
    def ringable(self) -> ColumnElement[bool]:
        """It may go on, nobody has it, and nobody was rung for it lately."""
        return and_(Session.status == "active", not_leased(), not_resting(), not_rung(-self.repeat_seconds))

    @property
    def was_rung(self) -> ColumnElement[bool]:
        """Somebody was rung for it so lately that the ring may still wait for a slot."""
        return func.coalesce(Session.woken_at > now(-PATIENCE * self.repeat_seconds), False)


@dataclass(frozen=True)
class Load:
    """Sessions that run, and that were rung for and not taken since: lately or a while ago, and of these the ones that
    have a task to do."""

    running: int = 0
    lately: int = 0
    tasks_lately: int = 0
    earlier: int = 0
    tasks_earlier: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(*map(sum, zip(astuple(self), astuple(other), strict=True)))


@dataclass
class Room:
    """How many more tasks may be rung for. `full`: no slot is free, so rings that nobody took are not lost."""

    left: int
    full: bool


def room_for(slots: int, load: Load) -> Room:
    full = load.running >= slots
    tasks = load.tasks_lately + (load.tasks_earlier if full else 0)
    if not slots:
        return Room(UNATTENDED - tasks, full)
    rung = load.lately + (load.earlier if full else 0)
    share = max(1, int(slots * SHARE)) - load.running - rung
    floor = max(1, int(slots * FLOOR)) - tasks
    return Room(max(share, floor), full)


class Rooms:
    """The room of each provider. A worker that listens to several has its slots only once: those that share workers
    also have a room together."""

    def __init__(self, workers: Iterable[AnyRow], loads: Mapping[str, Load]) -> None:
        slots: Counter[str] = Counter()
        crews: list[tuple[set[str], int]] = []
        for worker in workers:
            serves, count = _served(worker), slots_of(worker)
            slots.update(dict.fromkeys(serves, count))
            for crew in [crew for crew in crews if crew[0] & serves]:
                crews.remove(crew)
                serves, count = serves | crew[0], count + crew[1]
            crews.append((serves, count))
        self._rooms = {name: [room_for(slots[name], loads.get(name, Load()))] for name in {*slots, *loads}}
        for serves, count in crews:
            shared = room_for(count, sum((loads.get(name, Load()) for name in serves), Load()))
            for name in serves if len(serves) > 1 else ():
                self._rooms[name].append(shared)

    def admit(self, provider: str, *, was_rung: bool) -> bool:
        """Take room for one more, if there is. One that was rung for may wait for a slot, and then needs no ring."""
        rooms = self._rooms.setdefault(provider, [room_for(0, Load())])
        if any(room.left < 1 or (was_rung and room.full) for room in rooms):
            return False
        for room in rooms:
            room.left -= 1
        return True

    @property
    def without(self) -> set[str]:
        """Providers that have no room left."""
        return {name for name, rooms in self._rooms.items() if any(room.left < 1 for room in rooms)}

    @property
    def full(self) -> set[str]:
        """Providers that have no free slot."""
        return {name for name, rooms in self._rooms.items() if any(room.full for room in rooms)}

    @property
    def left(self) -> int:
        return sum(max(0, min(room.left for room in rooms)) for rooms in self._rooms.values())


def slots_of(worker: AnyRow) -> int:
    return worker.slots if worker.slots is not None else UNKNOWN_SLOTS


def _served(worker: AnyRow) -> set[str]:
    return {queue.removeprefix(AGENT_QUEUE) for queue in worker.queues if queue.startswith(AGENT_QUEUE)}


@dataclass
class Rung:
    """`more`: tasks are due that nobody was rung for, for want of room."""

    wakes: list[Wake]
    more: bool = False


async def ring_tasks(db: Database, pace: Pace) -> Rung:
    """Choose the sessions to ring for, the longest due first, and mark them.

    They are chosen before they are locked. Several sweeps at once choose the same ones, since all take the oldest, and
    each is marked by one of them: so together they ring for hardly more than there is room for."""
    near, cut, workers = await db.read(lambda conn: _look_near(conn, pace))
    if not cut and not any(row.ringable for row in near):
        return Rung([])
    # After the look: what another sweep rang for before this is counted, and what it rings for later is found marked.
    loads = await db.read(lambda conn: _loads(conn, pace))
    rooms = Rooms(workers, loads)
    ringable = {row.session_id: row for row in reversed(near) if row.ringable}  # the oldest of each session
    chosen = _choose(reversed(ringable.values()), rooms)
    if cut and await db.transact(lambda conn: begin_round(conn, "far_tasks", FAR_SECONDS)):
        far = await db.read(lambda conn: _look_far(conn, pace, rooms))
        chosen |= _choose((row for row in far if row.session_id not in chosen), rooms)
    marked = await db.transact(lambda conn: _mark(conn, pace, list(chosen))) if chosen else set()
    wakes = [Wake(session_id, provider) for session_id, provider in chosen.items() if session_id in marked]
    return Rung(wakes, more=cut or len(chosen) < len(ringable))


def _choose(rows: Iterable[AnyRow], rooms: Rooms) -> dict[str, str]:
    return {row.session_id: row.provider for row in rows if rooms.admit(row.provider, was_rung=row.was_rung)}


async def _look_near(conn: AsyncConnection, pace: Pace) -> tuple[list[AnyRow], bool, list[AnyRow]]:
    """The oldest due rows, each with its session's state, whether there are more, and the workers that live."""
    workers = [row for row in await living_processes(conn, pace.alive_seconds) if _served(row)]
    # What is rung for stays among the oldest until somebody takes it: those behind must be seen as well.
    limit = NEAR + sum(map(slots_of, workers))
    due = (
        select(MessageIn.session_id, MessageIn.series_id, MessageIn.process_after, MessageIn.seq, MessageIn.provider)
        .where(_TASK, MessageIn.wakes, MessageIn.process_after <= now())
        .order_by(MessageIn.process_after)
        .limit(limit)
        .subquery()
    )
    query = (
        select(
            due.c.session_id,
            pace.provider(due.c.provider, Series.provider).label("provider"),
            pace.ringable.label("ringable"),
            pace.was_rung.label("was_rung"),
        )
        .join(Session, Session.id == due.c.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .outerjoin(Series, Series.id == due.c.series_id)
        .order_by(due.c.process_after, due.c.session_id, due.c.seq)
    )
    rows = list((await conn.execute(query)).all())
    return rows, len(rows) >= limit, workers


async def _look_far(conn: AsyncConnection, pace: Pace, rooms: Rooms) -> list[AnyRow]:
    """The oldest that may be rung for, one of each session, among all that is due and that there is room for."""
    place = func.row_number().over(partition_by=MessageIn.session_id, order_by=(MessageIn.process_after, MessageIn.seq))
    due = (
        select(
            MessageIn.session_id,
            MessageIn.series_id,
            MessageIn.process_after,
            MessageIn.provider,
            place.label("place"),
        )
        .where(_TASK, MessageIn.wakes, MessageIn.process_after <= now())
        .subquery()
    )
    provider = pace.provider(due.c.provider, Series.provider)
    query = (
        select(due.c.session_id, provider.label("provider"), pace.was_rung.label("was_rung"))
        .join(Session, Session.id == due.c.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .outerjoin(Series, Series.id == due.c.series_id)
        .where(due.c.place == 1, pace.ringable)
        .where(provider.not_in(rooms.without), or_(~pace.was_rung, provider.not_in(rooms.full)))
        .order_by(due.c.process_after)
        .limit(rooms.left + UNATTENDED)
    )
    return list((await conn.execute(query)).all())


async def _loads(conn: AsyncConnection, pace: Pace) -> dict[str, Load]:
    """By provider. Rung ones first: one that is just being taken is rather counted twice than not at all."""
    task = (
        select(func.coalesce(MessageIn.provider, Series.provider, ""))
        .select_from(MessageIn)
        .outerjoin(Series, Series.id == MessageIn.series_id)
        .where(MessageIn.session_id == Session.id, _OPEN_TASK, MessageIn.process_after <= now())
        .order_by(MessageIn.seq)  # as in the index: a session may have very many
        .limit(1)
        .scalar_subquery()
    )
    lately = Session.woken_at > now(-pace.repeat_seconds)
    own = pace.provider().label("own")
    rung = (
        select(own, task.label("task"), lately.label("lately"))
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .where(Session.woken_at > now(-PATIENCE * pace.repeat_seconds), not_leased())
        .subquery()
    )
    running = (
        select(pace.provider(Turn.provider).label("provider"))
        .select_from(Session)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
        .outerjoin(Turn, and_(Turn.session_id == Session.id, _OPEN_TURN))
        .where(Session.lease_expires_at >= now())
        .subquery()
    )
    loads: dict[str, Load] = {}
    grouped = select(rung, func.count().label("number")).group_by(*rung.c)
    for row in (await conn.execute(grouped)).all():
        tasks = row.number if row.task is not None else 0
        one = (
            Load(lately=row.number, tasks_lately=tasks) if row.lately else Load(earlier=row.number, tasks_earlier=tasks)
        )
        provider = row.task or row.own
        loads[provider] = loads.get(provider, Load()) + one
    grouped = select(running, func.count().label("number")).group_by(*running.c)
    for row in (await conn.execute(grouped)).all():
        loads[row.provider] = loads.get(row.provider, Load()) + Load(running=row.number)
    return loads


async def _mark(conn: AsyncConnection, pace: Pace, ids: list[str]) -> set[str]:
    free = select(Session.id).where(Session.id.in_(ids), pace.ringable).with_for_update(skip_locked=True)
    marking = update(Session).where(Session.id.in_(free.scalar_subquery())).values(woken_at=now())
    return set((await conn.execute(marking.returning(Session.id))).scalars())
