"""The `web` channel over HTTP: saying something in a chat, reading what was said there, following it live, and pressing
buttons. Whoever calls is known by their token, and sees their own direct chat and those of agents they may talk to."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, HTTPException, Query
from fastapi import Path as InPath
from fastapi.responses import FileResponse, JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import ButtonPress, InboundMessage, Received
from adapters.channels.local import RECEIVED
from gateway.http.callers import NO_SUCH_CHAT, Caller, Room, is_somebody_elses, needs, room_of
from gateway.http.dependencies import HouseDep, NewsDep, StreamsDep
from gateway.http.news import News
from gateway.http.web_messages import show, show_work
from models.base import AnyRow, new_id
from models.tokens import find_bearer
from models.web_chats import LIMIT, WEB, Cursor, find_said, room_sessions, said_in_room
from workers.consent.cards import NARROW
from workers.house import House
from workers.intake.doors import take_in

_PRINTABLE: Final = r"^[^\x00-\x1f/]+$"
Chat = Annotated[str, InPath(max_length=255, pattern=_PRINTABLE)]
MAX_TEXT: Final = 100_000
_OF_WEB: Final = b'"channel":"web"'  # in the event of every delivery to a chat


class Said(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str | None = Field(None, min_length=1, max_length=150)  # the same one of the same person is taken once
    text: str = Field(min_length=1, max_length=MAX_TEXT)
    thread: str | None = Field(None, min_length=1, max_length=255)


class Pressed(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: str = Field(min_length=1, max_length=200)
    chat: str | None = Field(None, max_length=255, pattern=_PRINTABLE)  # where the button is; else the own direct chat


router = APIRouter(prefix="/web")
KNOWN = needs("send")


async def stream(streams: StreamsDep, caller: Annotated[Caller, KNOWN]) -> AsyncIterator[None]:
    with streams.one_more(caller.user_id):
        yield


async def room(house: HouseDep, chat: Chat, caller: Annotated[Caller, KNOWN]) -> Room:
    found = await house.db.read(lambda conn: room_of(conn, caller, chat))
    if found is None:
        raise HTTPException(404, NO_SUCH_CHAT)
    return found


async def their_own(house: House, caller: Caller, chat: str) -> None:
    if await house.db.read(lambda conn: is_somebody_elses(conn, caller, chat)):
        raise HTTPException(404, NO_SUCH_CHAT)


@router.post("/presses")
async def press(house: HouseDep, pressed: Pressed, caller: Annotated[Caller, KNOWN]) -> JSONResponse:
    chat = pressed.chat or caller.name
    await their_own(house, caller, chat)
    button = ButtonPress(pressed.token, chat, caller.name, caller.name)
    [told] = (
        await take_in(
            house, house.registry.channels.get(WEB), Received(presses=(button,)), may_decide=caller.may_decide
        )
    ).told
    if told == NARROW:
        raise HTTPException(403, told)
    return JSONResponse({"text": told})


@router.post("/{chat}/messages")
async def say(house: HouseDep, news: NewsDep, chat: Chat, said: Said, caller: Annotated[Caller, KNOWN]) -> JSONResponse:
    await their_own(house, caller, chat)
    message = InboundMessage(
        platform_id=chat,
        # Others in the chat may count theirs the same way.
        platform_message_id=f"{caller.name}:{said.id or new_id()}",
        content={"text": said.text},
        thread_id=said.thread,
        sender_id=caller.name,
        sender_name=caller.name,
        is_direct=chat == caller.name,
    )
    [outcome] = (
        await take_in(house, house.registry.channels.get(WEB), Received((message,)), may_decide=caller.may_decide)
    ).outcomes
    if outcome.accepted is None:
        raise HTTPException(403, outcome.reason)
    news.stir(_OF_WEB)  # this may have begun a session, whose events nobody follows yet
    return JSONResponse(outcome.accepted.public(), 202)


@router.get("/{chat}/messages")
async def read(
    house: HouseDep, room: Annotated[Room, Depends(room)], after: Annotated[str | None, Query(max_length=60)] = None
) -> JSONResponse:
    cursor = _cursor(after)
    shown = await house.db.read(lambda conn: _look(conn, room, cursor))
    return JSONResponse({"messages": shown, "next": shown[-1]["cursor"] if shown else after})


@router.get("/{chat}/events", response_class=EventSourceResponse, dependencies=[Depends(stream)])
async def follow(
    house: HouseDep,
    news: NewsDep,
    room: Annotated[Room, Depends(room)],
    caller: Annotated[Caller, KNOWN],
    after: Annotated[str | None, Query(max_length=60)] = None,
    last_event_id: Annotated[str | None, Header(max_length=60)] = None,
) -> AsyncIterator[ServerSentEvent]:
    async for event in _events(house, news, caller, room.chat, _cursor(last_event_id or after)):
        yield event


@router.get("/{chat}/files/{message_id}/{number}")
async def file(
    house: HouseDep,
    room: Annotated[Room, Depends(room)],
    message_id: Annotated[str, InPath(max_length=36, pattern=_PRINTABLE)],
    number: Annotated[int, InPath(ge=0, lt=1000)],
) -> FileResponse:
    row = await house.db.read(lambda conn: find_said(conn, room.chat, room.agent_groups, message_id))
    path = kept_file(house, row, number)
    if path is None:
        raise HTTPException(404, "there is no such file here")
    # To be saved and not to be shown: an agent's HTML must not act as this page.
    headers = {"X-Content-Type-Options": "nosniff"}
    return FileResponse(path, media_type="application/octet-stream", filename=path.name, headers=headers)


async def _events(
    house: House, news: News, caller: Caller, chat: str, cursor: Cursor | None
) -> AsyncIterator[ServerSentEvent]:
    """What is said in a chat, each once, and who is at work there; as long as the caller may see it."""
    seen: dict[str, None] = {}
    working: list[dict[str, Any]] = []
    with news.ear(words=_OF_WEB) as ear:
        while not ear.closed:
            found = await house.db.read(lambda conn, at=cursor: _follow(conn, caller, chat, at))  # type: ignore[misc]
            if found is None:
                return
            shown, sessions = found
            new = [message for message in shown if message["id"] not in seen]
            for message in new:
                cursor = Cursor.parse(message["cursor"])
                seen[message["id"]] = None
                yield ServerSentEvent(event="message", id=message["cursor"], data=message)
            for old in list(seen)[: -2 * LIMIT]:
                del seen[old]
            if (now_working := show_work(sessions)) != working:
                working = now_working
                yield ServerSentEvent(event="working", data=working)
            ear.sessions = {row.id for row in sessions}
            if not new:
                await ear.wait()


async def _follow(
    conn: AsyncConnection, caller: Caller, chat: str, cursor: Cursor | None
) -> tuple[list[dict[str, Any]], list[AnyRow]] | None:
    """None: the token was revoked meanwhile, or the chat is no longer theirs."""
    if await find_bearer(conn, caller.token) is None:
        return None
    room = await room_of(conn, caller, chat)
    if room is None:
        return None
    sessions = await room_sessions(conn, chat, room.agent_groups)
    return await _look(conn, room, cursor), sessions


async def _look(conn: AsyncConnection, room: Room, cursor: Cursor | None) -> list[dict[str, Any]]:
    return await show(conn, room.chat, await said_in_room(conn, room.chat, room.agent_groups, cursor))


def _cursor(text: str | None) -> Cursor | None:
    if not text:
        return None
    cursor = Cursor.parse(text)
    if cursor is None:
        raise HTTPException(422, "after: this is not a cursor; give one of the messages' own")
    return cursor


def kept_file(house: House, row: AnyRow | None, number: int) -> Path | None:
    """Where a file of a message lies, if it is one and lies on this machine."""
    files = (row.receipt or {}).get("files", []) if row is not None else []
    if number >= len(files):
        return None
    path = Path(files[number]).resolve()
    kept = (house.settings.home / RECEIVED).resolve()
    return path if path.is_relative_to(kept) and path.is_file() else None
