"""Saying something on the way: to the conversation, to another place, to another agent; changing what was said."""

from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import AddReaction, EditMessage, Send, SendToAgent
from adapters.errors import ToolError
from models.base import AnyRow, new_id
from models.cards import Card, put_card
from models.consent import PendingQuestion
from models.groups import find_agent_group
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import find_session, may_reach
from models.upsert import insert_ignoring
from workers.actions.caller import Caller, Performed
from workers.actions.reminders import remind
from workers.agents import AGENT
from workers.consent.buttons import offer_of

# A chain of agents that goes on for so long has lost sight of the person who began it.
MAX_HOPS: Final = 6


async def send(conn: AsyncConnection, caller: Caller, action: Send, step_id: str, number: int) -> Performed:
    place: dict[str, Any] = {}
    if action.to is not None:
        to = action.to
        if to.channel_type == AGENT:
            raise ToolError("to write to another agent, use send_to_agent")
        if not await may_reach(conn, caller.session_id, to.channel_type, to.platform_id):
            raise ToolError(
                f"you may not send to {to.channel_type} {to.platform_id!r}: you are not wired there. Nothing was sent; "
                "whoever runs you can allow it (longshore wire)"
            )
        place = {"channel_type": to.channel_type, "platform_id": to.platform_id, "thread_id": to.thread_id}
    content = action.content | ({"outbox": action.outbox} if action.outbox else {})
    card_id = new_id()
    offer = offer_of(content.get("card"), card_id)
    if offer.buttons:
        content["buttons"] = list(offer.buttons)
    row = _row(caller, step_id, number, content) | place | {"kind": action.kind}
    if action.is_reminder:
        return await remind(conn, caller, action, row)
    if await insert_ignoring(conn, MessageOut, **row) and offer.options:
        await put_card(conn, card_id, "card", row, offer.options)
    return Performed(f"sent as message {number}", [step_id])


async def edit(conn: AsyncConnection, caller: Caller, action: EditMessage, step_id: str, number: int) -> Performed:
    said = await _own(conn, caller, action.number)
    if said is None:
        raise ToolError(f"there is no message {action.number} of yours here to edit")
    if await _waits(conn, said):
        raise ToolError(f"message {action.number} cannot be edited: it is a question that waits for its answer")
    await _check_place(conn, caller, said)
    content = {"operation": "edit", "message": action.number, "text": action.text}
    await insert_ignoring(conn, MessageOut, **_row(caller, step_id, number, content) | _place_of(said))
    return Performed(f"message {action.number} will be changed", [step_id])


async def react(conn: AsyncConnection, caller: Caller, action: AddReaction, step_id: str, number: int) -> Performed:
    message = await _heard(conn, caller, action.number) or await _own(conn, caller, action.number)
    if message is None:
        raise ToolError(f"there is no message {action.number} here")
    await _check_place(conn, caller, message)
    content = {"operation": "reaction", "message": action.number, "emoji": action.emoji}
    content["text"] = f"{action.emoji} (to message {action.number})"
    await insert_ignoring(conn, MessageOut, **_row(caller, step_id, number, content) | _place_of(message))
    return Performed(f"reacted to message {action.number}", [step_id])


async def send_to_agent(
    conn: AsyncConnection, caller: Caller, action: SendToAgent, step_id: str, number: int
) -> Performed:
    allowed = caller.policy.agents
    target = await find_agent_group(conn, action.agent_group)
    if target is None or not ("*" in allowed or target.folder in allowed or target.id in allowed):
        raise ToolError(f"you may not write to {action.agent_group!r}; you may write to: {', '.join(allowed)}")
    if target.id == caller.turn.agent_group_id:
        raise ToolError("that is yourself")
    if action.session_id is not None:
        session = await find_session(conn, action.session_id)
        if session is None or session.agent_group_id != target.id:
            raise ToolError(f"{target.folder} has no session {action.session_id!r}; leave it out to begin one")
    hops = caller.hops + 1
    if hops > MAX_HOPS:
        raise ToolError(
            f"this request has gone through {MAX_HOPS} agents; it is not passed on again. Answer with what you have"
        )
    content = {"text": action.text, "agent": {"from": caller.turn.folder, "hops": hops}}
    place = {"channel_type": AGENT, "platform_id": target.id, "thread_id": action.session_id}
    await insert_ignoring(conn, MessageOut, **_row(caller, step_id, number, content) | place)
    return Performed(f"sent to {target.folder} as message {number}; an answer comes as a message of its own", [step_id])


def _row(caller: Caller, step_id: str, number: int, content: dict[str, Any]) -> dict[str, Any]:
    """The step's one message. It has the step's id, by which the outbox folder of its files is named as well."""
    turn_id = caller.turn.id
    row = caller.reply_to.outbound(content=content, turn_id=turn_id, key=f"{turn_id}:{step_id}:1")
    return row | {"id": step_id, "seq": number}


async def _heard(conn: AsyncConnection, caller: Caller, number: int) -> AnyRow | None:
    query = select(MessageIn.__table__).where(MessageIn.session_id == caller.session_id, MessageIn.seq == number)
    return (await conn.execute(query)).one_or_none()


async def _own(conn: AsyncConnection, caller: Caller, number: int) -> AnyRow | None:
    """A message the agent itself sent. What the fleet says in its session is not the agent's to touch, least of all
    what asks people for an approval."""
    query = select(MessageOut.__table__).where(
        MessageOut.session_id == caller.session_id,
        MessageOut.seq == number,
        MessageOut.kind != "notice",
        MessageOut.turn_id.is_not(None),
        ~select(Card.id).where(Card.message_out_id == MessageOut.id, Card.kind == "approval").exists(),
    )
    return (await conn.execute(query)).one_or_none()


async def _waits(conn: AsyncConnection, row: AnyRow) -> bool:
    """Whether it asks something that nobody has answered yet."""
    waiting = (PendingQuestion.message_out_id == row.id, PendingQuestion.status == "pending")
    return bool((await conn.execute(select(select(PendingQuestion.id).where(*waiting).exists()))).scalar_one())


async def _check_place(conn: AsyncConnection, caller: Caller, row: AnyRow) -> None:
    """It may have been sent there when that was still allowed."""
    place = (row.channel_type, row.platform_id)
    if row.channel_type != AGENT and not await may_reach(conn, caller.session_id, *place):
        raise ToolError(f"you may not write to {row.channel_type} {row.platform_id!r} any more. Nothing was changed")


def _place_of(row: AnyRow) -> dict[str, Any]:
    return {"channel_type": row.channel_type, "platform_id": row.platform_id, "thread_id": row.thread_id}
