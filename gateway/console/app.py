"""The console as an application of its own below `/console`: pages, their errors as pages, and headers on all of them.

Nothing of it is in the OpenAPI document: it is for people, and changes as they need it."""

from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import RedirectResponse

from gateway.console.console import Console
from gateway.console.error_pages import explain_errors
from gateway.console.pages.audit import audit_pages
from gateway.console.pages.chat import chat_pages
from gateway.console.pages.dead import dead_pages
from gateway.console.pages.groups import group_pages
from gateway.console.pages.inbox import inbox_pages
from gateway.console.pages.overview import overview_pages
from gateway.console.pages.people import people_pages
from gateway.console.pages.providers import providers_pages
from gateway.console.pages.replay import replay_pages
from gateway.console.pages.schedules import schedule_pages
from gateway.console.pages.session import session_pages
from gateway.console.pages.sessions import sessions_pages
from gateway.console.pages.sign_in import sign_in_pages
from gateway.console.pages.usage import usage_pages
from gateway.console.pages.wirings import wiring_pages
from gateway.console.pages.workflows import workflow_pages
from gateway.console.security import Shield, from_our_pages
from gateway.console.static_files import static_routes
from gateway.console.threshold import Threshold

PAGES: Final[tuple[Callable[[Console], APIRouter], ...]] = (
    sign_in_pages,
    overview_pages,
    sessions_pages,
    replay_pages,
    session_pages,
    chat_pages,
    inbox_pages,
    dead_pages,
    schedule_pages,
    workflow_pages,
    providers_pages,
    usage_pages,
    group_pages,
    wiring_pages,
    people_pages,
    audit_pages,
)


def open_console(app: FastAPI, console: Console) -> None:
    """Below `/console`; who comes to the door without saying where to is sent there."""

    @app.get("/", include_in_schema=False)
    @app.get("/console", include_in_schema=False)
    async def lead_in() -> RedirectResponse:
        return RedirectResponse("/console/", 303)

    app.mount("/console", _make_console(console))


def _make_console(console: Console) -> FastAPI:
    closed: dict[str, Any] = {"openapi_url": None, "docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(dependencies=[Depends(from_our_pages(console.house.settings.public_url))], **closed)
    app.add_middleware(Threshold, db=console.house.db)
    app.add_middleware(Shield)  # outermost: the last
    explain_errors(app, console)
    app.include_router(static_routes())
    for pages in PAGES:
        app.include_router(pages(console))
    return app
