"""What every command needs: settings, the database, a bell, a console; and one place where errors become sentences."""

import asyncio
import json
import sys
import unicodedata
from collections.abc import Awaitable, Callable
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import AdapterError
from adapters.registry import Registry
from models import schema
from models.base import AnyRow
from models.database import Database
from models.errors import DatabaseDownError, StoreError
from models.groups import find_agent_group, is_ours
from workers.bells import Bells
from workers.logs import configure_logs
from workers.refusals import RefusedError
from workers.settings import Settings, SettingsError, load_settings, require_broker

T = TypeVar("T")
FollowUp = Literal["enqueue", "interrupt", "separate", "reject"]

EX_UNAVAILABLE = 69
BY = "cli"  # who did it, where that is kept
# Control, format (joiners of emoji are lost with them) and the two separators terminals may break lines at.
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")

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
            from workers.app import make_app
            from workers.bells import CeleryBells

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
    except (DataError, IntegrityError) as error:
        fail(f"the database does not take this: {str(error.orig).splitlines()[0]}")
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _at_desk(settings: Settings, command: Callable[[Desk], Awaitable[T]]) -> T:
    desk = Desk(settings)
    try:
        return await command(desk)
    finally:
        await desk.close()


async def find_agent(conn: AsyncConnection, handle: str) -> AnyRow:
    """By folder or id. The fleet's own ones are nobody's to set up."""
    group = await find_agent_group(conn, handle)
    if group is None or is_ours(group.folder):
        fail(f"there is no agent {handle!r}; see: longshore groups list")
    return group


async def agent_id(conn: AsyncConnection, handle: str) -> str:
    return str((await find_agent(conn, handle)).id)


def check_name(what: str, name: str, most: int = 255) -> str:
    """The name of a place, a person or a platform, as people type it; anything that cannot be one is refused."""
    if not name.strip():
        fail(f"{what} is empty", 2)
    if len(name) > most:
        fail(f"{what} has {len(name)} characters; at most {most} are taken", 2)
    if any(unicodedata.category(char) in _INVISIBLE for char in name):
        fail(f"{what} {name!r} has characters that cannot be seen", 2)
    return name


def fail(message: str, code: int = 1) -> NoReturn:
    err.print(f"[red]longshore:[/red] {shown(message)}", soft_wrap=True)
    raise typer.Exit(code)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")


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
    return "".join(char if char in "\n\t" or unicodedata.category(char) not in _INVISIBLE else "�" for char in text)
