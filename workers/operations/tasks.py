"""What operators do with scheduled tasks, each in one transaction with its line in the audit log.

What it does, and what it says, is `workers/timetable/`'s; agents have the same through their tools."""

from collections.abc import Awaitable, Callable
from typing import Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Registry
from models.audit import note
from models.base import AnyRow
from models.series import DEFAULT_TERMS
from workers import timetable
from workers.access import user_id_of
from workers.house import House, Wake, ring_for
from workers.intake.ingest import Accepted, Besides
from workers.operations.group_settings import GroupSettings
from workers.operations.sessions import COMMAND_LINE
from workers.timetable import Changes, Task

Change = Literal["pause", "resume", "cancel"]
_CHANGES: Final = {"pause": timetable.pause, "resume": timetable.resume, "cancel": timetable.cancel}


# Finds the task, and refuses whoever may not touch it; asked in the transaction.
Find = Callable[[AsyncConnection], Awaitable[Task]]


async def change(house: House, by: str, find: Find, what: Change) -> tuple[Task, str]:
    """The task, and what came of it, to be said after "task X ". RefusedError: it cannot be done."""

    async def work(conn: AsyncConnection) -> tuple[Task, str]:
        task = await find(conn)
        said = await _CHANGES[what](conn, task)
        await _note(conn, by, what, task)
        return task, said

    return await house.db.transact(work)


async def run_now(house: House, by: str, find: Find) -> tuple[Task, Wake]:
    """The task, and what was rung for."""

    async def work(conn: AsyncConnection) -> tuple[Task, Wake]:
        task = await find(conn)
        wake = await timetable.run_now(conn, task)
        await _note(conn, by, "run", task)
        return task, wake

    task, wake = await house.db.transact(work)
    ring_for(house, [wake])
    return task, wake


async def update(conn: AsyncConnection, by: str, task: Task, changes: Changes) -> str:
    """Whoever gives somebody else's task other words or dates takes it over: it would do what they say with the other's
    rights. The command line is not restricted."""
    said = await timetable.update(conn, task, changes, disown=not _only_terms(changes) and not _is_theirs(by, task))
    await _note(conn, by, "update", task, changed=sorted(changes))
    return said


def check_provider_options(registry: Registry, group: AnyRow, provider: str) -> None:
    """An agent's options for a provider go with its own only; one that cannot do without them would fail each run."""
    settings = GroupSettings.of_row(group)
    registry.providers.get(provider).check(settings.options if provider == settings.provider else {})


def noting_added(by: str, agent_group_id: str) -> Besides:
    """For `accept`: a task comes in as a message does."""

    async def noted(conn: AsyncConnection, stored: Accepted) -> None:
        await note(conn, by, "task.add", stored.message_id, agent_group_id=agent_group_id)

    return noted


def _only_terms(changes: Changes) -> bool:
    return all(hasattr(DEFAULT_TERMS, name) for name in changes)


def _is_theirs(by: str, task: Task) -> bool:
    if by == COMMAND_LINE or task.sender_id is None:
        return True
    return by == user_id_of(task.channel_type, task.sender_id)


async def _note(conn: AsyncConnection, by: str, what: str, task: Task, **detail: object) -> None:
    await note(conn, by, f"task.{what}", task.id, agent_group_id=task.agent_group_id, **detail)
