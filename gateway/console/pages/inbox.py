"""What waits for a person: approvals, with exactly what is approved, and questions. Deciding and answering, from here
and from the cards in timelines and chats."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, HTTPException, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.responses import show
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import RowId, yours
from gateway.http.dependencies import HouseDep
from models.base import AnyRow
from models.consent import find_approval, find_question
from models.people import find_user
from workers.consent.approvals import decide
from workers.consent.questions import give_answer, give_option, senders_of
from workers.consent.waiting import approvals_for, check_approval, check_question, questions_for
from workers.house import House, ring_for

MAX_ANSWER = 10_000


router = APIRouter(prefix="/inbox")
DECIDES = needs("decide")


@router.get("")
async def show_inbox(house: HouseDep, guest: Annotated[Guest, DECIDES]) -> Response:
    async def read(conn: AsyncConnection) -> dict[str, Any]:
        approvals = await approvals_for(conn, guest.user_id)
        questions = await questions_for(conn, guest.user_id)
        return {"waiting": _in_order(approvals, questions), "asked_by": await _askers(conn, approvals)}

    return show(guest, "inbox.html", **await house.db.read(read))


@router.post("/approvals/{approval_id}")
async def decide_approval(
    house: HouseDep,
    request: Request,
    approval_id: RowId,
    guest: Annotated[Guest, DECIDES],
    decision: Annotated[Literal["approve", "deny"], Form()],
    shown: Annotated[str, Form(max_length=64)],
    back: Annotated[str, Form(max_length=300)] = "",
) -> Response:
    """`shown`: the hash of what was looked at. Nothing else is decided about."""
    with yours():
        await house.db.read(lambda conn: check_approval(conn, guest.user_id, approval_id))
    approve = decision == "approve"
    done = await decide(house.db, approval_id, approve=approve, user_id=guest.user_id, shown=shown)
    ring_for(house, done.wakes, done.deliveries)
    return await card(house, request, guest, back, "approval", lambda conn: find_approval(conn, approval_id))


@router.post("/questions/{question_id}")
async def answer_question(
    house: HouseDep,
    request: Request,
    question_id: RowId,
    guest: Annotated[Guest, DECIDES],
    answer: Annotated[str, Form(max_length=MAX_ANSWER)] = "",
    option: Annotated[int | None, Form()] = None,
    back: Annotated[str, Form(max_length=300)] = "",
) -> Response:
    """`option`: the number of the button that was pressed; else `answer`, in words."""
    with yours():
        await house.db.read(lambda conn: check_question(conn, guest.user_id, question_id))
    if option is not None:
        done = await give_option(house.db, question_id, option, guest.user_id)
    elif answer.strip():
        done = await give_answer(house.db, question_id, answer, guest.user_id)
    else:
        raise HTTPException(422, "say something, or choose one of the options")
    ring_for(house, [(done.session_id, done.provider)], done.deliveries)
    return await card(house, request, guest, back, "question", lambda conn: find_question(conn, question_id))


async def card(
    house: House, request: Request, guest: Guest, back: str, what: str, find: Callable[[AsyncConnection], Any]
) -> Response:
    """What was decided about, as it stands now; without script, the page it was on."""
    if "hx-request" not in request.headers:
        return RedirectResponse(back if back.startswith("/console/") else "/console/inbox", 303)
    return show(guest, "card.html", what=what, row=await house.db.read(find))


def _in_order(approvals: list[AnyRow], questions: list[AnyRow]) -> list[tuple[str, AnyRow]]:
    """The oldest first, and so what is new last: nothing comes between a person's eye and the button they press."""
    waiting = [("approval", row) for row in approvals] + [("question", row) for row in questions]
    return sorted(waiting, key=lambda one: (one[1].created_at, one[1].id))


async def _askers(conn: AsyncConnection, approvals: list[AnyRow]) -> dict[str, str]:
    """For whom the agent wants it: by approval, the people whose messages its turn answers."""
    senders = await senders_of(conn, {row.turn_id for row in approvals if row.turn_id is not None})
    named = {user_id: await _name(conn, user_id) for _, user_id in senders}
    return {
        row.id: ", ".join(sorted(named[user_id] for turn_id, user_id in senders if turn_id == row.turn_id))
        for row in approvals
    }


async def _name(conn: AsyncConnection, user_id: str) -> str:
    """People choose their names, so with what they are known by."""
    user = await find_user(conn, user_id)
    return f"{user.display_name} ({user_id})" if user is not None and user.display_name else user_id
