"""What every command needs: settings, the database, a bell, a console; and one place where errors become sentences."""

import asyncio
import json
import re
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from redis.exceptions import RedisError
from rich.console import Console
from rich.markup import escape
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import AdapterError
from adapters.registry import Registry
from models import schema
from models.database import Database
from models.errors import DatabaseDownError, StoreError
from workers.bells import Bells
from workers.logs import configure_logs
from workers.operations.agents import agent_named
from workers.operations.names import INVISIBLE, BadNameError
from workers.operations.names import check_name as checked_name
from workers.refusals import RefusedError
from workers.settings import Settings, SettingsError, load_settings, require_broker

T = TypeVar("T")
AsJson = Annotated[bool, typer.Option("--json", help="one JSON document, for programs")]

EX_UNAVAILABLE = 69
EX_INTERRUPTED = 130
BY = "cli"  # who did it, where that is kept
_NAMES = {"session_id": "session", "folder": "agent"}
_UNSEEN = re.compile(r"[^\n\x20-\x7e]")  # or at least not ASCII

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


class Desk:
    """Made inside the event loop of one command."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.db = Database(settings.database_url, pool_size=4)
        self._bells: Bells | None = None

    @cached_property
    def registry(self) -> Registry:
        return Registry()

    @property
    def bells(self) -> Bells:
        if self._bells is None:
            # Imported here: making the Celery app takes a moment, and most commands do not ring.
            from workers.bells import CeleryBells
            from workers.celery_config import make_app

            self._bells = CeleryBells(make_app(self.settings, self.registry), self.settings.redis_url)
        return self._bells

    async def close(self) -> None:
        if self._bells is not None:
            await asyncio.to_thread(self._bells.close)
        await self.db.close()


def run(command: Callable[[Desk], Awaitable[T]], *, broker: bool = False) -> T:
    """Run a command's coroutine at a desk. A user's mistake or a missing service ends in one sentence."""
    try:
        settings = load_settings()
        configure_logs("WARNING", as_json=False)
        if broker:
            require_broker(settings)
        schema.check(settings.database_url)
        return asyncio.run(_at_desk(settings, command))
    except DatabaseDownError as error:
        fail(str(error), EX_UNAVAILABLE)
    except (SettingsError, StoreError, RefusedError, AdapterError) as error:
        fail(str(error))
    except DBAPIError as error:
        fail(f"the database does not take this: {str(error.orig).splitlines()[0]}")
    except RedisError as error:
        fail(f"the broker does not answer ({type(error).__name__})", EX_UNAVAILABLE)
    except KeyboardInterrupt:
        raise typer.Exit(EX_INTERRUPTED) from None


async def _at_desk(settings: Settings, command: Callable[[Desk], Awaitable[T]]) -> T:
    desk = Desk(settings)
    try:
        return await command(desk)
    finally:
        await desk.close()


async def agent_id(conn: AsyncConnection, handle: str) -> str:
    return str((await agent_named(conn, handle)).id)


def check_name(what: str, name: str, most: int = 255) -> str:
    """The name of a place, a person or a platform, as people type it; anything that cannot be one is refused."""
    try:
        return checked_name(what, name, most)
    except BadNameError as error:
        fail(str(error), 2)


def fail(message: str, code: int = 1) -> NoReturn:
    err.print(f"[red]longshore:[/red] {shown(message)}", soft_wrap=True)
    raise typer.Exit(code)


def data_of(facts: Mapping[Any, Any]) -> dict[str, Any]:
    """A row, or what was made of one, for `print_json`: agents and sessions are named as at every other door."""
    return {_NAMES.get(name, name): value for name, value in facts.items()}


def print_json(value: Any) -> None:
    """One document on one line, and nothing else on standard output."""
    print_json_text(json.dumps(value, default=_plain, ensure_ascii=False))


def print_done(words: str, as_json: bool, **facts: Any) -> None:
    """What a command has done: a sentence, or for programs what it was done to, and the same sentence as `text`."""
    if as_json:
        print_json({**facts, "text": words})
    else:
        out.print(shown(words), soft_wrap=not out.is_terminal)


def print_json_text(text: str) -> None:
    """What is JSON already, as a line. It may be read on a terminal: what cannot be seen is escaped, which changes
    nothing for a program."""
    sys.stdout.write(_UNSEEN.sub(_escaped, text) + "\n")
    sys.stdout.flush()


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    return json.dumps(char)[1:-1] if unicodedata.category(char) in INVISIBLE else char


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case Decimal():
            return float(value)
        case _:
            return str(value)


def shown(text: object) -> str:
    """Text from outside, for a line with our own markup in it."""
    return escape(visible(str(text)))


def visible(text: str) -> str:
    """Without what could move the cursor, change colours or turn the reading direction."""
    return "".join(char if char in "\n\t" or unicodedata.category(char) not in INVISIBLE else "�" for char in text)
