"""The console as an application of its own below `/console`: pages, their errors as pages, and headers on all of them.

Nothing of it is in the OpenAPI document: it is for people, and changes as they need it."""

from typing import Final

from fastapi import Depends, FastAPI
from fastapi.routing import APIRouter

from gateway.console import static_files
from gateway.console.error_pages import explain_errors
from gateway.console.pages import (
    audit,
    chat,
    dead,
    groups,
    inbox,
    overview,
    people,
    providers,
    replay,
    schedules,
    session,
    sessions,
    sign_in,
    usage,
    wirings,
    workflows,
)
from gateway.console.security import Shield, from_our_pages
from gateway.console.threshold import Threshold

PAGES: Final[tuple[APIRouter, ...]] = tuple(
    module.router
    for module in (
        sign_in,
        overview,
        sessions,
        replay,
        session,
        chat,
        inbox,
        dead,
        schedules,
        workflows,
        providers,
        usage,
        groups,
        wirings,
        people,
        audit,
    )
)


def make_console() -> FastAPI:
    app = FastAPI(
        dependencies=[Depends(from_our_pages)], openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.add_middleware(Threshold)
    app.add_middleware(Shield)  # outermost: the last
    explain_errors(app)
    app.include_router(static_files.router)
    for router in PAGES:
        app.include_router(router)
    return app
