"""What went wrong, as a page that people can read: what it was, and what to do. Nothing of the inside is shown.

To a form that htmx has sent, the answer is a notice on the page it is on, and what was typed stays. To a part of a page
that fetches itself, nothing: the lamp in the corner goes out, and it comes back by itself."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from gateway.console.rendering.words import sentence
from gateway.console.responses import IN_PLACE, Notice, show
from gateway.console.security import SAFE_METHODS
from gateway.console.visitors import Guest, SignedOutError, theme_of
from models.errors import StoreError
from workers.refusals import RefusedError

log = structlog.get_logger()

_SIGN_IN: Final = "/console/sign-in"
_STORE_AWAY: Final = "the database does not answer, and nothing was stored: try again in a moment"
_NOT_FORESEEN: Final = "something went wrong here, and was written down"


def explain_errors(app: FastAPI) -> None:
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        SignedOutError: _signed_out,
        HTTPException: _refused,
        RequestValidationError: _unreadable,
        RefusedError: _not_now,
        StoreError: _store_away,
        Exception: _not_foreseen,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _told(request: Request, status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    guest: Guest | None = getattr(request.state, "guest", None)
    title = HTTPStatus(status).phrase
    kept, notice = dict(headers or {}), None
    if "hx-request" in request.headers:
        kept |= {"HX-Reswap": "none"} if request.method in SAFE_METHODS else IN_PLACE
        notice = Notice(sentence(text), bad=True)
    theme = theme_of(request)
    return show(guest, "error.html", notice=notice, status=status, headers=kept, title=title, text=text, theme=theme)


async def _signed_out(request: Request, _error: Exception) -> Response:
    asked_for = f"?{request.url.query}" if request.url.query else ""
    back = f"{_SIGN_IN}?next={quote(request.url.path + asked_for)}"
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Redirect": _SIGN_IN})
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse(back, 303)
    return _told(request, 401, "you are not signed in, or no longer: sign in, and do it again")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _told(request, error.status_code, _sentence(error), dict(error.headers or {}))


async def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = ", ".join(sorted({str(one["loc"][-1]) for one in error.errors()[:5]}))
    return _told(request, 422, f"this cannot be taken as it is; look at: {fields}")


async def _not_now(request: Request, error: Exception) -> Response:
    return _told(request, 409, str(error))


async def _store_away(request: Request, error: Exception) -> Response:
    log.warning("console.store_away", error=str(error))
    return _told(request, 503, _STORE_AWAY)


async def _not_foreseen(request: Request, error: Exception) -> Response:
    # The server logs its traceback.
    log.error("console.not_foreseen", path=request.url.path, error=type(error).__name__)
    return _told(request, 500, _NOT_FORESEEN)


def _sentence(error: HTTPException) -> str:
    if error.status_code == 404 and error.detail == HTTPStatus(404).phrase:
        return "there is no such page"
    return str(error.detail)
