"""Messages on their way to a platform, written straight into the outbox of a fleet with one session."""

import asyncio
from dataclasses import replace
from typing import Any

from sqlalchemy import update

from adapters.channel_port import ChannelCapabilities, Destination, OutboundMessage, Receipt
from adapters.channels.fake import FakeChannel
from adapters.errors import DeliveryError
from adapters.registry import Drivers, Registry
from models import MessageIn, MessageOut
from models.base import new_id
from tests.support.fleet import Fleet


class Platform(FakeChannel):
    """The fake one with other capabilities. `deaf`: it cannot be asked what arrived; `fail_at`: raises at those keys,
    each once, after showing what may have arrived."""

    def __init__(self, *, deaf: bool = False, idempotent: bool = True, **capabilities: Any) -> None:
        super().__init__(idempotent=idempotent)
        self.capabilities: ChannelCapabilities = replace(self.capabilities, **capabilities)
        self.deaf = deaf
        self.fail_at: dict[str, DeliveryError] = {}
        self.keys: list[str] = []  # of all tries
        self.asked: list[str] = []
        self.finding: Exception | None = None

    async def deliver(self, message: OutboundMessage) -> Receipt:
        self.keys.append(message.idempotency_key)
        if (failure := self.fail_at.pop(message.idempotency_key, None)) is not None:
            self.failures.insert(0, failure)
        return await super().deliver(message)

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        self.asked.append(idempotency_key)
        if self.finding is not None:
            raise self.finding
        return None if self.deaf else await super().find_receipt(destination, idempotency_key)

    @property
    def texts(self) -> list[str]:
        return [str(message.content["text"]) for message in self.shown]

    def registry(self) -> Registry:
        return Registry(channels=Drivers("channel", made={"fake": self}))


class SlowPlatform(Platform):
    """Takes its time with the first message: `has_it` is set when it got there, and it is shown when `go_on` is."""

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(**capabilities)
        self.has_it, self.go_on = asyncio.Event(), asyncio.Event()

    async def deliver(self, message: OutboundMessage) -> Receipt:
        if not self.has_it.is_set():
            self.has_it.set()
            await self.go_on.wait()
        return await super().deliver(message)


class Outgoing:
    """A session in the chat `chat`, and its outbox."""

    def __init__(self, fleet: Fleet, session_id: str) -> None:
        self.fleet = fleet
        self._session_id = session_id
        self._seq = 100

    @classmethod
    async def open(cls, fleet: Fleet) -> "Outgoing":
        await fleet.add_group(script="hello")
        await fleet.send(channel_type="fake", platform_id="chat", message_id="in-1")
        [session] = await fleet.sessions()
        fleet.bells.wakes.clear()
        await fleet.execute(update(MessageIn).values(status="completed"))  # nobody is to answer it
        return cls(fleet, session.id)

    async def put(self, content: dict[str, Any], **fields: Any) -> str:
        """Its key is its number: 101, 102 …"""
        self._seq += 1
        row: dict[str, Any] = {
            "id": new_id(), "session_id": self._session_id, "seq": self._seq, "kind": "chat", "channel_type": "fake",
            "platform_id": "chat", "idempotency_key": str(self._seq), "content": content,
        }  # fmt: skip
        await self.fleet.insert(MessageOut, row | fields)
        self.fleet.bells.deliver(row["id"])
        return str(row["id"])

    async def send(self, content: dict[str, Any], **fields: Any) -> Any:
        """Put it there, send it, and see what became of it."""
        message_id = await self.put(content, **fields)
        await self.fleet.settle_down()
        return await self.row(message_id)

    async def row(self, message_id: str) -> Any:
        return {row.id: row for row in await self.fleet.outbox()}[message_id]
