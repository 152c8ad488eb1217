"""Questions agents ask people: putting one, and taking the answer, whoever gives it and wherever it comes in."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import Ask
from models.base import AnyRow
from models.consent import answer_question, chosen_value, find_question
from models.database import Database
from models.sessions import end_rest, find_session
from workers.ingest import RefusedError


@dataclass(frozen=True)
class Answered:
    """Whom to ring for. `provider` None: the default one."""

    session_id: str
    provider: str | None


def question_text(question: Ask) -> str:
    """How a question looks where there are no buttons."""
    options = [f"{number}. {label}" for number, label in enumerate(question.options, 1)]
    return "\n".join([f"**{question.title}**", question.text, *options])


def stored_question(question: Ask) -> dict[str, Any]:
    return {
        "title": question.title,
        "text": question.text,
        "options": list(question.options),
        "values": list(question.values or question.options),
        "seconds": question.seconds,
    }


async def give_answer(db: Database, question_id: str, text: str, answered_by: str | None) -> Answered:
    """The first answer in time is the answer; RefusedError says why another is not."""

    async def work(conn: AsyncConnection) -> Answered:
        question: AnyRow | None = await find_question(conn, question_id)
        if question is None:
            raise RefusedError(f"there is no question {question_id!r}")
        # The session's row first: a worker that is just parking the turn holds it, and looks for the answer under it.
        await end_rest(conn, question.session_id)
        if not await answer_question(conn, question_id, chosen_value(question.question, text), answered_by):
            late = "it was answered before" if question.status == "answered" else "the agent no longer waits for it"
            raise RefusedError(f"too late: {late}")
        session = await find_session(conn, question.session_id)
        assert session is not None
        return Answered(session.id, session.provider or session.group_provider)

    return await db.transact(work)
