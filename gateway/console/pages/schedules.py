"""What agents are to do later: each task with its next run in words and its last one, and what can be done with it."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.console import Console, Notice
from gateway.console.visitors import Guest
from gateway.http.api.forms import RowId
from gateway.http.belongings import task_of
from models.base import storable
from models.groups import agent_groups
from models.tasks import database_now
from scheduler.words import distance, often, when
from workers import timetable
from workers.access import Act
from workers.operations import tasks as operations
from workers.task_terms import conditions
from workers.timetable import Task

_MOST: Final = 300
_SHOWN_RUNS: Final = 20
_LATER: Final = datetime.max.replace(tzinfo=UTC)


def schedule_pages(console: Console) -> APIRouter:
    router = APIRouter()
    db = console.house.db
    words: dict[str, Any] = {
        "often": often,
        "when": when,
        "distance": distance,
        "conditions": conditions,
        "tone_of": _tone,
    }

    async def page(guest: Guest, agent: str = "", notice: Notice | None = None) -> Response:
        async def look(conn: AsyncConnection) -> dict[str, Any]:
            groups = [row for row in await agent_groups(conn) if guest.reach.includes(row.id)]
            chosen = next((row.id for row in groups if row.folder == agent), None)
            found = await timetable.page_of_tasks(conn, guest.reach.where, _MOST, None, chosen)
            return {"tasks": found, "at": await database_now(conn), "agents": [row.folder for row in groups]}

        found = await db.read(look)
        found["tasks"].sort(key=lambda task: (task.next_run(found["at"]) or _LATER, task.id))
        return console.show(guest, "schedules.html", notice=notice, agent=agent, most=_MOST, **words, **found)

    async def one(guest: Guest, task_id: str, notice: Notice | None = None) -> Response:
        async def look(conn: AsyncConnection) -> dict[str, Any]:
            task = await task_of(conn, guest.user_id, task_id)
            runs = await timetable.runs_of(conn, task, _SHOWN_RUNS)
            return {"task": task, "runs": runs, "at": await database_now(conn)}

        return console.show(guest, "schedule.html", notice=notice, **words, **await db.read(look))

    async def act(guest: Guest, task_id: str, what: operations.Change) -> Notice:
        find = partial(task_of, user_id=guest.user_id, task_id=task_id, act=Act.OPERATE)
        task, said = await operations.change(console.house, guest.user_id, find, what)
        return Notice(f"The task of {task.agent} {said.partition(chr(10))[0]}")

    async def again(guest: Guest, task_id: str, back: str, agent: str, notice: Notice) -> Response:
        """The page that the button was on."""
        return await (one(guest, task_id, notice) if back == "task" else page(guest, agent, notice))

    @router.get("/schedules")
    async def list_tasks(
        guest: Annotated[Guest, console.needs("read", "some")], agent: Annotated[str, Query(max_length=100)] = ""
    ) -> Response:
        return await page(guest, storable(agent))

    @router.get("/schedules/{task_id}")
    async def show_task(task_id: RowId, guest: Annotated[Guest, console.needs("read", "some")]) -> Response:
        return await one(guest, task_id)

    @router.post("/schedules/{task_id}/run")
    async def run_task(
        task_id: RowId, guest: Annotated[Guest, console.needs("operate", "some")], back: str = "", agent: str = ""
    ) -> Response:
        find = partial(task_of, user_id=guest.user_id, task_id=task_id, act=Act.OPERATE)
        task, _ = await operations.run_now(console.house, guest.user_id, find)
        return await again(guest, task_id, back, storable(agent), Notice(f"The task of {task.agent} runs now"))

    @router.post("/schedules/{task_id}/{what}")
    async def change_task(
        task_id: RowId,
        what: operations.Change,
        guest: Annotated[Guest, console.needs("operate", "some")],
        back: str = "",
        agent: str = "",
    ) -> Response:
        return await again(guest, task_id, back, storable(agent), await act(guest, task_id, what))

    return router


def _tone(task: Task) -> str:
    if task.under_way:
        return "busy"
    if task.is_over:
        return "quiet"
    if task.status == "paused":
        return "bad" if task.gave_up else "warn"
    return "ok"
