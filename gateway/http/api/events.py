"""`/v1/events` and `/v1/sessions/{id}/events`: what agents do, as it happens. `docs/events.md` has what is sent."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from gateway.http.api.forms import RowId
from gateway.http.api.streams import event_stream, fleet_stream
from gateway.http.belongings import session_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep, NewsDep, StreamsDep
from gateway.http.problems import documented
from models.base import AnyRow
from workers.access import Act

_NUMBER = {"ge": 0, "lt": 2**63}


router = APIRouter(tags=["events"], default_response_class=EventSourceResponse)


async def one_more(streams: StreamsDep, caller: Annotated[Caller, needs("read")]) -> AsyncIterator[Caller]:
    with streams.one_more(caller.user_id):
        yield caller


async def overseen(house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("read")]) -> AnyRow:
    return await house.db.read(lambda conn: session_of(conn, caller.user_id, session_id))


async def overseer(door: DoorDep, caller: Annotated[Caller, needs("read")]) -> None:
    await door.see_fleet(caller)


@router.get("/sessions/{session_id}/events", responses=documented(404, 429))
async def follow_session(
    house: HouseDep,
    door: DoorDep,
    news: NewsDep,
    session: Annotated[AnyRow, Depends(overseen)],
    caller: Annotated[Caller, Depends(one_more)],
    after: Annotated[int, Query(**_NUMBER, description="a number of this session's: what comes after it")] = 0,
    last_event_id: Annotated[
        int | None, Header(**_NUMBER, description="the same, as a browser says it when it comes back; goes first")
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """A session's events from a point on: those that are kept, then live ones, without a gap. The id of each that
    is kept is its number. Ends when the caller may no longer look; else come back with the last id."""
    begin = after if last_event_id is None else last_event_id
    async for event in event_stream(
        house.db, news, session.id, begin, lambda: door.still(caller, session.agent_group_id, Act.OVERSEE)
    ):
        yield event


@router.get("/events", dependencies=[Depends(overseer)], responses=documented(429))
async def follow_fleet(
    door: DoorDep, news: NewsDep, caller: Annotated[Caller, Depends(one_more)]
) -> AsyncIterator[ServerSentEvent]:
    """Every session's events from now on, live. There is no resuming: what was missed is filled in by session and
    number. For owners and global admins."""
    async for event in fleet_stream(news, lambda: door.still(caller, None, Act.OVERSEE)):
        yield event
