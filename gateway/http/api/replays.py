"""`/v1/sessions/{id}/replays`, `/v1/replays`: what was said to an agent, said again elsewhere, and both beside each
other."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.http.api.dead import Name
from gateway.http.api.forms import EXCERPT, MOST, After, Limit, RowId, read_number, sensible
from gateway.http.api.messages import Key
from gateway.http.belongings import session_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import HouseDep
from gateway.http.problems import documented
from workers.access import Act
from workers.failover import check_choice
from workers.operations.replays import MAX_TURNS, Pair, Replay, Side, compare, replay

_PARTS: Final = ("messages", "answers", "tools")


class ReplayOrder(BaseModel):
    model_config = ConfigDict(extra="forbid")

    turns: list[Annotated[int, Field(ge=1, lt=2**31)]] | None = Field(
        None, min_length=1, max_length=MAX_TURNS, description="numbers of turns; all, if not given"
    )
    provider: Name | None = Field(None, description="as the original, if not given")
    model: Name | None = None
    delivery: bool = Field(False, description="whether what the agent says leaves the house")


class ReplayView(BaseModel):
    """A session of its own, in which it is said again."""

    session: str
    replay_of: str
    turns: list[int]
    provider: str
    model: str | None
    delivers: bool
    duplicate: bool = Field(description="it was there before, under its key")


class ToolUseView(BaseModel):
    name: str
    ok: bool | None = Field(description="null: it has not come back")
    seconds: float | None


class SideView(BaseModel):
    """One run of a turn. Without a status it waits to be begun."""

    session: str
    turn: str | None
    number: int | None
    status: str | None
    provider: str | None
    model: str | None
    error: str | None
    messages: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    tools: list[ToolUseView]
    cut: bool = Field(description="there are more messages, answers or tools, or a text is longer than here")
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float | None
    started_at: datetime | None
    ended_at: datetime | None


class PairView(BaseModel):
    original: SideView
    replayed: SideView


class Comparison(BaseModel):
    session: str
    replay_of: str
    pairs: list[PairView] = Field(description="turn by turn")
    next: str | None = Field(None, description="give it as `after` for the turns that follow; null: this was the end")


router = APIRouter(tags=["replays"])


@router.post("/sessions/{session_id}/replays", status_code=201, responses=documented(404, 409))
async def make_replay(
    house: HouseDep,
    session_id: RowId,
    caller: Annotated[Caller, needs("operate")],
    response: Response,
    order: ReplayOrder | None = None,
    key: Key = None,
) -> ReplayView:
    """Say a session's messages again, in a session of its own from which nothing leaves unless `delivery` is true.
    The same `Idempotency-Key` makes one. 409: a turn is not there or has not ended, or the key was used for
    something else."""
    await house.db.read(lambda conn: session_of(conn, caller.user_id, session_id, Act.OPERATE))
    wanted = order or ReplayOrder()
    with sensible():
        check_choice(house.registry, wanted.provider, wanted.model)
    made = await replay(
        house,
        caller.user_id,
        session_id,
        turns=wanted.turns,
        provider=wanted.provider,
        model=wanted.model,
        delivery=wanted.delivery,
        key=key,
    )
    response.headers["Location"] = f"/v1/replays/{made.session_id}"
    return _replay(made)


@router.get("/replays/{session_id}", responses=documented(404))
async def show_replay(
    house: HouseDep, session_id: RowId, caller: Annotated[Caller, needs("read")], limit: Limit = 50, after: After = None
) -> Comparison:
    """Each turn of the original that is said again, beside what came of it."""
    begin = read_number(after)

    async def look(conn: AsyncConnection) -> tuple[str | None, list[Pair]]:
        row = await session_of(conn, caller.user_id, session_id)
        return row.replay_of, await compare(conn, session_id, begin, limit + 1) if row.replay_of is not None else []

    replay_of, pairs = await house.db.read(look)
    if replay_of is None:
        raise HTTPException(404, "this session is no replay: POST /v1/sessions/{id}/replays makes one")
    shown = [PairView(original=_side(pair.original), replayed=_side(pair.replayed)) for pair in pairs[:limit]]
    following = str(begin + limit) if len(pairs) > limit else None
    return Comparison(session=session_id, replay_of=replay_of, pairs=shown, next=following)


def _replay(made: Replay) -> ReplayView:
    return ReplayView(
        session=made.session_id,
        replay_of=made.replay_of,
        turns=list(made.turns),
        provider=made.provider,
        model=made.model,
        delivers=made.delivers,
        duplicate=made.again,
    )


def _side(side: Side) -> SideView:
    """What was said to an agent, and by it, is cut to a bound, all of it together."""
    facts = asdict(side)
    cut = any(len(facts[part]) > MOST for part in _PARTS)
    facts |= {part: facts[part][:MOST] for part in _PARTS}
    for part in ("messages", "answers"):
        room = EXCERPT
        for said in facts[part]:
            cut = cut or len(said["text"]) > room
            said["text"] = said["text"][:room]
            room -= len(said["text"])
    return SideView(session=facts.pop("session_id"), turn=facts.pop("turn_id"), cut=cut, **facts)
