"""What came of a question or an approval, in words: what its cards become when it is over."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from models.approvers import name_of
from models.base import AnyRow
from models.cards import close_cards
from models.quoting import quoted


def question_words(question: dict[str, Any]) -> str:
    """A question without its options."""
    return f"**{question['title']}**\n{question['text']}"


async def close_decided(conn: AsyncConnection, approval: AnyRow) -> list[str]:
    word = "Denied" if approval.status == "denied" else "Approved"
    who = await name_of(conn, approval.decided_by)
    return await _close_approval(conn, approval, f"{word} by {who} at {approval.decided_at:%H:%M}Z")


async def close_answered(conn: AsyncConnection, question: AnyRow) -> list[str]:
    who = await name_of(conn, question.answered_by)
    return await _close_question(conn, question, f"Answered by {who}: {quoted(question.answer)}")


async def close_overdue(conn: AsyncConnection, asked: AnyRow) -> list[str]:
    """Of a question or an approval."""
    if "question" in asked._mapping:
        return await _close_question(conn, asked, "Nobody answered in time.")
    return await _close_approval(conn, asked, "Nobody decided in time")


async def close_unneeded(conn: AsyncConnection, asked: AnyRow) -> list[str]:
    """Nothing waits for it any more."""
    if "question" in asked._mapping:
        return await _close_question(conn, asked, "No longer asked: what wanted to know it has ended.")
    return await _close_approval(conn, asked, "No longer needed: what wanted this has ended")


async def _close_question(conn: AsyncConnection, question: AnyRow, words: str) -> list[str]:
    return await close_cards(conn, question.id, f"{question_words(question.question)}\n\n{words}")


async def _close_approval(conn: AsyncConnection, approval: AnyRow, words: str) -> list[str]:
    return await close_cards(conn, approval.id, f"{words}: {quoted(approval.summary)}")
