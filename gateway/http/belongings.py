"""Whose a session, a message, a task, a workflow or a wiring is: asked before it is shown or touched, by the API and
the console.

What somebody may not look at does not exist for them (404); what they may look at and not touch is 403. There is no
other place where a door decides about a row."""

from typing import TypeVar

from fastapi import HTTPException
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.browsing import find_message, find_shown_session, find_turn, find_undelivered_one
from models.groups import find_agent_group, find_wiring, is_ours
from models.workflows import find_workflow
from workers import timetable
from workers.access import NEEDED, Act, standing_of
from workers.timetable import Task

T = TypeVar("T")


async def session_of(conn: AsyncConnection, user_id: str, session_id: str, act: Act = Act.OVERSEE) -> AnyRow:
    """As `models.browsing` shows it."""
    row = await find_shown_session(conn, session_id)
    return await _theirs(conn, user_id, row, row.agent_group_id if row is not None else None, act, "session")


async def agent_of(conn: AsyncConnection, user_id: str, folder: str, act: Act = Act.OVERSEE) -> AnyRow:
    """The row of the agent. The fleet's own ones are nobody's."""
    row = await find_agent_group(conn, folder)
    row = None if row is None or is_ours(row.folder) else row
    return await _theirs(conn, user_id, row, row.id if row is not None else None, act, "agent")


async def turn_of(conn: AsyncConnection, user_id: str, turn_id: str, act: Act = Act.OVERSEE) -> AnyRow:
    row = await find_turn(conn, turn_id)
    return await _theirs(conn, user_id, row, row.agent_group_id if row is not None else None, act, "turn")


async def message_of(conn: AsyncConnection, user_id: str, message_id: str, act: Act, what: str = "message") -> AnyRow:
    row = await find_message(conn, message_id)
    return await _theirs(conn, user_id, row, row.owner_id if row is not None else None, act, what)


async def undelivered_of(conn: AsyncConnection, user_id: str, message_id: str, act: Act) -> AnyRow:
    row = await find_undelivered_one(conn, message_id)
    return await _theirs(conn, user_id, row, row.owner_id if row is not None else None, act, "undelivered answer")


async def task_of(conn: AsyncConnection, user_id: str, task_id: str, act: Act = Act.OVERSEE) -> Task:
    task = await timetable.task_by_id(conn, task_id)
    return await _theirs(conn, user_id, task, task.agent_group_id if task is not None else None, act, "task")


async def wiring_of(conn: AsyncConnection, user_id: str, wiring_id: str, act: Act = Act.OVERSEE) -> AnyRow:
    row = await find_wiring(conn, wiring_id)
    return await _theirs(conn, user_id, row, row.agent_group_id if row is not None else None, act, "wiring")


async def workflow_of(conn: AsyncConnection, user_id: str, workflow_id: str, act: Act = Act.OVERSEE) -> AnyRow:
    row = await find_workflow(conn, workflow_id)
    return await _theirs(conn, user_id, row, row.agent_group_id if row is not None else None, act, "workflow")


async def _theirs(
    conn: AsyncConnection, user_id: str, row: T | None, agent_group_id: str | None, act: Act, what: str
) -> T:
    standing = await standing_of(conn, user_id, agent_group_id) if agent_group_id is not None else None
    if row is None or standing is None or standing < min(NEEDED[act], NEEDED[Act.OVERSEE]):
        raise HTTPException(404, f"there is no such {what}, or it is none of yours")
    if standing < NEEDED[act]:
        raise HTTPException(403, f"you may look at this {what}, and not {act.value}")
    return row
