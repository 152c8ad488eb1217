"""`/v1/questions`: what agents ask and the caller may answer, and answering."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from gateway.http.api.forms import Page, RowId, Told, yours
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import HouseDep
from gateway.http.problems import documented
from models.base import AnyRow
from workers.consent.questions import give_answer
from workers.consent.waiting import check_question, questions_for
from workers.house import ring_for


class QuestionView(BaseModel):
    id: str
    agent: str
    session: str
    title: str | None
    text: str | None
    options: list[Any]
    channel: str | None
    chat: str | None
    thread: str | None
    created_at: datetime
    expires_at: datetime


class GivenAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    answer: str = Field(min_length=1, max_length=10_000)


router = APIRouter(tags=["questions"])


@router.get("/questions")
async def list_questions(house: HouseDep, caller: Annotated[Caller, needs("decide")]) -> Page[QuestionView]:
    """Those the caller may answer, the oldest first."""
    rows = await house.db.read(lambda conn: questions_for(conn, caller.user_id))
    return Page(items=[question_view(row) for row in rows])


@router.post("/questions/{question_id}", responses=documented(404, 409))
async def answer_question(
    house: HouseDep, question_id: RowId, given: GivenAnswer, caller: Annotated[Caller, needs("decide")]
) -> Told:
    """Answer, once; the agent goes on. 409: it was answered before, or is over."""
    with yours():
        await house.db.read(lambda conn: check_question(conn, caller.user_id, question_id))
    answered = await give_answer(house.db, question_id, given.answer, caller.user_id)
    ring_for(house, [(answered.session_id, answered.provider)], answered.deliveries)
    return Told(text="answered; the agent goes on")


def question_view(row: AnyRow) -> QuestionView:
    asked = row.question
    return QuestionView(
        id=row.id,
        agent=row.folder,
        session=row.session_id,
        title=asked.get("title"),
        text=asked.get("text"),
        options=asked.get("options") or [],
        channel=row.channel_type,
        chat=row.platform_id,
        thread=row.thread_id,
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
