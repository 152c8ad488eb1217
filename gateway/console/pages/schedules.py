"""What agents are to do later: each task with its next run in words and its last one, and what can be done with it."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.responses import Notice, show
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import RowId
from gateway.http.belongings import task_of
from gateway.http.dependencies import HouseDep
from models.base import storable
from models.groups import agent_groups
from models.tasks import database_now
from scheduler.words import distance, often, when
from workers import timetable
from workers.access import Act
from workers.house import House
from workers.operations import tasks as operations
from workers.task_terms import conditions
from workers.timetable import Task

_MOST: Final = 300
_SHOWN_RUNS: Final = 20
_LATER: Final = datetime.max.replace(tzinfo=UTC)


router = APIRouter()


async def page(house: House, guest: Guest, agent: str = "", notice: Notice | None = None) -> Response:
    async def look(conn: AsyncConnection) -> dict[str, Any]:
        groups = [row for row in await agent_groups(conn) if guest.reach.includes(row.id)]
        chosen = next((row.id for row in groups if row.folder == agent), None)
        found = await timetable.page_of_tasks(conn, guest.reach.where, _MOST, None, chosen)
        return {"tasks": found, "at": await database_now(conn), "agents": [row.folder for row in groups]}

    found = await house.db.read(look)
    found["tasks"].sort(key=lambda task: (task.next_run(found["at"]) or _LATER, task.id))
    return show(guest, "schedules.html", notice=notice, agent=agent, most=_MOST, **WORDS, **found)


async def one(house: House, guest: Guest, task_id: str, notice: Notice | None = None) -> Response:
    async def look(conn: AsyncConnection) -> dict[str, Any]:
        task = await task_of(conn, guest.user_id, task_id)
        runs = await timetable.runs_of(conn, task, _SHOWN_RUNS)
        return {"task": task, "runs": runs, "at": await database_now(conn)}

    return show(guest, "schedule.html", notice=notice, **WORDS, **await house.db.read(look))


async def act(house: House, guest: Guest, task_id: str, what: operations.Change) -> Notice:
    find = partial(task_of, user_id=guest.user_id, task_id=task_id, act=Act.OPERATE)
    task, said = await operations.change(house, guest.user_id, find, what)
    return Notice(f"The task of {task.agent} {said.partition(chr(10))[0]}")


async def again(house: House, guest: Guest, task_id: str, back: str, agent: str, notice: Notice) -> Response:
    """The page that the button was on."""
    return await (one(house, guest, task_id, notice) if back == "task" else page(house, guest, agent, notice))


@router.get("/schedules")
async def list_tasks(
    house: HouseDep, guest: Annotated[Guest, needs("read", "some")], agent: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    return await page(house, guest, storable(agent))


@router.get("/schedules/{task_id}")
async def show_task(house: HouseDep, task_id: RowId, guest: Annotated[Guest, needs("read", "some")]) -> Response:
    return await one(house, guest, task_id)


@router.post("/schedules/{task_id}/run")
async def run_task(
    house: HouseDep, task_id: RowId, guest: Annotated[Guest, needs("operate", "some")], back: str = "", agent: str = ""
) -> Response:
    find = partial(task_of, user_id=guest.user_id, task_id=task_id, act=Act.OPERATE)
    task, _ = await operations.run_now(house, guest.user_id, find)
    return await again(house, guest, task_id, back, storable(agent), Notice(f"The task of {task.agent} runs now"))


@router.post("/schedules/{task_id}/{what}")
async def change_task(
    house: HouseDep,
    task_id: RowId,
    what: operations.Change,
    guest: Annotated[Guest, needs("operate", "some")],
    back: str = "",
    agent: str = "",
) -> Response:
    return await again(house, guest, task_id, back, storable(agent), await act(house, guest, task_id, what))


def _tone(task: Task) -> str:
    if task.under_way:
        return "busy"
    if task.is_over:
        return "quiet"
    if task.status == "paused":
        return "bad" if task.gave_up else "warn"
    return "ok"


WORDS: dict[str, Any] = {
    "often": often,
    "when": when,
    "distance": distance,
    "conditions": conditions,
    "tone_of": _tone,
}
