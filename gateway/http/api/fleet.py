"""`/v1/fleet`: the fleet at a glance. Of those who may not see all of it, only what their agents do."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from gateway.http.api.usage import Figures
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.session_words import turn_standing
from models.base import AnyRow
from models.overview import Overview, look_over


class ProcessView(BaseModel):
    """A worker, a gateway or a listener. `alive`: it has said so lately."""

    name: str
    kind: str
    alive: bool
    queues: list[str]
    running: int = Field(description="tasks at this moment")
    slots: int | None = Field(description="how many at a time")
    seen_at: datetime


class OpenTurn(BaseModel):
    id: str
    session: str
    number: int
    agent: str
    status: Literal["running", "waiting", "parked"]
    state: str = Field(description="what it is at, in words")
    activity_since: datetime | None = Field(description="since when it is at that")
    resume_after: datetime | None = Field(description="nothing of it runs before")
    attempt: int
    provider: str
    model: str | None
    worker: str | None
    started_at: datetime


class QueueView(BaseModel):
    """What is due in a queue and has not begun."""

    queue: str
    messages: int
    tasks: int
    oldest: datetime | None


class EndedView(BaseModel):
    """How turns ended within the last hour."""

    completed: int
    failed: int
    cancelled: int
    error_rate: float | None = Field(description="the share that failed, from 0 to 1; null: none came to an end")


class FleetView(BaseModel):
    at: datetime = Field(description="the database's clock, by which all of it is told")
    processes: list[ProcessView] = Field(description="for owners and global admins; else empty")
    turns: list[OpenTurn] = Field(description="unfinished ones, the oldest first; at most 100")
    open_turns: int
    queues: list[QueueView]
    dead_letters: int
    last_hour: EndedView
    today: Figures = Field(description="since midnight (UTC)")


router = APIRouter(tags=["fleet"])


@router.get("/fleet")
async def show_fleet(house: HouseDep, door: DoorDep, caller: Annotated[Caller, needs("read")]) -> FleetView:
    """Who works, on what, what waits in which queue, how often it goes wrong, and what today costs."""
    reach, settings = await door.reach(caller), house.settings
    alive, provider = settings.alive_seconds, settings.default_provider
    seen = await house.db.read(
        lambda conn: look_over(
            conn, reach.where, default_provider=provider, alive_seconds=alive, processes=reach.everything
        )
    )
    return _view(seen)


def _view(seen: Overview) -> FleetView:
    ended, today = seen.ended, seen.today
    return FleetView(
        at=seen.at,
        processes=[ProcessView(**_named(row, ProcessView)) for row in seen.processes],
        turns=[_turn(row) for row in seen.turns],
        open_turns=seen.open_turns,
        queues=[QueueView(**vars(item)) for item in seen.waiting],
        dead_letters=seen.dead,
        last_hour=EndedView(**vars(ended), error_rate=ended.error_rate),
        today=Figures(**{name: getattr(today, name) for name in Figures.model_fields}),
    )


def _turn(row: AnyRow) -> OpenTurn:
    facts = {name: getattr(row, name) for name in ("number", "status", "attempt", "provider", "model", "worker")}
    return OpenTurn(
        id=row.id,
        session=row.session_id,
        agent=row.folder,
        state=turn_standing(row),
        activity_since=row.activity_since,
        resume_after=row.resume_after,
        started_at=row.started_at,
        **facts,
    )


def _named(row: AnyRow, view: type[BaseModel]) -> dict[str, object]:
    return {name: getattr(row, name) for name in view.model_fields}
