"""What went wrong for good: messages that were given up, answers that did not arrive, input that was refused. Trying
again, also on another provider, and putting away; several at once."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, HTTPException, Query, Response
from pydantic import StringConstraints
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.forms.choices import choices, chosen
from gateway.console.responses import Notice, show
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import RowId, read_point
from gateway.http.api.messages import MessageId
from gateway.http.belongings import message_of, undelivered_of
from gateway.http.dependencies import HouseDep
from models.base import AnyRow, storable
from models.browsing import Point, dead_page, find_message, rejected_page, undelivered_page
from workers.access import Act
from workers.house import House
from workers.operations import dead as operations
from workers.refusals import RefusedError

_SHOWN: Final = 50
_MOST: Final = 200
_LETTER: Final = "dead letter"
After = Annotated[str, Query(max_length=250)]
Choice = Annotated[str, Form(max_length=320)]
_Id = Annotated[str, StringConstraints(max_length=36, pattern=r"^[^\x00-\x1f\x7f]+$")]  # as `MessageId`


router = APIRouter(prefix="/dead")
LOOKS, OPERATES = needs("read", "some"), needs("operate", "some")


async def letters(
    house: House, guest: Guest, agent: str = "", after: str = "", notice: Notice | None = None
) -> Response:
    point, mine, only = read_point(after or None), guest.reach.where, storable(agent) or None
    rows = await house.db.read(lambda conn: dead_page(conn, mine, _SHOWN + 1, point, agent=only))
    shown, older = _page(rows, "status_changed_at", agent=agent)
    offered = choices(house.registry)
    return show(guest, "dead.html", notice=notice, rows=shown, older=older, agent=agent, choices=offered)


async def one(house: House, guest: Guest, row: AnyRow, notice: Notice | None = None) -> Response:
    return show(guest, "dead_letter.html", notice=notice, row=row, choices=choices(house.registry))


async def answers(house: House, guest: Guest, after: str = "", notice: Notice | None = None) -> Response:
    point = read_point(after or None)
    rows = await house.db.read(lambda conn: undelivered_page(conn, guest.reach.where, _SHOWN + 1, point))
    shown, older = _page(rows, "created_at")
    return show(guest, "undelivered.html", notice=notice, rows=shown, older=older)


@router.get("")
async def show_dead(
    house: HouseDep,
    guest: Annotated[Guest, LOOKS],
    agent: Annotated[str, Query(max_length=100)] = "",
    after: After = "",
) -> Response:
    return await letters(house, guest, agent, after)


@router.get("/undelivered")
async def show_undelivered(house: HouseDep, guest: Annotated[Guest, LOOKS], after: After = "") -> Response:
    return await answers(house, guest, after)


@router.post("/undelivered/{message_id}/resend")
async def resend(house: HouseDep, message_id: RowId, guest: Annotated[Guest, OPERATES]) -> Response:
    await house.db.read(lambda conn: undelivered_of(conn, guest.user_id, message_id, Act.OPERATE))
    done = await operations.resend(house, guest.user_id, message_id)
    return await answers(house, guest, notice=Notice(done.text))


@router.get("/rejected")
async def show_rejected(house: HouseDep, guest: Annotated[Guest, needs("read", "all")], after: After = "") -> Response:
    rows = await house.db.read(lambda conn: rejected_page(conn, _SHOWN + 1, read_point(after or None)))
    shown, older = _page(rows, "created_at")
    return show(guest, "rejected.html", rows=shown, older=older)


@router.post("/acts")
async def act_on_several(
    house: HouseDep,
    guest: Annotated[Guest, OPERATES],
    act: Annotated[Literal["retry", "discard"], Form()],
    message: Annotated[list[_Id], Form(max_length=_MOST)] = [],  # noqa: B006 - FastAPI copies it
    choice: Choice = "",
    model: Annotated[str, Form(max_length=200)] = "",
    agent: Annotated[str, Form(max_length=100)] = "",
) -> Response:
    if not message:
        raise RefusedError("nothing is selected: tick the letters first")
    provider, named = chosen(choice, model)
    done: list[str] = []
    refused: list[str] = []
    for message_id in message:
        try:
            done.append(await _act(house, guest, act, message_id, provider, named))
        except RefusedError as error:
            refused.append(str(error))
        except HTTPException as error:
            refused.append(str(error.detail))
    return await letters(house, guest, agent, notice=_told(act, done, refused))


async def _act(house: House, guest: Guest, act: str, message_id: str, provider: str | None, model: str | None) -> str:
    await house.db.read(lambda conn: message_of(conn, guest.user_id, message_id, Act.OPERATE, _LETTER))
    if act == "discard":
        return (await operations.discard(house, guest.user_id, message_id)).text
    return (await operations.retry(house, guest.user_id, message_id, provider=provider, model=model)).text


@router.get("/{message_id}")
async def show_letter(house: HouseDep, message_id: MessageId, guest: Annotated[Guest, LOOKS]) -> Response:
    return await one(house, guest, await house.db.read(lambda conn: _letter(conn, guest, message_id)))


@router.post("/{message_id}/{act}")
async def act_on_one(
    house: HouseDep,
    message_id: MessageId,
    act: Literal["retry", "discard"],
    guest: Annotated[Guest, OPERATES],
    choice: Choice = "",
    model: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    text = await _act(house, guest, act, message_id, *chosen(choice, model))
    row = await house.db.read(lambda conn: find_message(conn, message_id))
    assert row is not None
    return await one(house, guest, row, Notice(text))


async def _letter(conn: AsyncConnection, guest: Guest, message_id: str) -> AnyRow:
    return await message_of(conn, guest.user_id, message_id, Act.OVERSEE, _LETTER)


def _page(rows: Sequence[AnyRow], moment: str, **asked: str) -> tuple[Sequence[AnyRow], str]:
    """What fits, and the address of what follows."""
    shown = rows[:_SHOWN]
    if len(rows) <= _SHOWN:
        return shown, ""
    point = Point(getattr(shown[-1], moment), shown[-1].id)
    return shown, "?" + urlencode(asked | {"after": str(point)})


def _told(act: str, done: list[str], refused: list[str]) -> Notice:
    if len(done) == 1 and not refused:
        return Notice(done[0])
    words = "back in the queue" if act == "retry" else "put away"
    text = f"{len(done)} {words}"
    if refused:
        text += f"; {len(refused)} not: {refused[0]}"
    return Notice(text, bad=bool(refused))
