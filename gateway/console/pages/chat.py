"""The visitor's own direct chat with agents: the `web` channel in the browser. For everybody who is signed in and may
talk; what they may not say is refused by the same door as on every platform."""

from collections.abc import AsyncIterator
from pathlib import Path as FilePath
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Form, HTTPException, Path, Request, Response
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import ButtonPress, InboundMessage, Received
from adapters.markup.plain import to_plain
from gateway.console.chat.lines import read_chat
from gateway.console.chat.live import LiveChat
from gateway.console.responses import Notice, show_beside, tell
from gateway.console.security import COOKIE
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import RowId
from gateway.http.dependencies import HouseDep, NewsDep, StreamsDep
from gateway.http.web import MAX_TEXT, kept_file
from models.base import new_id
from models.sign_ins import find_visitor
from models.web_chats import WEB, find_said
from workers.house import House
from workers.intake.doors import take_in

_OF_WEB: Final = b'"channel":"web"'


router = APIRouter(prefix="/chat")
TALKS = needs("send")


async def page(house: House, guest: Guest, notice: Notice | None = None) -> Response:
    chat = await house.db.read(lambda conn: read_chat(conn, guest))
    return await show_beside(guest, "chat.html", notice=notice, chat=chat, key=new_id())


@router.get("")
async def show_chat(house: HouseDep, guest: Annotated[Guest, TALKS]) -> Response:
    return await page(house, guest)


@router.post("/say")
async def say(
    house: HouseDep,
    news: NewsDep,
    request: Request,
    guest: Annotated[Guest, TALKS],
    text: Annotated[str, Form(min_length=1, max_length=MAX_TEXT)],
    key: Annotated[str, Form(min_length=1, max_length=100)],
) -> Response:
    message = InboundMessage(
        platform_id=guest.name,
        platform_message_id=f"{guest.name}:{key}",
        content={"text": text},
        sender_id=guest.name,
        sender_name=guest.name,
        is_direct=True,
    )
    [outcome] = (
        await take_in(house, house.registry.channels.get(WEB), Received((message,)), may_decide=guest.can("decide"))
    ).outcomes
    if outcome.accepted is None:
        raise HTTPException(403, outcome.reason)
    news.stir(_OF_WEB)  # this may have begun a session, whose events nobody follows yet
    if "application/json" in request.headers.get("accept", ""):
        told = "taken" if outcome.accepted.handled is None else "done"
        return JSONResponse({"key": f"in{outcome.accepted.message_id}", "text": told, "go": None})
    return RedirectResponse("/console/chat", 303)


@router.post("/press")
async def press(
    house: HouseDep,
    news: NewsDep,
    request: Request,
    guest: Annotated[Guest, TALKS],
    token: Annotated[str, Form(min_length=1, max_length=200)],
) -> Response:
    button = ButtonPress(token, guest.name, guest.name, guest.name)
    taken = await take_in(
        house, house.registry.channels.get(WEB), Received(presses=(button,)), may_decide=guest.can("decide")
    )
    news.stir(_OF_WEB)
    told = to_plain(taken.told[0])
    if "hx-request" in request.headers:
        return tell(guest, told)
    return await page(house, guest, Notice(told))


@router.get("/files/{message_id}/{number}")
async def file(
    house: HouseDep, guest: Annotated[Guest, TALKS], message_id: RowId, number: Annotated[int, Path(ge=0, lt=1000)]
) -> FileResponse:
    row = await house.db.read(lambda conn: find_said(conn, guest.name, None, message_id))
    path: FilePath | None = kept_file(house, row, number)
    if path is None:
        raise HTTPException(404, "there is no such file here")
    # To be saved and not to be shown: an agent's HTML must not act as this page.
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


async def counted(streams: StreamsDep, guest: Annotated[Guest, TALKS]) -> AsyncIterator[None]:
    with streams.one_more(guest.user_id):
        yield


@router.get("/stream", response_class=EventSourceResponse, dependencies=[Depends(counted)])
async def follow(
    house: HouseDep, news: NewsDep, request: Request, guest: Annotated[Guest, TALKS]
) -> AsyncIterator[ServerSentEvent]:
    secret = request.cookies.get(COOKIE, "")

    async def is_in(conn: AsyncConnection) -> bool:
        return await find_visitor(conn, secret) is not None

    async for event in LiveChat(house.db, news, guest).events(lambda: house.db.read(is_in)):
        yield event
