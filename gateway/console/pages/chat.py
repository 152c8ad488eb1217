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
from gateway.console.console import Console, Notice
from gateway.console.security import COOKIE
from gateway.console.visitors import Guest
from gateway.http.api.forms import RowId
from gateway.http.web import MAX_TEXT, kept_file
from models.base import new_id
from models.sign_ins import find_visitor
from models.web_chats import WEB, find_said
from workers.intake.doors import take_in

_OF_WEB: Final = b'"channel":"web"'


def chat_pages(console: Console) -> APIRouter:
    router = APIRouter(prefix="/chat")
    house, db = console.house, console.house.db
    talks = console.needs("send")
    channel = house.registry.channels.get(WEB)

    async def page(guest: Guest, notice: Notice | None = None) -> Response:
        chat = await db.read(lambda conn: read_chat(conn, guest))
        return await console.show_beside(guest, "chat.html", notice=notice, chat=chat, key=new_id())

    @router.get("")
    async def show_chat(guest: Annotated[Guest, talks]) -> Response:
        return await page(guest)

    @router.post("/say")
    async def say(
        request: Request,
        guest: Annotated[Guest, talks],
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
        [outcome] = (await take_in(house, channel, Received((message,)), may_decide=guest.can("decide"))).outcomes
        if outcome.accepted is None:
            raise HTTPException(403, outcome.reason)
        console.news.stir(_OF_WEB)  # this may have begun a session, whose events nobody follows yet
        if "application/json" in request.headers.get("accept", ""):
            told = "taken" if outcome.accepted.handled is None else "done"
            return JSONResponse({"key": f"in{outcome.accepted.message_id}", "text": told, "go": None})
        return RedirectResponse("/console/chat", 303)

    @router.post("/press")
    async def press(
        request: Request,
        guest: Annotated[Guest, talks],
        token: Annotated[str, Form(min_length=1, max_length=200)],
    ) -> Response:
        button = ButtonPress(token, guest.name, guest.name, guest.name)
        taken = await take_in(house, channel, Received(presses=(button,)), may_decide=guest.can("decide"))
        console.news.stir(_OF_WEB)
        told = to_plain(taken.told[0])
        if "hx-request" in request.headers:
            return console.tell(guest, told)
        return await page(guest, Notice(told))

    @router.get("/files/{message_id}/{number}")
    async def file(
        guest: Annotated[Guest, talks], message_id: RowId, number: Annotated[int, Path(ge=0, lt=1000)]
    ) -> FileResponse:
        row = await db.read(lambda conn: find_said(conn, guest.name, None, message_id))
        path: FilePath | None = kept_file(house, row, number)
        if path is None:
            raise HTTPException(404, "there is no such file here")
        # To be saved and not to be shown: an agent's HTML must not act as this page.
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)

    async def counted(guest: Annotated[Guest, talks]) -> AsyncIterator[None]:
        with console.streams.one_more(guest.user_id):
            yield

    @router.get("/stream", response_class=EventSourceResponse, dependencies=[Depends(counted)])
    async def follow(request: Request, guest: Annotated[Guest, talks]) -> AsyncIterator[ServerSentEvent]:
        secret = request.cookies.get(COOKIE, "")

        async def is_in(conn: AsyncConnection) -> bool:
            return await find_visitor(conn, secret) is not None

        async for event in LiveChat(db, console.news, guest).events(lambda: db.read(is_in)):
            yield event

    return router
