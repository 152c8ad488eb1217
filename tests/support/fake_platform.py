"""People on the `fake` platform: what they write comes in as from outside, and what they may is in the database."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import InboundMessage
from adapters.channels.fake import FakeChannel
from models.base import new_id
from models.groups import Wiring, ensure_messaging_group, set_place
from models.people import grant, remember_dm, remember_user
from tests.support.fleet import Fleet
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.refusals import RefusedError

CHANNEL = "fake"
ROOM = "room"


async def post_message(
    fleet: Fleet, text: str, sender: str | None = "eve", chat: str = ROOM, **fields: Any
) -> Accepted:
    """Somebody says something. `direct`, `trusted`: as for `accept`; the rest are fields of the message. Rings."""
    how = {"is_direct": fields.pop("direct", chat.startswith("dm-")), "trusted": fields.pop("trusted", False)}
    given = {"channel_type": CHANNEL, "platform_id": chat, "sender_id": sender, "message_id": new_id()} | fields
    given |= {"content": {"text": text}} if "content" not in fields else {}
    runtime = fleet.runtime
    try:
        accepted = await accept(
            fleet.db, runtime.registry, runtime.settings, parse_incoming(given), from_outside=True, **how
        )
    except RefusedError as error:
        error.ring(fleet.bells)
        raise
    accepted.ring(fleet.bells)
    return accepted


async def wire(fleet: Fleet, group_id: str, chat: str = ROOM, policy: str | None = None, **values: Any) -> str:
    """Returns the place."""

    async def work(conn: AsyncConnection) -> str:
        place = await ensure_messaging_group(conn, CHANNEL, chat)
        if policy is not None:
            await set_place(conn, place, unknown_sender_policy=policy)
        return place

    place = await fleet.db.transact(work)
    await fleet.insert(Wiring, {"messaging_group_id": place, "agent_group_id": group_id} | values)
    return place


async def grant_role(fleet: Fleet, sender: str, role: str, group_id: str | None = None, channel: str = CHANNEL) -> None:
    """Make somebody an owner, an admin or a member."""

    async def work(conn: AsyncConnection) -> None:
        await remember_user(conn, f"{channel}:{sender}", channel, sender)
        await grant(conn, f"{channel}:{sender}", role, group_id, "test")

    await fleet.db.transact(work)


async def add_direct_chat(fleet: Fleet, sender: str) -> None:
    """Their direct chat is known."""

    async def work(conn: AsyncConnection) -> None:
        place = await ensure_messaging_group(conn, CHANNEL, f"dm-{sender}")
        await remember_dm(conn, f"{CHANNEL}:{sender}", CHANNEL, place)

    await fleet.db.transact(work)


async def fetch_texts(fleet: Fleet, chat: str = ROOM) -> list[str]:
    """All that was written to a place, in order."""
    return [row.content["text"] for row in sorted(await fleet.outbox(), key=_by_time) if row.platform_id == chat]


def _by_time(row: Any) -> Any:
    return row.created_at, row.id


class RegisteringChannel(FakeChannel):
    """Gives direct chats, and places where it is mentioned, to an agent."""

    agent = "demo"

    def registers(self, message: InboundMessage, *, known: bool) -> str | None:
        return self.agent if known and (message.is_direct or message.is_mention) else None
