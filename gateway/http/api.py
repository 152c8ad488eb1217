"""A small API for people's own programs: what waits for a decision or an answer, and giving it. The same roles as for a
card's buttons decide who may; what is nobody's business of the caller's does not exist for them."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, HTTPException
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.callers import Caller, caller_of
from models.base import AnyRow, now
from models.consent import Approval, PendingQuestion
from models.groups import AgentGroup, MessagingGroup
from models.sessions import Session
from workers.access import NEEDED, Act, Standing, standing_of
from workers.consent.approvals import decide, may_decide
from workers.consent.questions import give_answer, may_answer, senders_of
from workers.house import House, ring_for
from workers.refusals import RefusedError

LIMIT: Final = 1000
RowId = Annotated[str, InPath(max_length=36, pattern=r"^[\w:-]+$")]


class Decision(BaseModel):
    model_config = ConfigDict(extra="forbid")

    decision: Literal["approve", "deny"]
    payload_hash: str | None = Field(None, max_length=64)  # of what was looked at: nothing else is decided


class GivenAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    answer: str = Field(min_length=1, max_length=10_000)


def api_routes(house: House) -> APIRouter:
    router = APIRouter(prefix="/v1")
    known = Depends(caller_of(house))

    @router.get("/approvals")
    async def approvals(caller: Annotated[Caller, known]) -> JSONResponse:
        rows = await house.db.read(lambda conn: _approvals_of(conn, caller))
        return JSONResponse({"approvals": [_approval(row) for row in rows]})

    @router.post("/approvals/{approval_id}")
    async def decide_one(approval_id: RowId, given: Decision, caller: Annotated[Caller, known]) -> JSONResponse:
        await house.db.read(lambda conn: _check_approval(conn, caller, approval_id))
        try:
            approve, shown = given.decision == "approve", given.payload_hash
            decided = await decide(house.db, approval_id, approve=approve, user_id=caller.user_id, shown=shown)
        except RefusedError as error:
            raise HTTPException(409, str(error)) from None
        ring_for(house, decided.wakes, decided.deliveries)
        return JSONResponse({"text": decided.text})

    @router.get("/questions")
    async def questions(caller: Annotated[Caller, known]) -> JSONResponse:
        rows = await house.db.read(lambda conn: _questions_of(conn, caller))
        return JSONResponse({"questions": [_question(row) for row in rows]})

    @router.post("/questions/{question_id}")
    async def answer_one(question_id: RowId, given: GivenAnswer, caller: Annotated[Caller, known]) -> JSONResponse:
        await house.db.read(lambda conn: _check_question(conn, caller, question_id))
        try:
            answered = await give_answer(house.db, question_id, given.answer, caller.user_id)
        except RefusedError as error:
            raise HTTPException(409, str(error)) from None
        ring_for(house, [(answered.session_id, answered.provider)], answered.deliveries)
        return JSONResponse({"text": "answered; the agent goes on"})

    return router


async def _approvals_of(conn: AsyncConnection, caller: Caller) -> list[AnyRow]:
    """Those the caller may decide about."""
    rows = (await conn.execute(_open_approvals().limit(LIMIT))).all()
    standings = await _standings(conn, caller, rows)
    return [row for row in rows if standings[row.agent_group_id] >= NEEDED[Act.APPROVE]]


async def _questions_of(conn: AsyncConnection, caller: Caller) -> list[AnyRow]:
    """Those the caller may answer."""
    rows = (await conn.execute(_open_questions().limit(LIMIT))).all()
    standings = await _standings(conn, caller, rows)
    known = [row for row in rows if standings[row.agent_group_id] >= NEEDED[Act.ANSWER]]
    others = await _put_to_others(
        conn, caller, [row for row in known if standings[row.agent_group_id] < Standing.ADMIN]
    )
    return [row for row in known if row.id not in others]


async def _standings(conn: AsyncConnection, caller: Caller, rows: Sequence[AnyRow]) -> dict[str, Standing]:
    """What the caller is to each agent."""
    groups = {row.agent_group_id for row in rows}
    return {group: await standing_of(conn, caller.user_id, group) for group in groups}


async def _put_to_others(conn: AsyncConnection, caller: Caller, questions: Sequence[AnyRow]) -> set[str]:
    """Those (by id) that are none of the caller's, unless they are an admin: what an agent asks in a chat of one person
    is for whom its turn answers. A place that is not known to be for several is private."""
    private = [row for row in questions if not row.is_group]
    senders = await senders_of(conn, {row.turn_id for row in private})
    return {row.id for row in private if (row.turn_id, caller.user_id) not in senders}


async def _check_approval(conn: AsyncConnection, caller: Caller, approval_id: str) -> None:
    row = (await conn.execute(_approvals().where(Approval.id == approval_id))).one_or_none()
    standing = await standing_of(conn, caller.user_id, row.agent_group_id) if row is not None else Standing.STRANGER
    if row is None or standing is Standing.STRANGER:
        raise HTTPException(404, "there is no such approval, or it is none of yours")
    if not await may_decide(conn, approval_id, caller.user_id):
        raise HTTPException(403, f"this is not yours to decide: it is for the admins of {row.folder} and the owners")


async def _check_question(conn: AsyncConnection, caller: Caller, question_id: str) -> None:
    row = (await conn.execute(_questions().where(PendingQuestion.id == question_id))).one_or_none()
    if row is None or not await may_answer(conn, row, caller.user_id):
        raise HTTPException(404, "there is no such question, or it is none of yours")
    standing = await standing_of(conn, caller.user_id, row.agent_group_id)
    if standing < Standing.ADMIN and await _put_to_others(conn, caller, [row]):
        raise HTTPException(403, f"{row.folder} asked somebody else, in their direct chat")


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


def _approval(row: AnyRow) -> dict[str, Any]:
    """Whole: what is approved is exactly this payload."""
    return {
        "id": row.id,
        "agent": row.folder,
        "session": row.session_id,
        "category": row.category,
        "summary": row.summary,
        "risk": row.risk,
        "payload": row.payload,
        "payload_hash": row.payload_hash,
        "created_at": row.created_at.isoformat(),
        "expires_at": row.expires_at.isoformat(),
    }


def _question(row: AnyRow) -> dict[str, Any]:
    asked = row.question
    return {
        "id": row.id,
        "agent": row.folder,
        "session": row.session_id,
        "title": asked.get("title"),
        "text": asked.get("text"),
        "options": asked.get("options") or [],
        "channel": row.channel_type,
        "chat": row.platform_id,
        "thread": row.thread_id,
        "created_at": row.created_at.isoformat(),
        "expires_at": row.expires_at.isoformat(),
    }
