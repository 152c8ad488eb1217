"""What waits for somebody: approvals they may decide about, and questions they may answer; for the API and the console.

The same roles as for a card's buttons decide who may; what is nobody's business of theirs does not exist for them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Select, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow, now
from models.consent import Approval, PendingQuestion
from models.groups import AgentGroup, MessagingGroup
from models.people import AgentGroupMember
from models.sessions import Session
from workers.access import Standing, reach_of, standing_of
from workers.consent.approvals import may_decide
from workers.consent.questions import may_answer, senders_of

LIMIT: Final = 1000


class NotYoursError(Exception):
    """`known`: they may know that it is there, and not touch it."""

    def __init__(self, text: str, *, known: bool = False) -> None:
        super().__init__(text)
        self.known = known


async def approvals_for(conn: AsyncConnection, user_id: str) -> list[AnyRow]:
    """Those they may decide about, the oldest first."""
    theirs = (await reach_of(conn, user_id)).where(Session.agent_group_id)
    return list((await conn.execute(_open_approvals().where(theirs).limit(LIMIT))).all())


async def questions_for(conn: AsyncConnection, user_id: str) -> list[AnyRow]:
    """Those they may answer, the oldest first."""
    reach = await reach_of(conn, user_id)
    member_of = select(AgentGroupMember.agent_group_id).where(AgentGroupMember.user_id == user_id)
    theirs = or_(reach.where(Session.agent_group_id), Session.agent_group_id.in_(member_of))
    known = (await conn.execute(_open_questions().where(theirs).limit(LIMIT))).all()
    others = await _put_to_others(conn, user_id, [row for row in known if not reach.includes(row.agent_group_id)])
    return [row for row in known if row.id not in others]


async def check_approval(conn: AsyncConnection, user_id: str, approval_id: str) -> None:
    row = (await conn.execute(_approvals().where(Approval.id == approval_id))).one_or_none()
    standing = await standing_of(conn, user_id, row.agent_group_id) if row is not None else Standing.STRANGER
    if row is None or standing is Standing.STRANGER:
        raise NotYoursError("there is no such approval, or it is none of yours", known=False)
    if not await may_decide(conn, approval_id, user_id):
        text = f"this is not yours to decide: it is for the admins of {row.folder} and the owners"
        raise NotYoursError(text, known=True)


async def check_question(conn: AsyncConnection, user_id: str, question_id: str) -> None:
    row = (await conn.execute(_questions().where(PendingQuestion.id == question_id))).one_or_none()
    if row is None or not await may_answer(conn, row, user_id):
        raise NotYoursError("there is no such question, or it is none of yours", known=False)
    standing = await standing_of(conn, user_id, row.agent_group_id)
    if standing < Standing.ADMIN and await _put_to_others(conn, user_id, [row]):
        raise NotYoursError(f"{row.folder} asked somebody else, in their direct chat", known=True)


async def _put_to_others(conn: AsyncConnection, user_id: str, questions: Sequence[AnyRow]) -> set[str]:
    """Those (by id) that are none of theirs, unless they are an admin: what an agent asks in a chat of one person
    is for whom its turn answers. A place that is not known to be for several is private."""
    private = [row for row in questions if not row.is_group]
    senders = await senders_of(conn, {row.turn_id for row in private})
    return {row.id for row in private if (row.turn_id, user_id) not in senders}


def _approvals() -> Select[Any]:
    return (
        select(Approval.__table__, Session.agent_group_id, AgentGroup.folder)
        .join(Session, Session.id == Approval.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    )


def _open_approvals() -> Select[Any]:
    waiting = _approvals().where(Approval.status == "pending", Approval.expires_at > now())
    return waiting.order_by(Approval.created_at, Approval.id)


def _questions() -> Select[Any]:
    is_group = (
        select(MessagingGroup.is_group)
        .where(
            MessagingGroup.channel_type == PendingQuestion.channel_type,
            MessagingGroup.platform_id == PendingQuestion.platform_id,
        )
        .scalar_subquery()
    )
    return (
        select(PendingQuestion.__table__, Session.agent_group_id, AgentGroup.folder, is_group.label("is_group"))
        .join(Session, Session.id == PendingQuestion.session_id)
        .join(AgentGroup, AgentGroup.id == Session.agent_group_id)
    )


def _open_questions() -> Select[Any]:
    waiting = _questions().where(PendingQuestion.status == "pending", PendingQuestion.expires_at > now())
    return waiting.order_by(PendingQuestion.created_at, PendingQuestion.id)
