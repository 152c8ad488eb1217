"""Cards: buttons (or numbered text) under what an agent asks, and what a press of one does.

A press is somebody's word that the platform vouches for, and nothing more: the card must be ours and lie where it was
pressed, and whether that person may choose is looked up now. What is not ours is refused without saying why."""

import re
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import ButtonPress, InboundMessage
from models.base import AnyRow, storable
from models.cards import cards_by_code, find_card, open_cards, token
from models.consent import find_question
from models.database import Database
from models.people import remember_user
from models.quoting import quoted
from models.sessions import Session
from workers.access import user_id_of
from workers.consent.approvals import Decision, decide_within, may_decide
from workers.consent.questions import choose, may_answer
from workers.consent.requests import APPROVE, code_of
from workers.front_desk import key_of
from workers.house import Done
from workers.refusals import RefusedError

NOT_OURS: Final = "This button does nothing here."
NARROW: Final = (
    "Nothing was decided or answered: this token (or sign-in) is for talking only; it lacks the scope 'decide'"
)
# An option's label and the code, with something to spare: what is longer is no short answer.
MAX_ANSWER: Final = 220
_TOKEN: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([1-9][0-9]?)", re.ASCII)
_WITH_CODE: Final = re.compile(r"(.+?)\s+([0-9a-f]{8})", re.IGNORECASE)


@dataclass(kw_only=True)
class Said(Done):
    """A press that is a message to the agent whose card it was: the door takes it in like any other of that person's.
    `agent_group_id` None: the wirings of the place decide, since the conversation is not named by the place alone."""

    message: InboundMessage
    agent_group_id: str | None


async def press(db: Database, channel_type: str, pressed: ButtonPress, *, may_decide: bool = True) -> Done:
    """Do what a button says, if it is one of ours, in its own place, in time, and pressed by somebody who may; returns
    what they are told. `may_decide` False: what they came in with is good for talking only."""
    found = _TOKEN.fullmatch(pressed.token)
    user_id = user_id_of(channel_type, pressed.sender_id)
    if found is None or not pressed.sender_id or storable(user_id) != user_id:
        return Done(NOT_OURS)

    async def work(conn: AsyncConnection) -> Done:
        card = await find_card(conn, found[1])
        here = (channel_type, pressed.platform_id)
        if card is None or (card.channel_type, card.platform_id) != here or int(found[2]) > len(card.options):
            return Done(NOT_OURS)
        if card.kind == "card":
            return await _say(conn, card, int(found[2]), pressed, user_id)
        if not may_decide:
            return Done(NARROW)
        return await _choose(conn, card, card.options[int(found[2]) - 1], user_id, pressed.sender_name)

    try:
        return await db.transact(work)
    except RefusedError as error:
        return Done(str(error))


async def _choose(conn: AsyncConnection, card: AnyRow, option: dict[str, Any], user_id: str, name: str | None) -> Done:
    """RefusedError: they may not, or it is too late."""
    if card.kind == "approval":
        decision = Decision(option["value"] == APPROVE, user_id, shown=card.payload_hash)
        return await decide_within(conn, card.subject_id, decision)
    if name is not None:
        await remember_user(conn, user_id, card.channel_type, storable(name)[:200])
    answered = await choose(conn, card.subject_id, str(option["value"]), user_id)
    wake = (answered.session_id, answered.provider)
    return Done(f"Thank you: {quoted(option['label'])}", [wake], answered.deliveries)


async def _say(conn: AsyncConnection, card: AnyRow, number: int, pressed: ButtonPress, user_id: str) -> Said:
    """What the agent offers is said by whoever presses it, once by each."""
    option = card.options[number - 1]
    session = (await conn.execute(select(Session.__table__).where(Session.id == card.session_id))).one()
    message = InboundMessage(
        platform_id=card.platform_id,
        platform_message_id=key_of("pressed", token(card.id, number), user_id),
        content={"text": option["label"], "card": {"label": option["label"], "value": option["value"]}},
        thread_id=card.thread_id,
        sender_id=pressed.sender_id,
        sender_name=pressed.sender_name,
        is_mention=True,
    )
    is_named = session.thread_id == (card.thread_id or "")
    agent_group_id = session.agent_group_id if is_named else None
    return Said(option["label"], message=message, agent_group_id=agent_group_id)


# --- By words ----------------------------------------------------------------------------------------------------


async def answer_by_text(
    conn: AsyncConnection,
    *,
    channel_type: str,
    platform_id: str,
    thread_id: str | None,
    user_id: str,
    text: str,
    may_decide: bool = True,
) -> Done | None:
    """The same by words, where there are no buttons: an option's number or label with the code of what it answers. To
    the only open question of a place the code may be left out; to an approval never: an agent that says "1 or 2?" there
    must not turn the answer into somebody's yes. None: the text answers no card of this place.

    Only these short forms count, and without a code only from somebody who may choose: what else people say there is
    for the agents. `may_decide` as for a press: whoever gives a code is told so."""
    said = " ".join(text.split())
    if not 0 < len(said) <= MAX_ANSWER or storable(said) != said:
        return None
    place = (channel_type, platform_id, thread_id)
    if (found := _WITH_CODE.fullmatch(said)) is not None:
        for card in await cards_by_code(conn, *place, found[2].lower()):
            if _chosen(card, found[1]) is not None:
                return await _answer(conn, card, found[1], user_id) if may_decide else Done(NARROW)
    if not may_decide:
        return None
    cards = [card for card in await open_cards(conn, *place) if _chosen(card, said) is not None]
    mine = [card for card in cards if await may_choose(conn, card, user_id)]
    asked = [card for card in mine if card.kind == "question"]
    if len({card.subject_id for card in asked}) == 1:
        return await _answer(conn, asked[0], said, user_id)
    if asked:
        codes = ", ".join(code_of(card.subject_id) for card in asked)
        return Done(f"Several things wait for an answer here. Add the code of one: {codes}")
    if mine and not _is_number(said):
        codes = ", ".join(f"`{said.lower()} {code_of(card.subject_id)}`" for card in mine)
        return Done(f"Nothing was decided: an approval needs its code as well. Write {codes}")
    return None


async def _answer(conn: AsyncConnection, card: AnyRow, said: str, user_id: str) -> Done:
    option = _chosen(card, said)
    assert option is not None
    try:
        async with conn.begin_nested():  # what is refused half-way leaves nothing behind
            return await _choose(conn, card, option, user_id, None)
    except RefusedError as error:
        return Done(str(error))


def _is_number(said: str) -> bool:
    return said.rstrip(".)").isdecimal()


def _chosen(card: AnyRow, said: str) -> dict[str, Any] | None:
    """The option of that number or label."""
    for number, option in enumerate(card.options, 1):
        if said.rstrip(".)") == str(number) or said.casefold() == " ".join(str(option["label"]).split()).casefold():
            return dict(option)
    return None


async def may_choose(conn: AsyncConnection, card: AnyRow, user_id: str) -> bool:
    """Whether a press of theirs on a question's or an approval's card would count."""
    if card.kind == "approval":
        return await may_decide(conn, card.subject_id, user_id)
    question = await find_question(conn, card.subject_id)
    return question is not None and await may_answer(conn, question, user_id)
