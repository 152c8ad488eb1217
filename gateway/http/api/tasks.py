"""`/v1/tasks`: what agents are to do later, once or again and again: to see their next runs, change and end them.

A script is no part of it: it is set at the command line, or by an agent's tool where an admin asks for it."""

from datetime import datetime
from functools import partial
from typing import Annotated, Any, cast

from fastapi import APIRouter, HTTPException
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.api.forms import After, Limit, Page, RowId, Told, page, sensible
from gateway.http.api.groups import OfAgent
from gateway.http.api.handing_in import Producer
from gateway.http.api.messages import Key
from gateway.http.api.task_forms import NewTask, TaskChange, TaskView, WholeTask, run_view, task_view
from gateway.http.belongings import agent_of, task_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.http.problems import documented
from models.groups import find_agent_group
from models.tasks import database_now
from workers import timetable
from workers.access import Act
from workers.house import House
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.operations import tasks as operations
from workers.operations.keys import row_id_for, taken_once
from workers.task_dates import check_date, check_rhythm
from workers.task_terms import changed_terms
from workers.timetable import Changes, Task

SHOWN_RUNS = 10


router = APIRouter(tags=["tasks"])


@router.get("/tasks", responses=documented(404))
async def list_tasks(
    house: HouseDep,
    door: DoorDep,
    caller: Annotated[Caller, needs("read")],
    agent: OfAgent = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[TaskView]:
    """Tasks that wait, run or are paused, the oldest first."""
    mine = (await door.reach(caller)).where

    async def look(conn: AsyncConnection) -> tuple[list[Task], datetime]:
        group = (await agent_of(conn, caller.user_id, agent)).id if agent is not None else None
        found = await timetable.page_of_tasks(conn, mine, limit + 1, after, group)
        return found, await database_now(conn)

    rows, at = await house.db.read(look)
    return page(rows, limit, lambda task: task_view(task, at), lambda task: task.id)


@router.post("/tasks", status_code=201, responses=documented(404, 409))
async def add_task(
    house: HouseDep, given: NewTask, caller: Annotated[Caller, needs("operate")], key: Key = None
) -> WholeTask:
    """Give an agent a task for later. The same `Idempotency-Key` makes one task. Who may: as for messages.
    409: the key was used for something else, or its task was changed since."""
    if given.at is None and given.every is None:
        raise HTTPException(422, "say when: at, every, or both")
    row_id = row_id_for("task", caller.user_id, key) if key is not None else None
    accepted = await _add(house, caller, given, row_id)
    return await _whole(house, caller, accepted.message_id)


@router.get("/tasks/{task_id}", responses=documented(404))
async def show_task(house: HouseDep, task_id: RowId, caller: Annotated[Caller, needs("read")]) -> WholeTask:
    """Everything about one task, also one that is over: its terms, its next runs and its last ones."""
    return await _whole(house, caller, task_id)


@router.patch("/tasks/{task_id}", responses=documented(404, 409))
async def change_task(
    house: HouseDep, task_id: RowId, given: TaskChange, caller: Annotated[Caller, needs("operate")]
) -> WholeTask:
    """Change a task; while it runs, from its next run on. 409: it is over, or runs for the last time."""
    changes = given.changes()

    async def work(conn: AsyncConnection) -> None:
        task = await task_of(conn, caller.user_id, task_id, Act.OPERATE)
        if not changes:
            return
        with sensible():
            timezone = changes.get("timezone", task.timezone)
            check_rhythm(changes.get("recurrence"), timezone)
            changed_terms(task.terms, **{k: v for k, v in changes.items() if hasattr(task.terms, k)})
            if changes.get("process_after") is not None:
                check_date(changes["process_after"], await database_now(conn))
            if changes.get("provider") is not None:
                group = await find_agent_group(conn, task.agent_group_id)
                assert group is not None
                operations.check_provider_options(house.registry, group, changes["provider"])
        await operations.update(conn, caller.user_id, task, cast(Changes, changes))

    await house.db.transact(work)
    return await _whole(house, caller, task_id)


@router.post("/tasks/{task_id}/pause", responses=documented(404, 409))
async def pause_task(house: HouseDep, task_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Let it rest until it is resumed. 409: it is over, or runs for the last time."""
    return await change(house, task_id, caller, "pause")


@router.post("/tasks/{task_id}/resume", responses=documented(404, 409))
async def resume_task(house: HouseDep, task_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Let it go on, with its next date to come."""
    return await change(house, task_id, caller, "resume")


@router.post("/tasks/{task_id}/cancel", responses=documented(404, 409))
async def cancel_task(house: HouseDep, task_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """End it for good. A run that is on goes on to its end."""
    return await change(house, task_id, caller, "cancel")


@router.post("/tasks/{task_id}/run", responses=documented(404, 409))
async def run_task(house: HouseDep, task_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Run it once more, now, besides its dates; also one that is paused. 409: such a run waits already."""
    find = partial(task_of, user_id=caller.user_id, task_id=task_id, act=Act.OPERATE)
    task, _ = await operations.run_now(house, caller.user_id, find)
    return Told(text=f"task {task.handle} of {task.agent} runs now")


async def change(house: House, task_id: str, caller: Caller, what: operations.Change) -> Told:
    find = partial(task_of, user_id=caller.user_id, task_id=task_id, act=Act.OPERATE)
    task, said = await operations.change(house, caller.user_id, find, what)
    return Told(text=f"task {task.handle} of {task.agent} {said}")


async def _add(house: House, caller: Caller, given: NewTask, row_id: str | None) -> Accepted:
    said: dict[str, Any] = {
        "agent_group": given.agent,
        "kind": "task",
        "text": given.prompt,
        "timezone": given.timezone,
    }
    said |= {"channel_type": given.channel, "platform_id": given.chat, "thread_id": given.thread}
    terms = given.terms.model_dump(exclude_unset=True) if given.terms is not None else None
    with sensible():
        incoming = parse_incoming({**said, "process_after": given.at, "recurrence": given.every, "terms": terms})

    group = await house.db.read(lambda conn: agent_of(conn, caller.user_id, given.agent, Act.OPERATE))
    noted = operations.noting_added(caller.user_id, group.id)
    find = Producer(caller.user_id).find

    async def check(conn: AsyncConnection) -> None:
        if incoming.process_after is not None:
            check_date(incoming.process_after, await database_now(conn))
        if incoming.terms is not None and incoming.terms.provider is not None:
            operations.check_provider_options(house.registry, group, incoming.terms.provider)

    async def take() -> Accepted:
        await house.db.read(check)
        place = (house.db, house.registry, house.settings)
        return await accept(*place, incoming, row_id=row_id, find=find, besides=noted)

    with sensible():
        return await taken_once(house, row_id, incoming, take)


async def _whole(house: House, caller: Caller, task_id: str) -> WholeTask:
    async def look(conn: AsyncConnection) -> WholeTask:
        task = await task_of(conn, caller.user_id, task_id)
        at, runs = await database_now(conn), await timetable.runs_of(conn, task, SHOWN_RUNS)
        shown = task_view(task, at).model_dump()
        return WholeTask(**shown, next_runs=task.next_runs(at), runs=[run_view(run) for run in runs])

    return await house.db.read(look)
