"""`/v1/wirings`: which agent listens in which place, and to what. `docs/routing.md` says what the rules mean."""

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gateway.http.api.forms import After, Limit, Page, RowId, Told, page, sensible
from gateway.http.api.groups import FolderName
from gateway.http.belongings import agent_of, wiring_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.http.problems import documented
from models.base import AnyRow
from models.groups import wiring_at, wirings_page
from workers.access import Act
from workers.operations.wirings import (
    MAX_PRIORITY,
    FollowUp,
    Listening,
    ResponseScope,
    Strangers,
    put_wiring,
    unwire,
)

_VISIBLE: Final = r"^[^\x00-\x1f\x7f]+$"
Place = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_VISIBLE)]
Platform = Annotated[str, StringConstraints(min_length=1, max_length=50, pattern=_VISIBLE)]
NONE: Final = "there is no such wiring, or it is none of yours"


class WiringView(BaseModel):
    id: str
    agent: str
    channel: str
    chat: str
    rules: dict[str, Any] = Field(description="pattern, mentionOnly, includeSenders, excludeSenders, sticky")
    scope: ResponseScope
    per_thread: bool
    follow_up: FollowUp
    priority: int = Field(description="higher is asked first")
    strangers: Strangers = Field(description="what becomes of them in this place, whichever agent they write to")
    created_at: datetime


class NewWiring(BaseModel):
    """All of it: wired again, an agent listens as said the last time."""

    model_config = ConfigDict(extra="forbid")

    agent: FolderName
    channel: Platform
    chat: Place
    pattern: Place | None = Field(None, description="answer only what matches this regular expression")
    mention_only: bool = False
    include_senders: list[Place] = Field([], max_length=1000, description="answer only these, by the platform's id")
    exclude_senders: list[Place] = Field([], max_length=1000)
    sticky: bool | None = Field(None, description="once called in a thread, follow it; null: if `mention_only`")
    scope: ResponseScope = "all"
    per_thread: bool = Field(False, description="a session for each thread")
    follow_up: FollowUp = "enqueue"
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    strangers: Strangers | None = Field(None, description="null: as it was, and `strict` in a new place")

    def listening(self) -> Listening:
        return Listening(
            pattern=self.pattern,
            mention_only=self.mention_only,
            include_senders=tuple(self.include_senders),
            exclude_senders=tuple(self.exclude_senders),
            sticky=self.sticky,
            scope=self.scope,
            per_thread=self.per_thread,
            follow_up=self.follow_up,
            priority=self.priority,
        )


router = APIRouter(tags=["wirings"])


@router.get("/wirings")
async def list_wirings(
    house: HouseDep, door: DoorDep, caller: Annotated[Caller, needs("read")], limit: Limit = 50, after: After = None
) -> Page[WiringView]:
    """Where the caller's agents listen, the oldest first. In a place, who has the highest priority is asked
    first."""
    mine = (await door.reach(caller)).where
    rows = await house.db.read(lambda conn: wirings_page(conn, mine, limit + 1, after))
    return page(rows, limit, wiring_view, lambda row: row.id)


@router.put("/wirings", responses=documented(404))
async def wire(house: HouseDep, given: NewWiring, caller: Annotated[Caller, needs("admin")]) -> WiringView:
    """Let an agent listen in a place. For owners and global admins."""
    await house.db.read(lambda conn: agent_of(conn, caller.user_id, given.agent, Act.CONFIGURE))
    place = (given.channel, given.chat)
    with sensible():
        await put_wiring(house, caller.user_id, given.agent, *place, given.listening(), given.strangers)
    row = await house.db.read(lambda conn: wiring_at(conn, given.agent, *place))
    if row is None:  # somebody has taken it away again
        raise HTTPException(404, NONE)
    return wiring_view(row)


@router.delete("/wirings/{wiring_id}", responses=documented(404))
async def remove_wiring(house: HouseDep, wiring_id: RowId, caller: Annotated[Caller, needs("admin")]) -> Told:
    """Let an agent listen in a place no more. What was said there stays. For owners and global admins."""
    row = await house.db.read(lambda conn: wiring_of(conn, caller.user_id, wiring_id, Act.CONFIGURE))
    if not await unwire(house, caller.user_id, row.agent_group_id, row.channel_type, row.platform_id):
        raise HTTPException(404, NONE)
    return Told(text=f"{row.folder} no longer listens on {row.channel_type} {row.platform_id}")


def wiring_view(row: AnyRow) -> WiringView:
    return WiringView(
        id=row.id,
        agent=row.folder,
        channel=row.channel_type,
        chat=row.platform_id,
        rules=row.trigger_rules or {},
        scope=row.response_scope,
        per_thread=row.session_mode == "per-thread",
        follow_up=row.follow_up,
        priority=row.priority,
        strangers=row.unknown_sender_policy,
        created_at=row.created_at,
    )
