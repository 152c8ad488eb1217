"""An approval's card that could not be delivered: others are asked, else the place the request came from, else the
owners are told. Each person is asked once for one approval, so this comes to an end."""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.approvers import forget_dm
from models.base import AnyRow
from models.cards import Card
from models.consent import Approval, find_approval, lock_session_of
from models.outbox import MessageOut
from models.people import owner_addresses
from models.quoting import quoted
from models.sessions import find_session
from workers.consent.approvers import Approver, is_public, resolve_approvers
from workers.consent.requests import UNASKED, Letter, Place, code_of, place_key, post
from workers.front_desk import key_of
from workers.house import House, ring_for

_HERE: Final = "I wait for an approval before I go on. Nobody who decides could be asked directly, so I ask here."
_LOST: Final = ("failed", "unknown", "cancelled")


@dataclass(frozen=True)
class _Standing:
    """How an approval stands after one of its cards was lost."""

    approval: AnyRow
    agent_group_id: str
    asked: frozenset[str]  # who has, or should have had, a card
    is_with_somebody: bool  # another card is there, or on its way
    is_asked_there: bool  # the place it came from has, or should have had, a card
    said_there: AnyRow | None  # what that place was told before, if that was no card


async def card_failed(house: House, row: AnyRow) -> None:
    """Call this when the outbound `row` was given up and that is committed; rows that are no approval's card are none
    of its business."""
    card = await house.db.read(lambda conn: _card_of(conn, row.id))
    if card is None:
        return

    async def look(conn: AsyncConnection) -> _Standing | None:
        if card.user_id is not None and await _status_of(conn, row.id) == "failed":
            await forget_dm(conn, card.user_id, card.channel_type, card.platform_id)
        return await _standing_of(conn, card.subject_id)

    standing = await house.db.transact(look)
    if standing is None or standing.is_with_somebody:
        return
    there = standing.said_there
    prefer = card.channel_type if there is None else there.channel_type
    found = await resolve_approvers(house.db, house.registry, standing.agent_group_id, prefer, standing.asked)
    public = there is not None and is_public(house.registry, there.channel_type)

    async def work(conn: AsyncConnection) -> list[str]:
        now_stands = await _standing_of(conn, card.subject_id)  # asking platforms took a while
        if now_stands is None or now_stands.is_with_somebody:
            return []
        left = [one for one in found if one.user_id not in now_stands.asked]
        letters = _cards(now_stands, left, row.content) or await _last_words(conn, now_stands, public, row.content)
        return await post(conn, now_stands.approval, letters)

    ring_for(house, [], await house.db.transact(work))


async def _card_of(conn: AsyncConnection, message_out_id: str) -> AnyRow | None:
    query = select(Card.__table__).where(Card.message_out_id == message_out_id, Card.kind == "approval")
    return (await conn.execute(query)).one_or_none()


async def _status_of(conn: AsyncConnection, message_out_id: str) -> str:
    return str((await conn.execute(select(MessageOut.status).where(MessageOut.id == message_out_id))).scalar_one())


async def _standing_of(conn: AsyncConnection, approval_id: str) -> _Standing | None:
    """None: nobody waits for it any more. Locks the session that asks."""
    await lock_session_of(conn, Approval, approval_id)
    approval = await find_approval(conn, approval_id)
    if approval is None or approval.status != "pending" or approval.expires_at <= approval.at:
        return None
    session = await find_session(conn, approval.session_id)
    assert session is not None
    query = (
        select(Card.user_id, MessageOut.status)
        .join(MessageOut, MessageOut.id == Card.message_out_id)
        .where(Card.subject_id == approval_id, Card.kind == "approval")
    )
    cards = (await conn.execute(query)).all()
    words = select(MessageOut.__table__).where(
        MessageOut.idempotency_key == place_key(approval_id),
        MessageOut.id.not_in(select(Card.message_out_id).where(Card.subject_id == approval_id)),
    )
    return _Standing(
        approval,
        session.agent_group_id,
        frozenset(card.user_id for card in cards if card.user_id is not None),
        any(card.status not in _LOST for card in cards),
        any(card.user_id is None for card in cards),
        (await conn.execute(words)).one_or_none(),
    )


def _cards(standing: _Standing, approvers: list[Approver], content: dict[str, Any]) -> list[Letter]:
    """The same card, for somebody else."""
    approval_id, text = standing.approval.id, {"text": content["text"]}
    letters = []
    for one in approvers:
        key = f"{approval_id}:again:{key_of(one.user_id, one.channel_type)}"
        letters.append(Letter(Place(one.channel_type, one.platform_id), key, text, True, one.user_id))
    return letters


async def _last_words(
    conn: AsyncConnection, standing: _Standing, public: bool, content: dict[str, Any]
) -> list[Letter]:
    """There is nobody left to ask. What the place was told (that somebody has been asked) is made true."""
    approval_id, there = standing.approval.id, standing.said_there
    if there is None or standing.is_asked_there:
        return await _to_owners(conn, standing)
    place = Place(there.channel_type, there.platform_id, there.thread_id)
    said = {"operation": "edit", "message": there.seq, "text": UNASKED if public else _HERE}
    correction = Letter(place, f"{approval_id}:unasked", said)
    if public:
        return [correction, *await _to_owners(conn, standing)]
    return [correction, Letter(place, f"{approval_id}:here", {"text": content["text"]}, True)]


async def _to_owners(conn: AsyncConnection, standing: _Standing) -> list[Letter]:
    approval = standing.approval
    text = (
        f"Nobody who decides could be asked for an approval: {quoted(approval.summary)}. "
        f"At a terminal: `longshore approve {code_of(approval.id)}` (or deny)"
    )
    return [
        Letter(Place(channel, chat), f"{approval.id}:unasked:{key_of(channel, chat)}", {"text": text})
        for channel, chat in await owner_addresses(conn)
    ]
