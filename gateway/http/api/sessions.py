"""`/v1/sessions`: conversations of agents with people and places; what was said there, and steering them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.api.forms import EXCERPT, After, Limit, Page, RowId, Told, excerpt, page, read_number, read_point
from gateway.http.api.groups import OfAgent
from gateway.http.api.messages import AcceptedView, Key, accepted_answer
from gateway.http.belongings import agent_of, session_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.http.problems import documented
from models.base import AnyRow
from models.browsing import Point, State, messages_page, sessions_page, state_of
from workers.access import Act
from workers.house import House
from workers.operations import sessions as operations

MAX_TEXT = 100_000


class SessionView(BaseModel):
    id: str
    agent: str
    status: Literal["active", "closed"]
    state: State = Field(
        description="`working`: a worker has it; `worker lost`: the worker does not answer, another will take over; "
        "`resting`: until `resume_after`, or until a person has answered; `waiting`: a worker is to take it"
    )
    activity: str | None = Field(description="what it is at, or waits for, in words")
    activity_since: datetime | None
    resume_after: datetime | None
    worker: str | None
    provider: str | None = Field(description="null: the fleet's default")
    model: str | None = Field(description="null: the provider's own choice")
    channel: str | None
    chat: str | None
    thread: str | None
    pending: int = Field(description="messages that are due and not answered yet")
    dead: int = Field(description="messages that were given up")
    messages: int = Field(description="the last number given to one, in or out")
    turns: int = Field(description="the last number given to one")
    replay_of: str | None = Field(description="the session whose messages this one was given again")
    delivers: bool = Field(description="false: what the agent says stays here")
    created_at: datetime
    last_active: datetime


class SessionMessage(BaseModel):
    """One message of a session, in either direction."""

    id: str
    direction: Literal["in", "out"]
    seq: int
    kind: str
    status: str
    text: str
    content: dict[str, Any] | str = Field(description="as text, if it was cut")
    cut: bool = Field(description="the content is longer; this is its beginning")
    turn: str | None
    channel: str
    chat: str
    thread: str | None
    sender: str | None = Field(description="who sent it, as its platform knows them")
    error_class: str | None
    error: str | None
    created_at: datetime
    delivered_at: datetime | None


class Saying(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S")


router = APIRouter(tags=["sessions"])


@router.get("/sessions", responses=documented(404))
async def list_sessions(
    house: HouseDep,
    door: DoorDep,
    caller: Annotated[Caller, needs("read")],
    agent: OfAgent = None,
    status: Annotated[Literal["active", "closed"] | None, Query()] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[SessionView]:
    """Sessions of the agents you are an admin of, the most recently active first. One that is spoken to while you
    page moves to the front."""
    point = read_point(after)
    mine = (await door.reach(caller)).where

    async def look(conn: AsyncConnection) -> list[AnyRow]:
        if agent is not None:
            await agent_of(conn, caller.user_id, agent)
        return await sessions_page(conn, mine, limit + 1, point, agent=agent, status=status)

    return page(await house.db.read(look), limit, session_view, lambda row: Point(row.last_active, row.id))


@router.get("/sessions/{session_id}", responses=documented(404))
async def show_session(house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("read")]) -> SessionView:
    """One session, and how it stands."""
    return session_view(await house.db.read(lambda conn: session_of(conn, caller.user_id, session_id)))


@router.get("/sessions/{session_id}/messages", responses=documented(404))
async def list_messages(
    house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("read")], limit: Limit = 50, after: After = None
) -> Page[SessionMessage]:
    """What was said, both ways, in its order."""
    number = read_number(after)

    async def look(conn: AsyncConnection) -> list[tuple[Literal["in", "out"], AnyRow]]:
        await session_of(conn, caller.user_id, session_id)
        return await messages_page(conn, session_id, limit + 1, number)

    rows = await house.db.read(look)
    return page(rows, limit, lambda one: _message(*one), lambda one: one[1].seq)


@router.post(
    "/sessions/{session_id}/messages",
    status_code=202,
    response_model=AcceptedView,
    responses=documented(404, 409),
)
async def say(
    house: HouseDep, session_id: RowId, said: Saying, caller: Annotated[Caller, needs("send")], key: Key = None
) -> Response:
    """Say something in a session, in your name. The same `Idempotency-Key` is taken once. 409: the session cannot
    be spoken to, or the key was used for something else."""
    await house.db.read(lambda conn: session_of(conn, caller.user_id, session_id, Act.PRODUCE))
    by, may_decide = caller.user_id, caller.may_decide
    taken = await operations.say(house, by, session_id, said.text, message_id=key, may_decide=may_decide)
    return accepted_answer(taken)


@router.post("/sessions/{session_id}/cancel", responses=documented(404, 409))
async def cancel_session(house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Stop the turn that runs, waits or is parked. Its worker can write nothing more, its messages are discarded,
    and what waits behind it goes on. 409: there is none, or it has just ended."""
    await operated(house, session_id, caller)
    return Told(text=(await operations.cancel(house, caller.user_id, session_id)).text)


@router.post("/sessions/{session_id}/reset", responses=documented(404, 409))
async def reset_session(house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """Let the conversation begin anew, in a new session, with all that waits; what the agent is at is given up.
    409: it is closed, or a replay."""
    await operated(house, session_id, caller)
    return Told(text=(await operations.reset(house, caller.user_id, session_id)).text)


@router.post("/sessions/{session_id}/close", responses=documented(404, 409))
async def close_session(house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("operate")]) -> Told:
    """End a session. What waits in it moves to the conversation's next one; a replay ends with all it was at.
    409: it is closed, or in the middle of a turn, whose messages would be lost."""
    await operated(house, session_id, caller)
    return Told(text=(await operations.close(house, caller.user_id, session_id)).text)


async def operated(house: House, session_id: str, caller: Caller) -> None:
    await house.db.read(lambda conn: session_of(conn, caller.user_id, session_id, Act.OPERATE))


def session_view(row: AnyRow) -> SessionView:
    facts = {name: getattr(row, name) for name in ("id", "status", "activity", "activity_since", "resume_after")}
    facts |= {name: getattr(row, name) for name in ("pending", "dead", "replay_of", "delivers", "created_at")}
    return SessionView(
        agent=row.folder,
        state=state_of(row),
        worker=row.lease_owner,
        provider=row.provider or row.group_provider,
        model=row.model or row.group_model,
        channel=row.channel_type,
        chat=row.platform_id,
        thread=row.thread_id or None,
        messages=row.message_seq,
        turns=row.turn_seq,
        last_active=row.last_active,
        **facts,
    )


def _message(direction: Literal["in", "out"], row: AnyRow) -> SessionMessage:
    content, cut = excerpt(row.content)
    facts = {name: getattr(row, name) for name in ("id", "seq", "kind", "status", "error_class", "error", "created_at")}
    return SessionMessage(
        direction=direction,
        text=words_of(row.content),
        content=content,
        cut=cut,
        turn=row.turn_id,
        channel=row.channel_type,
        chat=row.platform_id,
        thread=row.thread_id,
        sender=row.sender_id if direction == "in" else None,
        delivered_at=row.delivered_at if direction == "out" else None,
        **facts,
    )


def words_of(content: dict[str, Any]) -> str:
    """What is said in a message, of any kind; not all of it, if it is very long."""
    return str(content.get("text") or content.get("prompt") or "")[:EXCERPT]
