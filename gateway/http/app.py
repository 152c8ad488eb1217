"""The HTTP gateway: platforms' webhooks, the `web` channel, and a small API for approvals and questions.

It accepts and shows, and runs nothing: an answer comes from a worker by way of the rows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from sqlalchemy import text

from gateway.http.api import api_routes
from gateway.http.channels import channel_routes
from gateway.http.limits import BodyLimit, explain_errors
from gateway.http.news import Stirrings
from gateway.http.web import web_routes
from models.errors import StoreError
from workers.house import House


def make_app(house: House, client: redis.asyncio.Redis) -> FastAPI:
    """`client`: where events are heard, so that who waits for an answer has it at once. Whatever waits is told to make
    an end by `app.state.stirrings.close()`, or when the app stops."""
    stirrings = Stirrings(client)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        stirrings.close()

    # What there is is documented elsewhere; and a platform is not sent to another address.
    closed: dict[str, Any] = {"openapi_url": None, "docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(title="Longshore", lifespan=lifespan, **closed)
    app.state.stirrings = stirrings
    app.add_middleware(BodyLimit)
    explain_errors(app)
    app.include_router(channel_routes(house, stirrings))
    app.include_router(web_routes(house, stirrings))
    app.include_router(api_routes(house))

    @app.get("/healthz")
    async def health() -> JSONResponse:
        """Whether messages would be taken."""
        try:
            await house.db.read(lambda conn: conn.execute(text("SELECT 1")), patience=1)
        except StoreError:
            raise HTTPException(503, "the database does not answer") from None
        return JSONResponse({"ok": True})

    return app
