"""Questions agents ask people: putting one, and taking the answer, whoever gives it and wherever it comes in."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import Ask
from models.audit import note
from models.base import AnyRow
from models.card_endings import question_words
from models.cards import put_card, token
from models.consent import answer_question, chosen_value, find_question, put_question
from models.database import Database
from models.groups import find_place
from models.inbox import MessageIn
from models.outbox import MessageOut
from models.sessions import end_rest, find_session
from models.upsert import insert_ignoring
from workers.access import Act, may, user_id_of
from workers.refusals import RefusedError


@dataclass(frozen=True)
class Answered:
    """What to ring for. `provider` None: the default one."""

    session_id: str
    provider: str | None
    deliveries: list[str] = field(default_factory=list)


def stored_question(question: Ask) -> dict[str, Any]:
    return {
        "title": question.title,
        "text": question.text,
        "options": list(question.options),
        "values": list(question.values or question.options),
        "seconds": question.seconds,
    }


def question_content(question: Ask, question_id: str, card_id: str) -> dict[str, Any]:
    """The message that asks: a button for each option."""
    stored = stored_question(question)
    content: dict[str, Any] = {"text": question_words(stored), "question": {"id": question_id, **stored}}
    if question.options:
        content["buttons"] = [
            {"label": label, "token": token(card_id, number)} for number, label in enumerate(question.options, 1)
        ]
    return content


async def ask(conn: AsyncConnection, question: Ask, question_id: str, card_id: str, row: dict[str, Any]) -> None:
    """Write down the message `row` that asks, the question and its card."""
    if not await insert_ignoring(conn, MessageOut, **row):
        return
    stored = stored_question(question)
    place = {key: row[key] for key in ("session_id", "turn_id", "channel_type", "platform_id", "thread_id")}
    await put_question(conn, question_id, row["id"], stored, question.seconds, **place)
    if question.options:
        options = [
            {"label": label, "value": value} for label, value in zip(stored["options"], stored["values"], strict=True)
        ]
        await put_card(conn, card_id, "question", row, options, subject_id=question_id)


async def give_answer(db: Database, question_id: str, text: str, answered_by: str) -> Answered:
    """The first answer in time is the answer; RefusedError says why another is not. Whether they may is the caller's to
    ask."""

    async def work(conn: AsyncConnection) -> Answered:
        question = await _find(conn, question_id)
        return await answer_within(conn, question, chosen_value(question.question, text), answered_by)

    return await db.transact(work)


async def give_option(db: Database, question_id: str, number: int, answered_by: str) -> Answered:
    """As `give_answer`, by the button of the option with this number, from 1 on: whatever it is called."""

    async def work(conn: AsyncConnection) -> Answered:
        question = await _find(conn, question_id)
        told = question.question.get("values") or []
        if not 1 <= number <= len(told):
            raise RefusedError("there is no such option: look at the question again")
        return await answer_within(conn, question, str(told[number - 1]), answered_by)

    return await db.transact(work)


async def choose(conn: AsyncConnection, question_id: str, value: str, user_id: str) -> Answered:
    """One of its options, by a person on a platform; RefusedError also if they may not."""
    question = await _find(conn, question_id)
    if not await may_answer(conn, question, user_id):
        raise RefusedError("you may not answer this: it is for the people this agent knows")
    return await answer_within(conn, question, value, user_id)


async def answer_within(conn: AsyncConnection, question: AnyRow, value: str, answered_by: str) -> Answered:
    # The session's row first: a worker that is just parking the turn holds it, and looks for the answer under it.
    await end_rest(conn, question.session_id)
    closed = await answer_question(conn, question.id, value, answered_by)
    if closed is None:
        now_is = await _find(conn, question.id)
        late = "it was answered before" if now_is.status == "answered" else "the agent no longer waits for it"
        raise RefusedError(f"too late: {late}")
    session = await find_session(conn, question.session_id)
    assert session is not None
    await note(conn, answered_by, "question.answer", question.id, agent_group_id=session.agent_group_id)
    return Answered(session.id, session.provider or session.group_provider, closed.deliveries)


async def may_answer(conn: AsyncConnection, question: AnyRow, user_id: str) -> bool:
    """Those the agent knows, anybody where anybody may talk to it, and those whom its turn answers."""
    session = await find_session(conn, question.session_id)
    assert session is not None
    if await may(conn, user_id, session.agent_group_id, Act.ANSWER):
        return True
    place = await find_place(conn, question.channel_type, question.platform_id)
    if place is not None and place.unknown_sender_policy == "public":
        return True
    return (question.turn_id, user_id) in await senders_of(conn, [question.turn_id])


async def senders_of(conn: AsyncConnection, turn_ids: Collection[str]) -> set[tuple[str, str]]:
    """Whom each of these turns answers: the turn, and a user id."""
    senders = select(MessageIn.turn_id, MessageIn.channel_type, MessageIn.sender_id).where(
        MessageIn.turn_id.in_(turn_ids), MessageIn.sender_id.is_not(None)
    )
    known = (await conn.execute(senders.distinct())).all()
    return {(row.turn_id, user_id_of(row.channel_type, row.sender_id)) for row in known}


async def _find(conn: AsyncConnection, question_id: str) -> AnyRow:
    question = await find_question(conn, question_id)
    if question is None:
        raise RefusedError(f"there is no question {question_id!r}")
    return question
