"""What a decision about more money does (the asking is in `workers/budget.py`)."""

from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass
from models.base import AnyRow
from models.budgets import add_extra, day_of
from models.sessions import Session, end_rest
from models.turns import Turn


async def decide_raise(
    conn: AsyncConnection, approval: AnyRow, *, approve: bool, usd: float | None
) -> tuple[str, list[tuple[str, str | None]]]:
    """What a decision about a raise does, in the transaction that writes it: in words, and which sessions (with their
    providers) go on. `usd`: another amount than was asked for."""
    asked = approval.payload
    # Locked first: a turn that is just being parked looks at it under the same lock.
    day = datetime.fromisoformat(asked["day"]).replace(tzinfo=UTC)
    await day_of(conn, asked["agent_group_id"], asked["user_id"], day)
    amount = usd if usd is not None else float(asked["usd"])
    if approve:
        await add_extra(conn, asked["agent_group_id"], asked["user_id"], asked["day"], amount)
    wakes = await _end_rests(conn, asked["agent_group_id"])
    said = f"{dollars(amount)} more for {asked['day']}" if approve else "denied: what waits for it is given up"
    return f"{said}; {len(wakes)} waiting turn{'s' * (len(wakes) != 1)} rung for", wakes


async def _end_rests(conn: AsyncConnection, agent_group_id: str) -> list[tuple[str, str | None]]:
    query = (
        select(Turn.session_id, Turn.provider)
        .join(Session, Session.id == Turn.session_id)
        .where(Turn.status == "parked", Turn.error_class == ErrorClass.BUDGET, Session.agent_group_id == agent_group_id)
        .order_by(Turn.session_id)
    )
    waiting = [(row.session_id, row.provider) for row in (await conn.execute(query)).all()]
    for session_id, _ in waiting:
        await end_rest(conn, session_id)
    return waiting


def dollars(usd: float) -> str:
    """As people write it, also when it is very little."""
    return f"${usd:,.2f}" if usd >= 0.01 else f"${usd:.8f}".rstrip("0").rstrip(".")
