"""Strangers: who is turned away, whose messages wait until somebody lets them in, and what that decision does.

A message that waits is a row like any other, only `paused`: nothing of it is lost, and no agent has seen it."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Update, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now, storable_json
from models.cards import Card
from models.consent import ACCESS, Approval, decide_approval, find_approval, lock_session_of
from models.expiry import next_request
from models.inbox import MessageIn, waiting_of
from models.people import grant, lock_user
from models.quoting import quoted
from models.sessions import Session, find_session, living_session, mark_if_due
from workers.consent.approvers import Approver
from workers.consent.requests import Letter, Place, Request, post, put_request, text_of
from workers.front_desk import key_of, say
from workers.house import Done, Wake
from workers.refusals import RefusedError

MAX_WAITING: Final = 20  # messages of one stranger to one agent
MAX_REQUESTS: Final = 50  # strangers who wait for one agent
REQUEST_SECONDS: Final = 7 * 86_400.0
WORDS_LIMIT: Final = 300


@dataclass(frozen=True)
class Stranger:
    """Somebody who is nobody to an agent (`folder` empty: no agent listens there), and where they speak."""

    user_id: str | None  # None: the platform does not say who it is
    channel_type: str
    sender_id: str | None
    name: str | None
    platform_id: str
    thread_id: str | None
    is_direct: bool
    agent_group_id: str = ""
    folder: str = ""


class AskFirstError(Exception):
    """Those who decide about strangers of this agent are to be found first, outside any transaction; then the message
    is to be taken once more."""

    def __init__(self, agent_group_id: str) -> None:
        super().__init__(agent_group_id)
        self.agent_group_id = agent_group_id


async def turn_away(conn: AsyncConnection, stranger: Stranger) -> list[str]:
    """In a direct chat they are told once who they are and what to do; elsewhere nobody wants to read that. Nor is one
    answered of whom nobody vouches that they wrote: others would get it."""
    if not stranger.is_direct or stranger.user_id is None:
        return []
    who = f"Your id here is {stranger.user_id}. "
    what = f"I do not know you, so {stranger.folder or 'nobody'} will not read this. "
    told = f"{what}{who}Ask whoever runs me to add it, or to give you a one-time code, and write that code to me."
    return await _tell(conn, stranger, told, key_of("stranger", stranger.user_id, stranger.folder))


async def stop_at_the_door(conn: AsyncConnection, stranger: Stranger) -> None:
    """Until the commit nobody decides about this stranger, and no other message of theirs is looked at."""
    assert stranger.user_id is not None
    await lock_user(conn, stranger.user_id, stranger.channel_type, stranger.name)


async def stop_while_deciding(conn: AsyncConnection, approval_id: str) -> None:
    """The same for whoever decides, if that is about a stranger."""
    approval = await find_approval(conn, approval_id)
    if approval is not None and approval.category == ACCESS:
        await lock_user(conn, approval.payload["user"], approval.payload["channel"], approval.payload["name"])


async def request_of(conn: AsyncConnection, user_id: str, agent_group_id: str) -> tuple[str, AnyRow | None]:
    """The id of the request to let somebody in that counts now, and the request if it was made. One that nobody decided
    in time, and one that was granted and taken back, are followed by another."""
    request_id = str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([ACCESS, user_id, agent_group_id])))
    while True:
        known = await find_approval(conn, request_id)
        if known is None or known.status == "denied" or (known.status == "pending" and known.expires_at > known.at):
            return request_id, known
        request_id = next_request(request_id)


async def wait_outside(
    conn: AsyncConnection, stranger: Stranger, session_id: str, text: str, approvers: Sequence[Approver] | None
) -> list[str]:
    """Their message has just been stored as `paused`: ask those who decide, unless they are asked already. Returns what
    to ring for. RefusedError: too many wait. AskFirstError: `approvers`, those who can be reached, must be known."""
    assert stranger.user_id is not None
    request_id, known = await request_of(conn, stranger.user_id, stranger.agent_group_id)
    if await _count_waiting(conn, stranger) > MAX_WAITING:
        raise RefusedError(
            f"{MAX_WAITING} messages of {stranger.user_id} wait for a decision: no more are kept", kind="stranger"
        )
    if known is None and await _count_requests(conn, stranger.agent_group_id) >= MAX_REQUESTS:
        raise RefusedError(
            f"{MAX_REQUESTS} strangers wait to be let in by {stranger.folder}: about no more is asked", kind="stranger"
        )
    if known is not None and await _is_shown(conn, request_id):
        return []
    if approvers is None:
        raise AskFirstError(stranger.agent_group_id)
    # Without anybody it is only listed; the next message asks again.
    if known is None:
        request = _request(request_id, stranger, session_id, text)
        cards = await put_request(conn, request, approvers, REQUEST_SECONDS)
    else:
        cards = await _ask_again(conn, known, stranger, approvers)
    asked = f"Whoever runs {stranger.folder} is asked to let you in; what you write waits."
    alone = "Nobody who could let you in can be reached now. What you write waits; write again later."
    told = f"I do not know you yet. {asked if approvers else alone}"
    return [*cards, *await _tell(conn, stranger, told, key_of("waits", request_id, "asked" if approvers else "alone"))]


def _request(request_id: str, stranger: Stranger, session_id: str, text: str) -> Request:
    assert stranger.user_id is not None
    payload = {
        "user": stranger.user_id,
        "channel": stranger.channel_type,
        "sender": stranger.sender_id,
        "name": stranger.name,
        "agent": stranger.folder,
        "agent_group_id": stranger.agent_group_id,
        "place": f"{stranger.channel_type} {stranger.platform_id}",
        "first_words": text[:WORDS_LIMIT],
    }
    # In one line: a stranger's name must not look like something else we say.
    called = f" ({' '.join(stranger.name.split())[:100]})" if stranger.name else ""
    return Request(
        approval_id=request_id,
        session_id=session_id,
        category=ACCESS,
        summary=f"{stranger.user_id}{called} wants to talk to {stranger.folder}",
        risk="medium",
        # As it is stored: what the database cannot hold must not make it another payload.
        payload=json.loads(storable_json(payload)),
        agent=stranger.folder,
        asked_by=(stranger.user_id,),
    )


async def _ask_again(
    conn: AsyncConnection, known: AnyRow, stranger: Stranger, approvers: Sequence[Approver]
) -> list[str]:
    """About a request that could be put to nobody when it was made."""
    request = Request(
        approval_id=known.id,
        session_id=known.session_id,
        category=ACCESS,
        summary=known.summary,
        risk=known.risk,
        payload=known.payload,
        agent=stranger.folder,
        asked_by=(stranger.user_id,),
    )
    content = {"text": await text_of(conn, request, known.expires_at)}
    letters = [
        Letter(Place(one.channel_type, one.platform_id), f"{known.id}:late:{number}", content, True, one.user_id)
        for number, one in enumerate(approvers)
    ]
    return await post(conn, known, letters)


async def decide_access(conn: AsyncConnection, approval_id: str, approve: bool, decided_by: str) -> Done:
    """Let a stranger in (all their waiting messages go on, in order), or turn them away (they are discarded). Once;
    RefusedError says why it cannot be decided. Whether `decided_by` may is for its caller to ask."""
    decided = await decide_approval(conn, approval_id, "approved" if approve else "denied", decided_by)
    if decided is None:
        raise RefusedError("it is already decided, or expired")
    asked, summary = decided.row.payload, decided.row.summary
    which = waiting_of(asked["channel"], asked["sender"], asked["agent_group_id"])
    if approve:
        await grant(conn, asked["user"], "member", asked["agent_group_id"], decided_by)
        return Done(f"let in: {quoted(summary)}", await _go_on(conn, which), decided.deliveries)
    waiting = await _lock(conn, which)
    why = f"{decided_by} did not let the sender in"
    await conn.execute(_change(which, status="discarded", error=why))
    told = await _tell_denied(conn, waiting, asked["agent"], approval_id)
    return Done(f"not let in: {quoted(summary)}", [], [*decided.deliveries, *told])


async def let_in(conn: AsyncConnection, user_id: str, agent_group_id: str | None, by: str) -> Done:
    """Somebody has become somebody otherwise, to one agent or (None) to all: what they wrote before goes on, and nobody
    is asked about it any more."""
    channel_type, _, sender_id = user_id.partition(":")
    await lock_user(conn, user_id, channel_type, None)
    which = waiting_of(channel_type, sender_id, agent_group_id)
    done = Done(f"{user_id} is let in")
    for agent in sorted({row.agent_group_id for row in (await conn.execute(_select(which))).all()}):
        request_id, _ = await request_of(conn, user_id, agent)
        await lock_session_of(conn, Approval, request_id)
        decided = await decide_approval(conn, request_id, "approved", by)
        done.deliveries += decided.deliveries if decided is not None else []
    done.wakes += await _go_on(conn, which)
    return done


async def _go_on(conn: AsyncConnection, which: ColumnElement[bool]) -> list[Wake]:
    sessions = sorted({row.session_id for row in await _lock(conn, which)})
    await conn.execute(_change(which, status="pending"))
    wakes: list[Wake] = []
    for session_id in sessions:
        if await mark_if_due(conn, session_id):
            session = await find_session(conn, session_id)
            assert session is not None
            wakes.append((session_id, session.provider or session.group_provider))
    return wakes


async def _tell_denied(conn: AsyncConnection, waiting: list[AnyRow], folder: str, approval_id: str) -> list[str]:
    rung: list[str] = []
    told = f"Whoever runs {folder} did not let you in; what you wrote was not read."
    for channel_type, platform_id, thread_id in sorted(
        {(row.channel_type, row.platform_id, row.thread_id or "") for row in waiting}
    ):
        place = {"channel_type": channel_type, "platform_id": platform_id}
        key = key_of("denied", approval_id, platform_id, thread_id)
        said = await say(conn, **place, thread_id=thread_id or None, text=told, key=key)
        rung += [said] if said is not None else []
    return rung


async def _tell(conn: AsyncConnection, stranger: Stranger, text: str, key: str) -> list[str]:
    place = {"channel_type": stranger.channel_type, "platform_id": stranger.platform_id}
    said = await say(conn, **place, thread_id=stranger.thread_id, text=text, key=key)
    return [said] if said is not None else []


def _select(which: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    columns = (MessageIn.session_id, MessageIn.agent_group_id, MessageIn.channel_type, MessageIn.platform_id)
    return select(*columns, MessageIn.thread_id).where(which)


def _change(which: ColumnElement[bool], **changes: Any) -> Update:
    return update(MessageIn).where(which).values(status_changed_at=now(), **changes)


async def _lock(conn: AsyncConnection, which: ColumnElement[bool]) -> list[AnyRow]:
    """The messages, after their sessions are locked, in one order: what locks both locks the session first."""
    for session_id in sorted({row.session_id for row in (await conn.execute(_select(which))).all()}):
        await living_session(conn, session_id)
    return list((await conn.execute(_select(which))).all())


async def _count_waiting(conn: AsyncConnection, stranger: Stranger) -> int:
    which = waiting_of(stranger.channel_type, stranger.sender_id, stranger.agent_group_id)
    return int((await conn.execute(select(func.count()).where(which))).scalar_one())


async def _count_requests(conn: AsyncConnection, agent_group_id: str) -> int:
    query = (
        select(func.count())
        .select_from(Approval)
        .join(Session, Session.id == Approval.session_id)
        .where(Approval.status == "pending", Approval.expires_at > now(), Approval.category == ACCESS)
        .where(Session.agent_group_id == agent_group_id)
    )
    return int((await conn.execute(query)).scalar_one())


async def _is_shown(conn: AsyncConnection, request_id: str) -> bool:
    return (await conn.execute(select(Card.id).where(Card.subject_id == request_id).limit(1))).first() is not None
