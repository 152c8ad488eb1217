"""What a chat shows that is not an event: the messages before, what others have said, what was sent on the way."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.consent import Approval
from models.groups import MessagingGroup
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import Session

CHANNEL = "local"


@dataclass(frozen=True)
class Said:
    """`sender` is None for the agent itself."""

    seq: int
    sender: str | None
    text: str


async def find_conversation(conn: AsyncConnection, agent_group_id: str, place: str) -> AnyRow | None:
    """The session of a place on this machine, with the numbers of its last event and message."""
    query = (
        select(Session.id, Session.event_seq, Session.message_seq, Session.activity, Session.lease_expires_at)
        .join(MessagingGroup, MessagingGroup.id == Session.messaging_group_id)
        .where(
            Session.agent_group_id == agent_group_id,
            Session.status == "active",
            Session.thread_id == "",
            MessagingGroup.channel_type == CHANNEL,
            MessagingGroup.platform_id == place,
        )
    )
    return (await conn.execute(query)).one_or_none()


async def recent_messages(conn: AsyncConnection, session_id: str, limit: int) -> list[Said]:
    """The last few of both directions, the oldest first."""
    came = (
        select(MessageIn.seq, MessageIn.content, MessageIn.kind)
        .where(MessageIn.session_id == session_id, MessageIn.kind != "system")
        .order_by(MessageIn.seq.desc())
        .limit(limit)
    )
    went = (
        select(MessageOut.seq, MessageOut.content)
        .where(
            MessageOut.session_id == session_id,
            MessageOut.channel_type == CHANNEL,
            # A reminder is not said before its date.
            or_(MessageOut.scheduled_for.is_(None), MessageOut.status.not_in(["pending", "cancelled"])),
        )
        .order_by(MessageOut.seq.desc())
        .limit(limit)
    )
    found = [_heard(row) for row in (await conn.execute(came)).all()]
    found += [Said(row.seq, None, str(row.content.get("text") or "")) for row in (await conn.execute(went)).all()]
    return sorted((said for said in found if said.text), key=lambda said: said.seq)[-limit:]


async def messages_numbered(conn: AsyncConnection, session_id: str, numbers: Collection[int]) -> list[Said]:
    query = (
        select(MessageIn.seq, MessageIn.content, MessageIn.kind)
        .where(MessageIn.session_id == session_id, MessageIn.seq.in_(numbers), MessageIn.kind != "system")
        .order_by(MessageIn.seq)
    )
    return [_heard(row) for row in (await conn.execute(query)).all()]


async def sent_on_the_way(conn: AsyncConnection, turn_id: str, after: int) -> list[Said]:
    """What a turn has sent before its answer, beyond a number. No event carries these texts."""
    query = (
        select(MessageOut.seq, MessageOut.content)
        .where(MessageOut.turn_id == turn_id, MessageOut.kind.in_(["chat", "chat-sdk"]), MessageOut.seq > after)
        .order_by(MessageOut.seq)
    )
    return [Said(row.seq, None, _words(row.content)) for row in (await conn.execute(query)).all()]


def _words(content: dict[str, Any]) -> str:
    names = [f"[file: {file['name']}]" for file in content.get("files") or ()]
    return " ".join([*filter(None, [str(content.get("text") or "")]), *names])


async def open_approvals(conn: AsyncConnection, session_id: str) -> list[AnyRow]:
    """What the agent waits for a decision about, the oldest first."""
    query = (
        select(Approval.id, Approval.category, Approval.summary, Approval.risk, Approval.created_at)
        .where(Approval.session_id == session_id, Approval.status == "pending", Approval.expires_at > now())
        .order_by(Approval.created_at, Approval.id)
    )
    return list((await conn.execute(query)).all())


async def message_state(conn: AsyncConnection, message_id: str) -> AnyRow | None:
    query = select(MessageIn.status, MessageIn.turn_id).where(MessageIn.id == message_id)
    return (await conn.execute(query)).one_or_none()


def _heard(row: AnyRow) -> Said:
    text = row.content.get("text") or row.content.get("prompt") or row.kind
    return Said(row.seq, str(row.content.get("sender") or "someone"), str(text))
