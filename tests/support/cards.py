"""People who decide, a risky tool for them to decide about, and presses of the buttons they are shown."""

import asyncio
from typing import Any

from pydantic import BaseModel

from adapters.channel_port import ButtonPress, Channel, OutboundMessage, Receipt
from adapters.channels.fake import FakeChannel
from adapters.errors import DeliveryError
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from models import Approval, Card, User, UserDm, UserRole
from models.base import new_id
from models.groups import ensure_messaging_group
from tests.support.fleet import Fleet
from workers.consent import cards
from workers.house import Done

APPROVE, DENY = 1, 2
SCRIPT = "- play: [{tool: launch, with: {what: prod}}, {answer: 'so: {result}'}]"


class Target(BaseModel):
    what: Any = "prod"


class Launcher:
    """A risky tool, and what it has done."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.dies = 0

    def tool(self, **flags: Any) -> Tool[Target]:
        return Tool("launch", "Launches.", Target, self._launch, **({"risky": True} | flags))

    def registry(self, *channels: FakeChannel) -> Registry:
        made: dict[str, Channel] = {channel.channel_type: channel for channel in channels}
        tools = Drivers[Tool[Any]]("tool", {"launch": self.tool()})
        return Registry(tools=tools, channels=Drivers[Channel]("channel", made) if made else None)

    async def _launch(self, arguments: Target, context: ToolContext) -> str:
        self.done.append(arguments.what)
        if self.dies:
            self.dies -= 1
            raise asyncio.CancelledError  # as if the worker went away in the middle
        return f"launched {arguments.what}"


class Platform(FakeChannel):
    """A fake one of any name, whose direct chats may be hard to get."""

    def __init__(self, name: str = "fake") -> None:
        super().__init__()
        self.channel_type = name
        self.asked: list[str] = []  # for whose direct chat
        self.closed_to: set[str] = set()  # who cannot be written to
        self.hangs_for: set[str] = set()
        self.refuses: set[str] = set()  # places where nothing arrives

    async def deliver(self, message: OutboundMessage) -> Receipt:
        if message.destination.platform_id in self.refuses:
            raise DeliveryError("forbidden: bot was blocked by the user", retryable=False)
        return await super().deliver(message)

    async def open_dm(self, user_id: str) -> str | None:
        self.asked.append(user_id)
        if user_id in self.hangs_for:
            await asyncio.Event().wait()
        return None if user_id in self.closed_to else await super().open_dm(user_id)

    def text_in(self, place: str) -> str:
        """What is to be read there, with what was changed later."""
        return "\n\n".join(str(m.content["text"]) for m in self.shown if m.destination.platform_id == place)


async def appoint(
    fleet: Fleet, user_id: str, role: str | None, group: str | None = None, *, chat: str | None = None
) -> None:
    """Somebody with a role (None: just a user), whose direct chat is known if it is given."""
    kind, _, name = user_id.partition(":")
    await fleet.insert(User, {"id": user_id, "kind": kind, "display_name": name.capitalize()})
    if role is not None:
        await fleet.insert(UserRole, {"id": new_id(), "user_id": user_id, "role": role, "agent_group_id": group})
    if chat is not None:
        place = await fleet.db.transact(lambda conn: ensure_messaging_group(conn, kind, chat))
        await fleet.insert(UserDm, {"user_id": user_id, "channel_type": kind, "messaging_group_id": place})


async def ask(fleet: Fleet, place: str = "room", channel: str = "fake") -> Any:
    """Somebody says something that makes the agent want what somebody must approve."""
    known = {row.id for row in await fleet.rows(Approval)}
    await fleet.send("go", channel_type=channel, platform_id=place, sender_id="sam")
    assert await fleet.answer_wakes() == ["parked"]
    [approval] = [row for row in await fleet.rows(Approval) if row.id not in known]
    return approval


async def cards_of(fleet: Fleet, subject_id: str) -> list[Any]:
    return [row for row in await fleet.rows(Card, Card.platform_id) if row.subject_id == subject_id]


async def press(fleet: Fleet, card: Any, sender: str, number: int = APPROVE, **changes: str) -> Done:
    """Pressed where the card lies, unless `changes` say otherwise."""
    channel = changes.pop("channel_type", card.channel_type)
    given = {"token": f"{card.id}:{number}", "platform_id": card.platform_id, "sender_id": sender} | changes
    return await cards.press(fleet.db, channel, ButtonPress(**given))


def ring(fleet: Fleet, pressed: Done) -> None:
    for session_id, provider in pressed.wakes:
        fleet.bells.wake(session_id, provider or "scripted")
    fleet.bells.deliveries += pressed.deliveries
