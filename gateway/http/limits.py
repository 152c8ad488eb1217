"""What stands before every route: bodies that are neither too long nor too slow, and errors that strangers can read.

Nothing of the inside is ever shown: no traceback, no statement, no value that was sent."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.errors import StoreError

log = structlog.get_logger()

MAX_BODY_BYTES: Final = 1 << 20
BODY_SECONDS: Final = 20.0  # for all of it: who sends slowly must not keep others out
RETRY_AFTER_SECONDS: Final = "5"
_CLOSE: Final = {"Connection": "close"}  # the rest of the body is on its way: nobody wants to read it


class BodyLimit:
    """Ends reading, and so the request, at the first byte too many, said beforehand or not, and when it takes too
    long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"0")
        too_long = not said.isdigit() or len(said) > 15 or int(said) > MAX_BODY_BYTES
        size = 0
        deadline: float | None = asyncio.get_running_loop().time() + BODY_SECONDS

        async def bounded() -> Message:
            nonlocal size, deadline
            if too_long:
                raise _too_long()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body took longer than {BODY_SECONDS:g} s", _CLOSE) from None
            if not message.get("more_body"):
                deadline = None  # what comes now is that they hang up
            size += len(message.get("body", b""))
            if size > MAX_BODY_BYTES:
                raise _too_long()
            return message

        await self._app(scope, bounded, send)


def _too_long() -> HTTPException:
    return HTTPException(413, f"the body is too long: at most {MAX_BODY_BYTES} bytes are taken", _CLOSE)


def explain_errors(app: FastAPI) -> None:
    """Every answer that is no success is {"error": text}."""
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
        StarletteHTTPException: _refused,
        RequestValidationError: _unreadable,
        StoreError: _store_away,
        Exception: _not_foreseen,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _unreadable(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    return JSONResponse({"error": f"{where}: {first['msg']}"}, 422)


async def _store_away(_request: Request, error: Exception) -> JSONResponse:
    log.warning("gateway.store_away", error=str(error))
    text = "the database does not answer, and nothing was stored: send it again"
    return JSONResponse({"error": text}, 503, {"Retry-After": RETRY_AFTER_SECONDS})


async def _not_foreseen(request: Request, error: Exception) -> JSONResponse:
    # The server logs its traceback.
    log.error("gateway.not_foreseen", path=request.url.path, error=type(error).__name__)
    return JSONResponse({"error": "something went wrong here, and was written down"}, 500)
