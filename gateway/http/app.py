"""The HTTP gateway: platforms' webhooks, the `web` channel, the API and the console.

It accepts and shows, and runs nothing: an answer comes from a worker by way of the rows."""

import asyncio
from functools import partial
from importlib.metadata import version
from typing import Final

import redis.asyncio
from fastapi import APIRouter, FastAPI, HTTPException
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from redis.exceptions import RedisError
from sqlalchemy import text
from starlette.types import Receive, Scope, Send

from gateway.console.app import make_console
from gateway.http import channels, web
from gateway.http.api import routes as api_routes
from gateway.http.api.handing_in import Known
from gateway.http.api.streams import Streams
from gateway.http.callers import Doorkeeper
from gateway.http.dependencies import HouseDep, RedisDep
from gateway.http.document import describe, operation_id
from gateway.http.limits import BodyLimit
from gateway.http.news import News
from gateway.http.origins import Origins, listed_origins, our_names
from gateway.http.problems import documented, explain_errors
from gateway.http.rates import Credential, RateLimit, Rates
from gateway.http.trust import Trust
from gateway.http.waiting import Waits
from gateway.queue_states import Lists
from models.errors import StoreError
from models.sign_ins import find_visitor
from models.tokens import find_bearer
from workers.house import House
from workers.provider_states import Lookout
from workers.queues import queue_names

REDIS_SECONDS: Final = 1.0


class Health(BaseModel):
    ok: bool
    redis: bool


def _make_routes() -> FastAPI:
    # Pages that load scripts from elsewhere are not ours to show; and a platform is not sent to another address.
    app = FastAPI(
        title="Longshore",
        version=version("longshore"),
        generate_unique_id_function=operation_id,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(BodyLimit)
    explain_errors(app)
    app.include_router(channels.router, include_in_schema=False)
    app.include_router(web.router, include_in_schema=False)
    app.include_router(api_routes.router)
    app.include_router(router)
    app.mount("/console", make_console())
    describe(app)
    return app


router = APIRouter()


@router.get("/", include_in_schema=False)
@router.get("/console", include_in_schema=False)
async def lead_in() -> RedirectResponse:
    """Who comes to the door without saying where to is sent to the console."""
    return RedirectResponse("/console/", 303)


@router.get("/healthz", tags=["health"], responses=documented(503))
async def health(house: HouseDep, client: RedisDep) -> Health:
    """Whether messages would be taken. 503: the database does not answer. Without Redis they are, and are answered
    later."""
    try:
        await house.db.read(lambda conn: conn.execute(text("SELECT 1")), patience=1)
    except StoreError:
        raise HTTPException(503, "the database does not answer") from None
    return Health(ok=True, redis=await _answers(client))


ROUTES: Final = _make_routes()


class Gateway:
    """The routes, with what they work with. `client`: where events are heard, so that who waits for an answer has it
    at once. Whatever waits is told to make an end by `close`, or when the server stops."""

    def __init__(self, house: House, client: redis.asyncio.Redis) -> None:
        settings = house.settings
        self._news = News(client)
        self._state = {
            "house": house,
            "client": client,
            "news": self._news,
            "door": Doorkeeper(house),
            "streams": Streams(),
            "lookout": Lookout(house, client),
            "trust": Trust[Known](),
            "waits": Waits(),
            "lists": Lists(client, queue_names(house.registry)),
        }
        limited = RateLimit(
            ROUTES,
            Rates(client),
            partial(_is_good, house),
            token_rate=settings.token_rate,
            address_rate=settings.address_rate,
        )
        self._app = Origins(limited, hosts=our_names(settings), origins=listed_origins(settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {**scope.get("state", {}), **self._state}
        await self._app(scope, receive, send)
        if scope["type"] == "lifespan":
            self.close()

    def close(self) -> None:
        self._news.close()


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
