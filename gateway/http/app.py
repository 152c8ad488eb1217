"""The HTTP gateway: platforms' webhooks, the `web` channel, the API and the console.

It accepts and shows, and runs nothing: an answer comes from a worker by way of the rows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import redis.asyncio
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from redis.exceptions import RedisError
from sqlalchemy import text

from gateway.console.app import open_console
from gateway.console.console import Console
from gateway.console.visitors import Visitors
from gateway.http.api import api_routes
from gateway.http.api.streams import Streams
from gateway.http.callers import Doorkeeper
from gateway.http.channels import channel_routes
from gateway.http.document import describe, operation_id
from gateway.http.limits import BodyLimit
from gateway.http.news import News
from gateway.http.origins import Origins, listed_origins, our_names
from gateway.http.problems import documented, explain_errors
from gateway.http.rates import Credential, RateLimit, Rates
from gateway.http.web import web_routes
from models.errors import StoreError
from models.sign_ins import find_visitor
from models.tokens import find_bearer
from workers.house import House
from workers.provider_states import Lookout

REDIS_SECONDS: Final = 1.0


class Health(BaseModel):
    ok: bool
    redis: bool


def make_app(house: House, client: redis.asyncio.Redis) -> FastAPI:
    """`client`: where events are heard, so that who waits for an answer has it at once. Whatever waits is told to make
    an end by `app.state.news.close()`, or when the app stops."""
    news = News(client)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        news.close()

    # Pages that load scripts from elsewhere are not ours to show; and a platform is not sent to another address.
    closed: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(
        title="Longshore",
        version=version("longshore"),
        lifespan=lifespan,
        generate_unique_id_function=operation_id,
        **closed,
    )
    door, streams, lookout = Doorkeeper(house), Streams(), Lookout(house, client)
    app.state.news = news
    settings = house.settings
    app.add_middleware(BodyLimit)
    app.add_middleware(
        RateLimit,
        rates=Rates(client),
        is_good=partial(_is_good, house),
        token_rate=settings.token_rate,
        address_rate=settings.address_rate,
    )
    app.add_middleware(Origins, hosts=our_names(settings), origins=listed_origins(settings))  # outermost: the last
    explain_errors(app)
    app.include_router(channel_routes(house, news), include_in_schema=False)
    app.include_router(web_routes(house, news, door, streams), include_in_schema=False)
    app.include_router(api_routes(house, door, news, streams, lookout))
    open_console(app, Console(house, news, streams, client, lookout, Visitors(house)))

    describe(app)

    @app.get("/healthz", tags=["health"], responses=documented(503))
    async def health() -> Health:
        """Whether messages would be taken. 503: the database does not answer. Without Redis they are, and are answered
        later."""
        try:
            await house.db.read(lambda conn: conn.execute(text("SELECT 1")), patience=1)
        except StoreError:
            raise HTTPException(503, "the database does not answer") from None
        return Health(ok=True, redis=await _answers(client))

    return app


async def _is_good(house: House, given: Credential) -> bool:
    if given.kind == "token":
        return await house.db.read(lambda conn: find_bearer(conn, given.secret), patience=1) is not None
    return await house.db.read(lambda conn: find_visitor(conn, given.secret), patience=1) is not None


async def _answers(client: redis.asyncio.Redis) -> bool:
    try:
        async with asyncio.timeout(REDIS_SECONDS):
            return bool(await client.ping())
    except (RedisError, OSError, TimeoutError):
        return False
