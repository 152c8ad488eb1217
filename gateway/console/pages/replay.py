"""Replays: saying a session's messages again on another provider or model, and both beside each other, turn by turn."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.forms.choices import chosen
from gateway.console.rendering.diffs import Piece, difference
from gateway.console.responses import show_beside
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import RowId
from gateway.http.belongings import session_of
from gateway.http.dependencies import HouseDep
from models.base import AnyRow
from workers.access import Act
from workers.operations.replays import MAX_TURNS, Pair, Side, compare, replay
from workers.refusals import RefusedError

PAIRS: Final = 20  # on a page
_ENDED: Final = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Compared:
    """A turn beside its replay. `pieces`: how the texts differ; None: too long to compare, or not both are there."""

    pair: Pair
    pieces: list[Piece] | None

    @property
    def is_over(self) -> bool:
        return self.pair.replayed.status in _ENDED

    @property
    def is_same(self) -> bool:
        return self.pieces is not None and all(piece.op == "same" for piece in self.pieces)


@dataclass(frozen=True)
class Totals:
    """Of one side, over the turns that have ended on both. None: of some of them it is not known."""

    output_tokens: int
    cost_usd: float | None
    seconds: float | None

    @classmethod
    def of(cls, sides: Sequence[Side]) -> "Totals":
        costs, spans = _sum(side.cost_usd for side in sides), _sum(side.seconds for side in sides)
        return cls(sum(side.output_tokens for side in sides), costs, spans)


router = APIRouter()


@router.post("/sessions/{session_id}/replay")
async def make_replay(
    house: HouseDep,
    request: Request,
    session_id: RowId,
    guest: Annotated[Guest, needs("operate", "some")],
    key: Annotated[str, Form(min_length=1, max_length=100)],
    turns: Annotated[list[int], Form(max_length=MAX_TURNS)] = [],  # noqa: B006 - FastAPI copies it
    everything: Annotated[str, Form(alias="all", max_length=5)] = "",
    choice: Annotated[str, Form(max_length=320)] = "",
    model: Annotated[str, Form(max_length=200)] = "",
    delivery: Annotated[str, Form(max_length=5)] = "",
) -> Response:
    if not turns and not everything:
        raise RefusedError("choose the turns to say again")
    provider, named = chosen(choice, model)
    await house.db.read(lambda conn: session_of(conn, guest.user_id, session_id, Act.OPERATE))
    made = await replay(
        house,
        guest.user_id,
        session_id,
        turns=None if everything else sorted(set(turns)),
        provider=provider,
        model=named,
        delivery=bool(delivery),
        key=key,
    )
    address = f"/console/replays/{made.session_id}"
    if "hx-request" in request.headers:
        return Response(headers={"HX-Redirect": address})
    return RedirectResponse(address, 303)


@router.get("/replays/{session_id}")
async def show_replay(
    house: HouseDep,
    session_id: RowId,
    guest: Annotated[Guest, needs("read", "some")],
    after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> Response:
    async def look(conn: AsyncConnection) -> tuple[AnyRow, list[Pair]]:
        row = await session_of(conn, guest.user_id, session_id)
        return row, await compare(conn, session_id, after, PAIRS + 1) if row.replay_of is not None else []

    session, pairs = await house.db.read(look)
    if session.replay_of is None:
        raise HTTPException(404, "this session is no replay: its page has a form that makes one")
    following = after + PAIRS if len(pairs) > PAIRS else None
    compared = await asyncio.to_thread(lambda: [Compared(pair, _difference(pair)) for pair in pairs[:PAIRS]])
    pairs_over = [one.pair for one in compared if one.is_over and one.pair.original.status in _ENDED]
    totals = [Totals.of([pair.original for pair in pairs_over]), Totals.of([pair.replayed for pair in pairs_over])]
    values = {"session": session, "compared": compared, "after": after, "following": following}
    values |= {"totals": totals, "ended": len(pairs_over), "same": sum(one.is_same for one in compared)}
    return await show_beside(guest, "replay.html", **values)


def _sum(amounts: Iterable[float | None]) -> float | None:
    """Of all or of none: a sum that leaves something out would compare badly."""
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def _difference(pair: Pair) -> list[Piece] | None:
    if not pair.original.answers or not pair.replayed.answers:
        return None
    return difference(_said(pair.original), _said(pair.replayed))


def _said(side: Side) -> str:
    return "\n\n".join(str(answer["text"] or "") for answer in side.answers)
