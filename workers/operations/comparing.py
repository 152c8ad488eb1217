"""A replay beside its original, turn by turn: what was said, what came of it, with which tools, for how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.replays import called_in, copies_of, originals_of, said_in, turns_named
from models.spending import Spent, usage_of_turns
from workers.formatting import plain_text

_USED: Final = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "cost_usd")


@dataclass(frozen=True)
class ToolUse:
    name: str
    ok: bool | None  # None: it has not come back
    seconds: float | None


@dataclass(frozen=True)
class Side:
    """One run of a turn. `messages` and `answers`, in their order, are {"id", "seq", "kind", "status", "text",
    "created_at"}; messages have a "sender" too. Without a `status`: it waits to be begun, or was pruned."""

    session_id: str
    turn_id: str | None
    number: int | None
    status: str | None
    provider: str | None
    model: str | None
    error: str | None
    messages: tuple[dict[str, Any], ...] = ()
    answers: tuple[dict[str, Any], ...] = ()
    tools: tuple[ToolUse, ...] = ()
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None  # None: nobody says what it cost
    seconds: float | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def read_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True)
class Pair:
    original: Side
    replayed: Side


@dataclass(frozen=True)
class _Found:
    """All that is known of the turns of both sides, by the turn's id."""

    turns: dict[str, AnyRow]
    said: dict[str, list[AnyRow]]
    called: dict[str, list[AnyRow]]
    used: dict[str, Spent]

    def side(self, session_id: str, turn_id: str | None, messages: Sequence[AnyRow]) -> Side:
        turn = self.turns.get(turn_id) if turn_id is not None else None
        said = tuple(map(_message, messages))
        if turn is None:
            return Side(session_id, turn_id, None, None, None, None, None, said)
        used = self.used.get(turn.id)
        return Side(
            session_id=session_id,
            turn_id=turn.id,
            number=turn.number,
            status=turn.status,
            provider=turn.provider,
            model=turn.model,
            error=turn.error,
            messages=said,
            answers=tuple(_answer(row) for row in self.said.get(turn.id, [])),
            tools=tuple(_tool(row) for row in self.called.get(turn.id, [])),
            **({name: getattr(used, name) for name in _USED} if used is not None else {}),
            seconds=_seconds(turn.started_at, turn.ended_at),
            started_at=turn.started_at,
            ended_at=turn.ended_at,
        )


async def compare(conn: AsyncConnection, session_id: str, after: int = 0, limit: int | None = None) -> list[Pair]:
    """Each turn of the original that a replay says again, beside what came of it; nothing for what is no replay.
    `after`, `limit`: without so many at the beginning, and so many then."""
    groups: list[list[AnyRow]] = [[]]
    for row in await copies_of(conn, session_id):
        groups[-1].append(row)
        if row.provider is not None:  # with it its turn is complete
            groups.append([])
    groups = [group for group in groups if group][after:][:limit]
    originals = await originals_of(conn, session_id)
    ids = {id for group in groups for row in group for id in (row.turn_id, row.original_turn) if id is not None}
    turns = sorted(ids)
    found = _Found(
        await turns_named(conn, turns),
        await said_in(conn, turns),
        await called_in(conn, turns),
        await usage_of_turns(conn, turns),
    )
    return [_pair(found, group, originals) for group in groups]


def _pair(found: _Found, group: Sequence[AnyRow], originals: dict[str, AnyRow]) -> Pair:
    before = [originals[row.replay_of] for row in group if row.replay_of in originals]
    session = before[-1].session_id if before else ""
    original = found.side(session, group[-1].original_turn, before)
    return Pair(original, found.side(group[-1].session_id, group[-1].turn_id, group))


def _message(row: AnyRow) -> dict[str, Any]:
    return _shown(row, plain_text(row)) | {"sender": row.content.get("sender")}


def _answer(row: AnyRow) -> dict[str, Any]:
    return _shown(row, str(row.content.get("text") or ""))


def _shown(row: AnyRow, text: str) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in ("id", "seq", "kind", "status", "created_at")}
    return facts | {"text": text}


def _tool(row: AnyRow) -> ToolUse:
    ok = None if row.status == "started" else row.status == "finished"
    return ToolUse(row.name, ok, _seconds(row.started_at, row.ended_at))


def _seconds(began: datetime | None, ended: datetime | None) -> float | None:
    return None if began is None or ended is None else round((ended - began).total_seconds(), 3)
