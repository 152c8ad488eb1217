"""Signing in, by a token or by a one-time link, and out again.

A link works at once when somebody opens it themselves; from another page, or fetched ahead by a chat that shows what a
link is about, it only shows a button, so that nobody is signed in, or the link used up, without meaning to. Who guesses
is counted by `gateway.http.rates`, and a wrong guess writes nothing into the database: the log has a line of it."""

from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from gateway.console.responses import show
from gateway.console.security import forget, keep_signed_in
from gateway.console.visitors import SIGNED_IN, Guest, theme_of
from gateway.http.dependencies import HouseDep
from models.sign_ins import find_link, new_secret
from models.tokens import find_bearer
from workers.house import House
from workers.operations.sign_ins import come_in_by_link, come_in_by_token
from workers.operations.sign_ins import leave as go_out

log = structlog.get_logger()

_HOME: Final = "/console/"
_WRONG_TOKEN: Final = "this is no token, or it is revoked or over; make one: longshore token add NAME"  # noqa: S105
_WRONG_LINK: Final = "this link was used, or is older than 15 minutes; make another: longshore console"
_Code = Annotated[str, Query(max_length=200)]


router = APIRouter()


def page(request: Request, status: int = 200, wrong: str = "", code: str = "", after: str = "") -> Response:
    values: dict[str, Any] = {"wrong": wrong, "code": code, "after": _inside(after), "theme": theme_of(request)}
    return show(None, "sign_in.html", status=status, **values)


def refused(request: Request, by: str, wrong: str, after: str = "") -> Response:
    log.warning("console.sign_in_refused", by=by, address=request.client.host if request.client else None)
    return page(request, 403, wrong, after=after)


def inside(house: House, request: Request, secret: str, after: str = "") -> Response:
    response = RedirectResponse(_inside(after), 303)
    keep_signed_in(response, request, secret, house.settings.public_url)
    return response


async def by_link(house: House, request: Request, code: str) -> Response:
    secret = new_secret()
    is_there = await house.db.read(lambda conn: find_link(conn, code))
    if not is_there or not await house.db.transact(lambda conn: come_in_by_link(conn, code, secret)):
        return refused(request, "link", _WRONG_LINK)
    return inside(house, request, secret)


@router.get("/sign-in")
async def show_sign_in(request: Request, next: Annotated[str, Query(max_length=500)] = "") -> Response:
    return page(request, after=next)


@router.post("/sign-in")
async def sign_in_by_token(
    house: HouseDep,
    request: Request,
    token: Annotated[str, Form(max_length=500)] = "",
    after: Annotated[str, Form(max_length=500)] = "",
) -> Response:
    bearer = await house.db.read(lambda conn: find_bearer(conn, token.strip()))
    if bearer is None:
        return refused(request, "token", _WRONG_TOKEN, after)
    secret = new_secret()
    await house.db.transact(lambda conn: come_in_by_token(conn, secret, bearer))
    return inside(house, request, secret, after)


@router.get("/enter")
async def open_link(house: HouseDep, request: Request, code: _Code = "") -> Response:
    if not _opened_by_a_person(request):
        return page(request, code=code)
    return await by_link(house, request, code)


@router.post("/enter")
async def follow_link(house: HouseDep, request: Request, code: Annotated[str, Form(max_length=200)] = "") -> Response:
    return await by_link(house, request, code)


@router.post("/sign-out")
async def leave(house: HouseDep, guest: Annotated[Guest, SIGNED_IN]) -> Response:
    await house.db.transact(lambda conn: go_out(conn, guest.visitor))
    response = RedirectResponse("/console/sign-in", 303)
    forget(response)
    return response


def _opened_by_a_person(request: Request) -> bool:
    """Typed, or clicked in a terminal: no page led here. Programs that fetch links ahead do not say so."""
    said = request.headers
    return (said.get("sec-fetch-site"), said.get("sec-fetch-mode")) == (
        "none",
        "navigate",
    ) and "sec-purpose" not in said


def _inside(after: str) -> str:
    """Where to go then: a page of ours, or the first one."""
    plain = after.startswith(_HOME) and "\\" not in after and "//" not in after and after.isprintable()
    return after if plain else _HOME
