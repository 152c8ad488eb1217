"""The gateway over real HTTP on a loopback port, on the test's own loop and fleet."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import Channel, InboundRequest
from adapters.channels.fake import FakeChannel
from adapters.channels.local import LocalChannel
from adapters.channels.signing import HEADER, sign
from adapters.channels.web import WebChannel
from adapters.channels.webhook import ENDPOINT_HEADER, Endpoint, WebhookChannel
from adapters.local_server import listen_on
from adapters.registry import Drivers, Registry
from gateway.http.app import Gateway as Application
from gateway.http.serving import make_server
from models.base import new_id
from models.groups import MessagingGroup, Wiring
from tests.support.fleet import Fleet
from workers.events import redis_client
from workers.house import House

SECRET = "a secret of the CRM"


class Platform(FakeChannel):
    """The fake platform under a name that the gateway has a route for."""

    channel_type = "platform"


def registry_with(home: Path, *, webhook_url: str | None = None, agent: str | None = None) -> Registry:
    endpoint = Endpoint.model_validate({"url": webhook_url, "secret": SECRET, "agent": agent})
    channels: dict[str, Channel] = {
        "fake": FakeChannel(),
        "local": LocalChannel(home),
        "platform": Platform(receives=True),
        "web": WebChannel(home),
        "webhook": WebhookChannel({"crm": endpoint}),
    }
    return Registry(channels=Drivers("channel", channels))


class Gateway:
    """`post` and the rest speak HTTP to it."""

    def __init__(self, client: httpx2.AsyncClient, fleet: Fleet, port: int) -> None:
        self.client = client
        self.fleet = fleet
        self.port = port

    async def platform(self, **message: Any) -> httpx2.Response:
        given = {"id": "m1", "chat": "plaza", "text": "hello", "sender": "ada"} | message
        platform = self.fleet.runtime.registry.channels.get("platform")
        assert isinstance(platform, Platform)
        return await self.send("platform", platform.request(**given))

    async def webhook(self, prefer: str | None = None, **message: Any) -> httpx2.Response:
        body = json.dumps({"id": "m1", "text": "hello"} | message).encode()
        headers = {ENDPOINT_HEADER: "crm", HEADER: sign(SECRET, body)} | ({"Prefer": prefer} if prefer else {})
        return await self.send("webhook", InboundRequest(headers, body))

    async def send(self, channel: str, request: InboundRequest) -> httpx2.Response:
        headers = {name.encode(): value.encode() for name, value in request.headers.items()}
        return await self.client.post(f"/channels/{channel}", content=request.body, headers=headers)


@asynccontextmanager
async def gateway_to(fleet: Fleet, house: House | None = None, port: int = 0) -> AsyncIterator[Gateway]:
    redis = redis_client(fleet.runtime.settings.redis_url)
    app = Application(house or fleet.runtime, redis)
    listener = listen_on("127.0.0.1", port)
    port = listener.getsockname()[1]
    server = make_server(app)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        address = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=address, timeout=20, trust_env=False, verify=False) as client:
            yield Gateway(client, fleet, port)
    finally:
        app.close()
        server.should_exit = True
        await serving
        listener.close()
        await redis.aclose()


@asynccontextmanager
async def answering(fleet: Fleet) -> AsyncIterator[None]:
    """Workers that answer while somebody waits."""

    async def answer() -> None:
        while True:
            await fleet.settle_down()
            await asyncio.sleep(0.01)

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wire(fleet: Fleet, agent_group_id: str, channel: str, chat: str, policy: str = "public") -> None:
    """Let an agent listen in a place, to everybody."""
    place = new_id()

    async def work(conn: AsyncConnection) -> None:
        values = {"id": place, "channel_type": channel, "platform_id": chat, "unknown_sender_policy": policy}
        await conn.execute(insert(MessagingGroup).values(**values))
        await conn.execute(insert(Wiring).values(messaging_group_id=place, agent_group_id=agent_group_id))

    await fleet.db.transact(work)
