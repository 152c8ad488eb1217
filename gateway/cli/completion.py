"""What the shell offers after Tab: agents, sessions, providers and the like, by the names of commands' parameters.

Never an error and never a long wait: without a database, or with one that does not answer, nothing is offered. Shells
evaluate what they are offered, so only values of harmless characters are."""

import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import typer
from typer.models import ParameterInfo

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

# What follows is imported where it is used: `longshore --help` and the names of commands do without.

PATIENCE_SECONDS: Final = 0.6
MOST: Final = 50
_HARMLESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Values = Callable[[], Iterable[str]]


def offer_values(commands: typer.Typer) -> typer.Typer:
    """Let every parameter with a name of the table below be completed."""
    functions = [command.callback for command in commands.registered_commands]
    if commands.registered_callback is not None:
        functions.append(commands.registered_callback.callback)
    for function in functions:
        for name, hint in get_type_hints(function, include_extras=True).items() if function is not None else ():
            for info in getattr(hint, "__metadata__", ()):
                if isinstance(info, ParameterInfo) and name in VALUES:
                    info.autocompletion = _offering(VALUES[name])
    return commands


def _offering(values: Values) -> Callable[[str], list[str]]:
    def offer(incomplete: str) -> list[str]:
        found: list[str] = []
        with suppress(Exception), _no_longer_than(PATIENCE_SECONDS):
            found = [value for value in values() if _HARMLESS.fullmatch(value)]
        return [value for value in found if value.startswith(incomplete)]

    return offer


@contextmanager
def _no_longer_than(seconds: float) -> Iterator[None]:
    """Whatever hangs (a name server, a locked file), the shell gets its answer: none. It is the end of the process,
    since a connection being made cannot be called off."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _from_rows(read: Callable[["AsyncConnection"], Awaitable[Iterable[str]]]) -> Values:
    def values() -> Iterable[str]:
        import asyncio

        from models.database import Database
        from workers.settings import load_settings

        async def look(url: str) -> Iterable[str]:
            db = Database(url, pool_size=1)
            try:
                return await db.read(read, patience=0)
            finally:
                await db.close()

        url = load_settings().database_url
        # SQLite makes a file where there is none.
        if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
            return []
        return asyncio.run(look(url))

    return values


async def _agents(conn: "AsyncConnection") -> list[str]:
    from models.groups import agent_folders

    return await agent_folders(conn)


async def _sessions(conn: "AsyncConnection") -> list[str]:
    from models.browsing import sessions_page
    from models.lookup import short
    from models.spending import everybodys

    return [short(row.id) for row in await sessions_page(conn, everybodys, MOST)]


async def _approvals(conn: "AsyncConnection") -> list[str]:
    from models.consent import Approval

    return await _waiting(conn, Approval)


async def _questions(conn: "AsyncConnection") -> list[str]:
    from models.consent import PendingQuestion

    return await _waiting(conn, PendingQuestion)


async def _workflows(conn: "AsyncConnection") -> list[str]:
    from models.lookup import short
    from models.spending import everybodys
    from models.workflows import workflows_page

    return [short(row.id) for row in await workflows_page(conn, everybodys, MOST)]


async def _waiting(conn: "AsyncConnection", asked: Any) -> list[str]:
    from sqlalchemy import select

    from models.lookup import short

    query = select(asked.id).where(asked.status == "pending").order_by(asked.created_at.desc()).limit(MOST)
    return [short(row) for row in (await conn.execute(query)).scalars()]


def _providers() -> list[str]:
    from adapters.registry import Registry

    return Registry().providers.names


def _channels() -> list[str]:
    from adapters.registry import Registry

    return Registry().channels.names


VALUES: Final[Mapping[str, Values]] = {
    "agent": _from_rows(_agents),
    "folder": _from_rows(_agents),
    "group": _from_rows(_agents),
    "session": _from_rows(_sessions),
    "approval": _from_rows(_approvals),
    "question": _from_rows(_questions),
    "workflow": _from_rows(_workflows),
    "planner": _providers,
    "reviewer": _providers,
    "provider": _providers,
    "fallback": _providers,
    "channel": _channels,
}
