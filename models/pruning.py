"""Walking through what is old, in small slices, and removing it.

A slice is read by key from where the last one ended, so no statement looks at more than `SLICE` rows; what is removed
is removed by the same span of keys and the same rule, in a short transaction. Nothing is locked in between: what has
changed meanwhile, or is named by something new, stays for the next time."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, bindparam, case, delete, exists, false, func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now, values
from models.conversation import Compaction, Event, TranscriptItem
from models.database import Database
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.programs import ProgramState
from models.retention import FINISHED, IN_ORDER, Clause, Rule, Way, is_closed, is_summed_up
from models.sessions import Session

SLICE: Final = 400
SESSIONS: Final = 100


class ChangedError(Exception):
    """A row is no longer what was read of it: nothing of its batch is removed now."""


@dataclass(frozen=True)
class Dates:
    """What was finished, or refused, before is old. By the database's clock, read once: no row becomes old while it is
    looked at. None: nothing of that kind is."""

    finished: datetime | None
    refused: datetime | None

    @property
    def given(self) -> dict[str, Any]:
        day = self.finished.date().isoformat() if self.finished is not None else None
        return values(finished=self.finished, refused=self.refused, day=day)


async def dates(conn: AsyncConnection, finished_days: float | None, refused_days: float | None) -> Dates:
    async def before(days: float | None) -> datetime | None:
        return None if days is None else (await conn.execute(select(now(-days * 86_400.0)))).scalar_one()

    return Dates(await before(finished_days), await before(refused_days))


@dataclass(frozen=True)
class Slice:
    """Rows of one table that may go: those in a span of keys of which its rule says so. `turns`: whose they are."""

    rule: Rule
    way: Way
    span: Mapping[str, Any]
    count: int
    turns: frozenset[str]


class _Statements:
    """Those on one table, built once: they are long, and building them takes longer than running them."""

    def __init__(self, rule: Rule, way: Way) -> None:
        table = rule.table
        order = [table.c[name] for name in way.order]
        turn = [column for column in table.c if column.name == "turn_id" and column.name not in way.order]
        young = false() if way.young is None else way.young
        part = [] if way.part is None else [table.c[way.part].in_(bindparam("part", expanding=True))]
        looking = select(*order, *turn, rule.may_go().label("may_go"), young.label("young"))
        looking = looking.where(*part).order_by(*order).limit(SLICE)
        self.first = looking
        self.next = looking.where(_key(order) > _key(order, "after"))
        self.next_part = looking.where(order[0] > _key(order[:1], "after"))
        span = (*part, _key(order) >= _key(order, "first"), _key(order) <= _key(order, "last"))
        self.read = select(table).where(*span, rule.may_go())
        removing = delete(table).where(*span, rule.goes())
        self.remove = removing.returning(*order)
        self.remove_whole = removing.returning(*table.c)


def _key(order: Sequence[ColumnElement[Any]], given: str | None = None) -> Any:
    """The columns of a key, or values for them."""
    if given is not None:
        order = [bindparam(f"{given}_{number}", type_=column.type) for number, column in enumerate(order)]
    return tuple_(*order) if len(order) > 1 else order[0]


@cache
def _statements(rule: Rule, way: Way) -> _Statements:
    return _Statements(rule, way)


async def slices(
    db: Database, rule: Rule, at: Dates, part: Collection[str] = (), way: Way | None = None
) -> AsyncIterator[Slice]:
    """What may go of a table, or of those parts of it."""
    way = way or rule.way
    statements = _statements(rule, way)

    def place(given: str, row: AnyRow) -> dict[str, Any]:
        return {f"{given}_{number}": getattr(row, name) for number, name in enumerate(way.order)}

    given = at.given if way.part is None else at.given | {"part": list(part)}
    statement, asked = statements.first, given
    while True:
        rows = await db.read(lambda conn: _all(conn, statement, asked))  # noqa: B023 - read before they change
        going = [row for row in rows if row.may_go]
        if going:
            turns = frozenset(turn for row in going if (turn := getattr(row, "turn_id", None)) is not None)
            yield Slice(rule, way, given | place("first", going[0]) | place("last", going[-1]), len(going), turns)
        if len(rows) < SLICE or (rows[-1].young and len(part) <= 1):
            return
        # What is left of this part is young: on to the next.
        statement = statements.next_part if rows[-1].young else statements.next
        asked = given | place("after", rows[-1])


async def _all(conn: AsyncConnection, statement: Any, asked: Mapping[str, Any]) -> Sequence[AnyRow]:
    return (await conn.execute(statement, asked)).all()


# --- sessions ---


def _first(entity: type[Any], column: Any, order: Any) -> Any:
    query = select(column).where(entity.session_id == Session.id).order_by(order).limit(1)
    return query.correlate(Session).scalar_subquery()


def _any(*entities: type[Any]) -> Clause:
    return or_(*(exists().where(entity.session_id == Session.id) for entity in entities))


_HAS_OLD: Final = case(
    (Session.created_at >= FINISHED, false()),
    else_=or_(
        _first(MessageIn, MessageIn.created_at, MessageIn.seq) < FINISHED,
        _first(MessageOut, MessageOut.created_at, MessageOut.seq) < FINISHED,
        _first(Event, Event.created_at, Event.seq) < FINISHED,
        is_summed_up(_first(TranscriptItem, TranscriptItem.turn_id, TranscriptItem.id)),
        and_(is_closed(Session), _any(TranscriptItem, Compaction, ProgramState)),
    ),
)
_SESSIONS: Final = (
    select(Session.id, _HAS_OLD.label("has_old"))
    .where(Session.id > bindparam("after"))
    .order_by(Session.id)
    .limit(SESSIONS)
)


@dataclass(frozen=True)
class Some:
    """So many sessions, and those of them whose first message, event or word is old."""

    seen: int
    with_old: list[str]


async def sessions_with_old(db: Database, at: Dates) -> AsyncIterator[Some]:
    """A few steps down an index for each session: where nothing is old, that is all a walk costs."""
    after = ""
    while True:
        asked = at.given | {"after": after}
        found = await db.read(lambda conn: _all(conn, _SESSIONS, asked))  # noqa: B023 - read before it changes
        yield Some(len(found), [row.id for row in found if row.has_old])
        if len(found) < SESSIONS:
            return
        after = found[-1].id


async def close_replays(conn: AsyncConnection, at: Dates) -> None:
    """Those that were over long ago: nobody says anything in a replay, and so nobody else closes it."""
    waiting = exists().where(MessageIn.session_id == Session.id, MessageIn.status.in_(["pending", "processing"]))
    over = (
        Session.status == "active",
        Session.replay_of.is_not(None),
        Session.last_active < FINISHED,
        func.coalesce(Session.activity_since, Session.last_active) < FINISHED,
        Session.lease_expires_at.is_(None),
        ~waiting,
    )
    # Since when it is over stays as it is: it is old from now on.
    await conn.execute(
        update(Session).where(*over).values(status="closed", woken_at=None), values(finished=at.finished)
    )


# --- removing ---


@dataclass
class Batch:
    """Slices that are removed together, and the turns they were of, which go with the last of their rows."""

    slices: list[Slice] = field(default_factory=list)
    turns: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        return sum(part.count for part in self.slices)

    def add(self, part: Slice) -> None:
        self.slices.append(part)
        self.turns |= part.turns

    def in_order(self) -> list[Slice]:
        """What names something before what it names."""
        return sorted(self.slices, key=lambda part: IN_ORDER.index(part.rule))


Rows = dict[tuple[Any, ...], AnyRow]  # by table and key


async def read(conn: AsyncConnection, batch: Batch) -> Rows:
    """What is about to be removed, as it is."""
    found: Rows = {}
    for part in batch.in_order():
        for row in await _all(conn, _statements(part.rule, part.way).read, part.span):
            found[_name(part.rule, row)] = row
    return found


async def remove(conn: AsyncConnection, batch: Batch, kept: Rows | None) -> Counter[str]:
    """How many rows of each table went. `kept`: what was read of them, if they are to be kept elsewhere: a row that is
    no longer the same is not removed unkept (ChangedError). Of rows that somebody else removed meanwhile, nothing."""
    gone: Counter[str] = Counter()
    for part in batch.in_order():
        statements = _statements(part.rule, part.way)
        removed = await _all(conn, statements.remove if kept is None else statements.remove_whole, part.span)
        if kept is not None and any(kept.get(_name(part.rule, row)) != row for row in removed):
            raise ChangedError(part.rule.table.name)
        gone[part.rule.table.name] += len(removed)
    return gone


def _name(rule: Rule, row: AnyRow) -> tuple[Any, ...]:
    return (rule.table.name, *(getattr(row, column.name) for column in rule.table.primary_key))
