"""`/v1/dead`, `/v1/undelivered`, `/v1/rejected`: what went wrong for good, why, and trying it again."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.api.forms import After, Limit, Page, RowId, Told, excerpt, page, read_point, sensible
from gateway.http.api.groups import OfAgent
from gateway.http.api.messages import MessageId
from gateway.http.api.sessions import words_of
from gateway.http.belongings import agent_of, message_of, undelivered_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.http.problems import documented
from models.base import AnyRow
from models.browsing import Point, dead_page, rejected_page, undelivered_page
from workers.access import Act
from workers.failover import check_choice
from workers.operations import dead as operations

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
DEAD = "dead letter"


class DeadLetter(BaseModel):
    """A message that was given up. It stays until somebody tries it again or puts it away."""

    id: str
    agent: str
    session: str
    seq: int
    kind: str
    text: str
    error_class: str | None
    error: str | None
    tries: int
    turn: str | None
    provider: str | None = Field(description="who was to run it, if somebody had chosen")
    model: str | None
    channel: str
    chat: str
    thread: str | None
    sender: str | None
    created_at: datetime
    died_at: datetime


class WholeDeadLetter(DeadLetter):
    content: dict[str, Any]


class Retry(BaseModel):
    """By whom it is to be run; by the one it was for, if not given."""

    model_config = ConfigDict(extra="forbid")

    provider: Name | None = None
    model: Name | None = None


class Undelivered(BaseModel):
    """An answer that did not arrive (`failed`), or may not have (`unknown`: look there before it is sent again)."""

    id: str
    agent: str
    session: str
    seq: int
    kind: str
    status: Literal["failed", "unknown"]
    text: str
    channel: str
    chat: str
    thread: str | None
    turn: str | None
    attempts: int
    error_class: str | None
    error: str | None
    created_at: datetime


class RejectedView(BaseModel):
    """Input that could not become a message."""

    id: str
    source: str
    reason: str
    payload: dict[str, Any] | str = Field(description="as text, if it was cut")
    cut: bool
    created_at: datetime


router = APIRouter(tags=["dead letters"])


@router.get("/dead", responses=documented(404))
async def list_dead(
    house: HouseDep,
    door: DoorDep,
    caller: Annotated[Caller, needs("read")],
    agent: OfAgent = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[DeadLetter]:
    """Messages that were given up, the latest first."""
    point = read_point(after)
    mine = (await door.reach(caller)).where

    async def look(conn: AsyncConnection) -> list[AnyRow]:
        if agent is not None:
            await agent_of(conn, caller.user_id, agent)
        return await dead_page(conn, mine, limit + 1, point, agent=agent)

    return page(await house.db.read(look), limit, _dead, lambda row: Point(row.status_changed_at, row.id))


@router.get("/dead/{message_id}", responses=documented(404))
async def show_dead(
    house: HouseDep, message_id: MessageId, caller: Annotated[Caller, needs("read")]
) -> WholeDeadLetter:
    """One of them, with all that was said."""
    row = await house.db.read(lambda conn: message_of(conn, caller.user_id, message_id, Act.OVERSEE, DEAD))
    if row.status != "failed":
        raise HTTPException(404, "this message is not dead: GET /v1/messages/{id} says how it stands")
    return WholeDeadLetter(content=row.content, **_dead(row).model_dump())


@router.post("/dead/{message_id}/retry", responses=documented(404, 409))
async def retry_dead(
    house: HouseDep, message_id: MessageId, caller: Annotated[Caller, needs("operate")], given: Retry | None = None
) -> Told:
    """Try it again, with all its tries; also on another provider or model. 409: it is not dead, or the provider
    that it was for is not here any more."""
    await house.db.read(lambda conn: message_of(conn, caller.user_id, message_id, Act.OPERATE, DEAD))
    by, chosen = caller.user_id, given or Retry()
    with sensible():
        check_choice(house.registry, chosen.provider, chosen.model)
    done = await operations.retry(house, by, message_id, provider=chosen.provider, model=chosen.model)
    return Told(text=done.text)


@router.post("/dead/{message_id}/discard", responses=documented(404, 409))
async def discard_dead(house: HouseDep, message_id: MessageId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Put it away for good; the row stays, as `discarded`. 409: it is not dead."""
    await house.db.read(lambda conn: message_of(conn, caller.user_id, message_id, Act.OPERATE, DEAD))
    return Told(text=(await operations.discard(house, caller.user_id, message_id)).text)


@router.get("/undelivered")
async def list_undelivered(
    house: HouseDep, door: DoorDep, caller: Annotated[Caller, needs("read")], limit: Limit = 50, after: After = None
) -> Page[Undelivered]:
    """Answers that nobody will send again by itself, the latest first."""
    point = read_point(after)
    mine = (await door.reach(caller)).where
    rows = await house.db.read(lambda conn: undelivered_page(conn, mine, limit + 1, point))
    return page(rows, limit, _undelivered, lambda row: Point(row.created_at, row.id))


@router.post("/undelivered/{message_id}/resend", responses=documented(404, 409))
async def resend(house: HouseDep, message_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Send it again, under its old key. One that is `unknown` may have arrived: look first."""
    await house.db.read(lambda conn: undelivered_of(conn, caller.user_id, message_id, Act.OPERATE))
    return Told(text=(await operations.resend(house, caller.user_id, message_id)).text)


@router.get("/rejected")
async def list_rejected(
    house: HouseDep, door: DoorDep, caller: Annotated[Caller, needs("read")], limit: Limit = 50, after: After = None
) -> Page[RejectedView]:
    """Input of platforms and of other programs' tasks that was refused, the latest first. It belongs to no agent:
    for owners and global admins. What the API refuses is told to its sender, and not kept."""
    point = read_point(after)
    await door.see_fleet(caller)

    async def look(conn: AsyncConnection) -> list[AnyRow]:
        return await rejected_page(conn, limit + 1, point)

    return page(await house.db.read(look), limit, _rejected, lambda row: Point(row.created_at, row.id))


def _dead(row: AnyRow) -> DeadLetter:
    facts = {name: getattr(row, name) for name in ("id", "seq", "kind", "error_class", "error", "tries")}
    facts |= {name: getattr(row, name) for name in ("provider", "model", "created_at")}
    return DeadLetter(**facts, **_place(row), sender=row.sender_id, died_at=row.status_changed_at)


def _undelivered(row: AnyRow) -> Undelivered:
    facts = {name: getattr(row, name) for name in ("id", "seq", "kind", "status", "attempts", "created_at")}
    return Undelivered(**facts, **_place(row), error_class=row.error_class, error=row.error)


def _place(row: AnyRow) -> dict[str, Any]:
    return {
        "agent": row.folder,
        "session": row.session_id,
        "turn": row.turn_id,
        "channel": row.channel_type,
        "chat": row.platform_id,
        "thread": row.thread_id,
        "text": words_of(row.content),
    }


def _rejected(row: AnyRow) -> RejectedView:
    payload, cut = excerpt(row.payload)
    facts = {name: getattr(row, name) for name in ("id", "source", "reason", "created_at")}
    return RejectedView(payload=payload, cut=cut, **facts)
