"""People in the console: signed in without the sign-in page, over plain HTTP or in a browser."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from playwright.async_api import Page
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Drivers
from gateway.console.security import COOKIE, CSRF_FIELD, csrf_token
from models.people import grant, remember_user
from models.sign_ins import new_secret, put_link, use_link
from models.tokens import SCOPES, Scope
from tests.support.fleet import Fleet, fleet_settings
from tests.support.open_gateway import Gateway, gateway_to, registry_with

Role = Literal["owner", "admin", "member"]


class ConsoleUser:
    """Somebody whose browser is signed in. `get` and `post` are what it would send from a page of ours."""

    def __init__(self, gateway: Gateway, name: str, secret: str) -> None:
        self.name = name
        self.secret = secret
        self.csrf = csrf_token(secret)
        self.base = f"http://127.0.0.1:{gateway.port}"
        self._client = gateway.client

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self._client.get(f"/console{path}", headers=self._headers | headers)

    async def glance(self, path: str) -> httpx2.Response:
        """The head of an answer, and what it says if it is a page: a stream would have no end."""
        async with self._client.stream("GET", f"/console{path}", headers=self._headers) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                await answer.aread()
                return answer
            return httpx2.Response(answer.status_code, headers=answer.headers, request=answer.request)

    async def post(self, path: str, fields: Mapping[str, Any] | None = None, **headers: str) -> httpx2.Response:
        """With the token of the sign-in, unless `fields` has another."""
        said = {"Origin": self.base, "Sec-Fetch-Site": "same-origin"} | self._headers | headers
        return await self._client.post(
            f"/console{path}", data={CSRF_FIELD: self.csrf} | dict(fields or {}), headers=said
        )

    async def open_page(self, page: Page, path: str = "/") -> None:
        """Show a page of the console in a browser, signed in."""
        host = urlsplit(self.base).hostname or ""
        await page.context.add_cookies(
            [{"name": COOKIE, "value": self.secret, "domain": host, "path": "/console", "httpOnly": True}]
        )
        await page.goto(f"{self.base}/console{path}")

    @property
    def _headers(self) -> dict[str, str]:
        return {"Cookie": f"{COOKIE}={self.secret}", "Accept": "text/html"}


async def sign_in_user(
    gateway: Gateway,
    name: str = "ada",
    role: Role = "owner",
    agent: str | None = None,
    scopes: tuple[Scope, ...] = tuple(SCOPES),
) -> ConsoleUser:
    """`agent`: the id of the agent group that a member, or an admin of one agent, has to do with."""
    secret, user_id = new_secret(), f"web:{name}"

    async def work(conn: AsyncConnection) -> None:
        await remember_user(conn, user_id, "web", name)
        if role != "member" or agent is not None:
            await grant(conn, user_id, role, agent, None)
        link = new_secret()
        await put_link(conn, link, user_id, scopes)
        assert await use_link(conn, link, secret)

    await gateway.fleet.db.transact(work)
    return ConsoleUser(gateway, name, secret)


@asynccontextmanager
async def console_gateway(database_url: str, redis_url: str, folder: Path, **changes: Any) -> AsyncIterator[Gateway]:
    """A gateway with a fleet behind it, for tests outside the folder that has these as fixtures."""
    registry = changes.pop("registry", None) or registry_with(folder)
    # Without the programs, which take a second each to say that they are there.
    known = {name: registry.providers.get(name) for name in ("anthropic", "openai", "scripted")}
    registry.providers = Drivers("provider", known)
    fleet = Fleet(fleet_settings(database_url, redis_url, folder, **changes), registry)
    try:
        async with gateway_to(fleet) as gateway:
            yield gateway
    finally:
        await fleet.close()


def text_of(answer: httpx2.Response) -> str:
    """What a page says, without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))
