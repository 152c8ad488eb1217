"""One session: how it stands, its timeline as it goes on, a box to say something, and what operators do with it.

What is shown first is made of rows, and works without script; `timeline.live` adds to it. What is done here is done by
`workers.operations`, like everywhere."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Form, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.forms.choices import choices
from gateway.console.responses import Notice, show_beside, tell
from gateway.console.security import COOKIE
from gateway.console.timeline.history import History, read_history
from gateway.console.timeline.live import live_timeline
from gateway.console.timeline.pen import Pen
from gateway.console.visitors import SIGNED_IN, Guest, needs
from gateway.http.api.forms import RowId
from gateway.http.belongings import session_of
from gateway.http.dependencies import HouseDep, NewsDep, StreamsDep
from gateway.session_words import standing
from models.base import AnyRow, new_id
from models.browsing import find_shown_session
from models.sign_ins import find_visitor
from models.timeline import find_call, find_message_numbered
from workers.access import Act, reach_of
from workers.house import Done, House
from workers.operations import sessions

MAX_TEXT: Final = 100_000
_NUMBER: Final = {"ge": 0, "lt": 2**63}
_COUNTED: Final = {"ge": 0, "lt": 2**31 - 1}  # turns and messages, as the columns have it
_Number = Annotated[int, Path(**_COUNTED)]
Operation = Callable[[House, str, str], Awaitable[Done]]
_OPERATIONS: Final[dict[str, Operation]] = {
    "cancel": sessions.cancel,
    "reset": sessions.reset,
    "close": sessions.close,
}


router = APIRouter(prefix="/sessions/{session_id}")
LOOKS, OPERATES, SENDS = (needs(scope, "some") for scope in ("read", "operate", "send"))


def may(act: Act) -> Any:
    async def session(house: HouseDep, session_id: RowId, guest: Annotated[Guest, SIGNED_IN]) -> AnyRow:
        return await house.db.read(lambda conn: session_of(conn, guest.user_id, session_id, act))

    return Depends(session)


KNOWN = may(Act.OVERSEE)


async def page(
    house: House,
    guest: Guest,
    session: AnyRow,
    before: int | None = None,
    notice: Notice | None = None,
) -> Response:
    history = await house.db.read(lambda conn: read_history(conn, session.id, before))
    shown = _shown(house, guest, session, history, before)
    return await show_beside(guest, "session.html", notice=notice, **shown)


@router.get("")
async def show_session(
    house: HouseDep,
    session: Annotated[AnyRow, KNOWN],
    guest: Annotated[Guest, LOOKS],
    before: Annotated[int | None, Query(**_COUNTED)] = None,
) -> Response:
    return await page(house, guest, session, before)


@router.get("/earlier")
async def show_earlier(
    house: HouseDep,
    session: Annotated[AnyRow, KNOWN],
    guest: Annotated[Guest, LOOKS],
    before: Annotated[int, Query(**_COUNTED)],
) -> Response:
    """Turns before one, for a page that has it."""
    history = await house.db.read(lambda conn: read_history(conn, session.id, before))
    values = {"session": session, "turns": history.turns, "earlier": history.earlier}
    return await show_beside(guest, "earlier.html", **values)


@router.get("/turns/{number}")
async def show_turn(
    house: HouseDep,
    session: Annotated[AnyRow, KNOWN],
    guest: Annotated[Guest, LOOKS],
    request: Request,
    number: _Number,
) -> Response:
    """A turn with all its entries."""
    history = await house.db.read(lambda conn: read_history(conn, session.id, number + 1, turns=1))
    if not history.turns or history.turns[0].number != number:
        raise HTTPException(404, "there is no such turn")
    template = "turn.html" if "hx-request" in request.headers else "turn_page.html"
    return await show_beside(guest, template, session=session, turn=history.turns[0])


@router.get("/steps/{step_id}")
async def show_step(
    house: HouseDep, session: Annotated[AnyRow, KNOWN], guest: Annotated[Guest, LOOKS], request: Request, step_id: RowId
) -> Response:
    step = await house.db.read(lambda conn: find_call(conn, session.id, step_id))
    if step is None:
        raise HTTPException(404, "there is no such call")
    template = "step.html" if "hx-request" in request.headers else "step_page.html"
    return await show_beside(guest, template, session=session, step=step)


@router.get("/messages/{number}")
async def show_message(
    house: HouseDep, session: Annotated[AnyRow, KNOWN], guest: Annotated[Guest, LOOKS], number: _Number
) -> Response:
    found = await house.db.read(lambda conn: find_message_numbered(conn, session.id, number))
    if found is None:
        raise HTTPException(404, "there is no such message")
    return await show_beside(guest, "message.html", session=session, message=found)


async def counted(streams: StreamsDep, guest: Annotated[Guest, LOOKS]) -> AsyncIterator[None]:
    with streams.one_more(guest.user_id):
        yield


@router.get("/stream", response_class=EventSourceResponse, dependencies=[Depends(counted)])
async def follow(
    house: HouseDep,
    news: NewsDep,
    request: Request,
    session: Annotated[AnyRow, KNOWN],
    guest: Annotated[Guest, LOOKS],
    after: Annotated[int, Query(**_NUMBER)] = 0,
    last_event_id: Annotated[int | None, Header(**_NUMBER)] = None,
) -> AsyncIterator[ServerSentEvent]:
    secret = request.cookies.get(COOKIE, "")
    begin = after if last_event_id is None else last_event_id
    still = lambda: house.db.read(lambda conn: may_look(conn, secret, session.agent_group_id))  # noqa: E731
    # Forms in what is sent lead back to the page they will be on.
    pen = Pen(replace(guest, path=f"/console/sessions/{session.id}"), session)
    async for event in live_timeline(house.db, news, pen, begin, still, resumed=last_event_id is not None):
        yield event


@router.post("/say")
async def say(
    house: HouseDep,
    request: Request,
    session: Annotated[AnyRow, may(Act.PRODUCE)],
    guest: Annotated[Guest, SENDS],
    text: Annotated[str, Form(min_length=1, max_length=MAX_TEXT)],
    key: Annotated[str, Form(min_length=1, max_length=100)],
) -> Response:
    by, may_decide = guest.user_id, guest.can("decide")
    taken = await sessions.say(house, by, session.id, text, message_id=key, may_decide=may_decide)
    moved = taken.session_id not in ("", session.id)
    if "application/json" in request.headers.get("accept", ""):
        told = "taken" if taken.answered_turn is None else "taken: it answered what was asked"
        go = f"/console/sessions/{taken.session_id}" if moved else None
        return JSONResponse({"key": f"in{taken.seq}", "text": told, "go": go})
    return RedirectResponse(f"/console/sessions/{taken.session_id or session.id}", 303)


@router.post("/{operation}")
async def operate(
    house: HouseDep,
    request: Request,
    operation: Literal["cancel", "reset", "close"],
    session: Annotated[AnyRow, may(Act.OPERATE)],
    guest: Annotated[Guest, OPERATES],
) -> Response:
    done = await _OPERATIONS[operation](house, guest.user_id, session.id)
    if "hx-request" in request.headers:
        return tell(guest, done.text)
    shown = await house.db.read(lambda conn: find_shown_session(conn, session.id))
    return await page(house, guest, shown or session, notice=Notice(done.text))


def _shown(house: House, guest: Guest, session: AnyRow, history: History, before: int | None) -> dict[str, Any]:
    return {
        "session": session,
        "standing": standing(session, session.at),
        "turns": history.turns,
        "waiting": history.waiting if before is None else [],
        "earlier": history.earlier,
        "live": before is None and session.status != "closed",
        "choices": choices(house.registry),
        "key": new_id(),
    }


async def may_look(conn: AsyncConnection, browser_secret: str, agent_group_id: str) -> bool:
    """Whether a browser is still signed in, by somebody who oversees this agent."""
    visitor = await find_visitor(conn, browser_secret)
    return visitor is not None and (await reach_of(conn, visitor.user_id)).includes(agent_group_id)
