"""Errors that strangers can read: every answer that is no success is a problem document (RFC 9457), whose `detail` says
what was wrong and what to do.

Nothing of the inside is ever shown: no traceback, no statement, no value that was sent."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as StarletteHTTPException

from models.errors import StoreError
from workers.refusals import RefusedError

log = structlog.get_logger()

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = "5"


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = "about:blank"
    title: str = Field(description="the status in words")
    status: int
    detail: str = Field(description="what was wrong, where, and what to do")


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> ProblemResponse:
    told = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)
    return ProblemResponse(told.model_dump(), status, headers)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: the problems it may answer with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def explain_errors(app: FastAPI) -> None:
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
        StarletteHTTPException: _refused,
        RequestValidationError: _unreadable,
        RefusedError: _not_now,
        StoreError: _store_away,
        Exception: _not_foreseen,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    return problem(error.status_code, str(error.detail), error.headers)


async def _unreadable(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    complaints = []
    for one in error.errors()[:5]:
        where = ".".join(str(part) for part in one["loc"] if part != "body") or "body"
        complaints.append(f"{where}: {one['msg'].removeprefix('Value error, ')}")
    return problem(422, "; ".join(complaints))


async def _not_now(_request: Request, error: Exception) -> JSONResponse:
    """What an operation refuses is about how things stand, and not about how it was asked for."""
    return problem(409, str(error))


async def _store_away(_request: Request, error: Exception) -> JSONResponse:
    log.warning("gateway.store_away", error=str(error))
    text = "the database does not answer, and nothing was stored: send it again"
    return problem(503, text, {"Retry-After": RETRY_AFTER_SECONDS})


async def _not_foreseen(request: Request, error: Exception) -> JSONResponse:
    # The server logs its traceback.
    log.error("gateway.not_foreseen", path=request.url.path, error=type(error).__name__)
    return problem(500, "something went wrong here, and was written down")
