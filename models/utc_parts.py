"""The day and the hour of a stored instant in UTC, as SQL that both databases can group by."""

from typing import Any

from sqlalchemy import String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class _UtcPart(FunctionElement[str]):
    type = String()
    inherit_cache = True
    pattern: str  # PostgreSQL's
    characters: int  # of an instant in SQLite: it is stored as text, in UTC, the date first


class utc_day(_UtcPart):  # noqa: N801 - reads as the SQL function it is
    """As YYYY-MM-DD."""

    inherit_cache = True
    name = "utc_day"
    pattern, characters = "YYYY-MM-DD", 10


class utc_hour(_UtcPart):  # noqa: N801
    """As YYYY-MM-DD HH."""

    inherit_cache = True
    name = "utc_hour"
    pattern, characters = "YYYY-MM-DD HH24", 13


@compiles(_UtcPart, "postgresql")
def _postgresql(element: _UtcPart, compiler: SQLCompiler, **kw: Any) -> str:
    return f"to_char({compiler.process(element.clauses, **kw)} AT TIME ZONE 'UTC', '{element.pattern}')"


@compiles(_UtcPart, "sqlite")
def _sqlite(element: _UtcPart, compiler: SQLCompiler, **kw: Any) -> str:
    return f"substr({compiler.process(element.clauses, **kw)}, 1, {element.characters})"
