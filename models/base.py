"""What every table is made of: the declarative base, column types that behave alike on PostgreSQL and SQLite,
ids, and the database's own clock. Nothing here reads a clock of the machine it runs on."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import uuid_utils.compat
from sqlalchemy import JSON, BindParameter, DateTime, Dialect, Float, MetaData, Row, String, Text, bindparam, literal
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

AnyRow = Row[*tuple[Any, ...]]
Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
Id = String(36)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def storable(text: str) -> str:
    """Python's strings can hold what PostgreSQL cannot: NUL characters and halves of surrogate pairs."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def storable_json(value: Any) -> str:
    """JSON for a column, whatever people, models and platforms put into it."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:  # NaN, infinity
        return json.dumps(_cleaned(value))
    # Escaped, so both kinds of trouble are easy to see; a whole surrogate pair is none, but rare enough to look.
    return json.dumps(_cleaned(value)) if "\\u0000" in text or "\\ud" in text else text


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return storable(value)
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {storable(str(key)): _cleaned(item) for key, item in value.items()}
        case list() | tuple():
            return [_cleaned(item) for item in value]
        case _:
            return value


class Words(TypeDecorator[str]):
    """Text from outside, such as an error's."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable(value)


class Timestamp(TypeDecorator[datetime]):
    """An instant. Comes back aware, in UTC; a naive value is refused, because nobody can say what it means."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a naive time ({value.isoformat()}) cannot be stored: give it a time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class now(FunctionElement[datetime]):  # noqa: N801 - reads as the SQL function it is
    """The database's clock, plus some seconds. Leases, retries and schedules compare only this clock with itself,
    so a worker whose own clock is wrong does no harm."""

    type = Timestamp()
    inherit_cache = True
    name = "now"

    def __init__(self, plus_seconds: float | BindParameter[float] = 0.0) -> None:
        given = isinstance(plus_seconds, BindParameter)
        super().__init__(plus_seconds if given else literal(float(plus_seconds), Float))


@compiles(now, "postgresql")
def _now_postgresql(element: now, compiler: SQLCompiler, **kw: Any) -> str:
    return f"(statement_timestamp() + make_interval(secs => {compiler.process(element.clauses, **kw)}))"


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: SQLCompiler, **kw: Any) -> str:
    # The text form SQLAlchemy stores, so that comparing the strings compares the instants.
    offset = compiler.process(element.clauses, **kw)
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', printf('%+f seconds', {offset}))"


def given(name: str) -> BindParameter[Any]:
    """A value handed in when a statement is run.

    Statements on a message's path are built once, at import, with these in them: building one takes longer than
    running it."""
    return bindparam(f"given_{name}")


def given_seconds(name: str) -> now:
    """The database's clock plus so many seconds, handed in when the statement is run."""
    return now(bindparam(f"given_{name}", type_=Float))


def values(**handed_in: Any) -> dict[str, Any]:
    """What is handed in, under the names `given` uses."""
    return {f"given_{name}": value for name, value in handed_in.items()}


def rows(listed: list[dict[str, Any]]) -> list[dict[str, Any]] | dict[str, Any]:
    """Rows for an INSERT. One alone is handed in as such, which spares the driver its way of sending many."""
    return listed[0] if len(listed) == 1 else listed


def new_id() -> str:
    """A UUIDv7: sorts by the time it was made."""
    return str(uuid_utils.compat.uuid7())
