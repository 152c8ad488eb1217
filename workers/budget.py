"""Keeping to a budget: money is held before a model call and settled after it. At the limit the turn is parked and
those who decide for the agent are asked; their yes (or the next day) lets it go on."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass, ProviderError
from models.base import new_id
from models.budgets import EVERYBODY, add_extra, ask_for_more, day_of, reserve, today
from models.consent import Approval, decide_approval, find_approval
from models.database import Database
from models.people import approver_addresses
from models.sessions import Session, end_rest
from models.turns import Turn
from models.upsert import insert_ignoring
from workers.approvals import Decided, hash_of
from workers.ingest import RefusedError
from workers.journal import Journal
from workers.notices import notice, store_notices
from workers.opening import OpenedTurn
from workers.replies import ReplyTo

CATEGORY = "budget"
# How soon to look again when the money is not spent, only held.
HELD_SECONDS = 2.0


@dataclass(frozen=True)
class Limit:
    """So many dollars a day, for everybody (an empty user) or for one person."""

    user_id: str
    usd: float


class _OverBudget(Exception):  # noqa: N818 - a way out of a transaction, not an error
    """Rolls back what was held so far."""

    def __init__(self, limit: Limit, day: datetime) -> None:
        super().__init__(limit, day)
        self.limit = limit
        self.day = day


def limits_of(config: dict[str, Any], user_id: str | None) -> list[Limit]:
    """What a group's configuration says; none: it may spend what it likes."""
    budget = config.get("budget") or {}
    limits = []
    if budget.get("daily_usd") is not None:
        limits.append(Limit(EVERYBODY, float(budget["daily_usd"])))
    if budget.get("user_daily_usd") is not None and user_id:
        limits.append(Limit(user_id, float(budget["user_daily_usd"])))
    return limits


class Purse:
    """The money of one turn."""

    def __init__(self, db: Database, journal: Journal, turn: OpenedTurn, user_id: str | None) -> None:
        self._db = db
        self._journal = journal
        self._turn = turn
        self._limits = limits_of(turn.config, user_id)
        # Notices to deliver once they are written.
        self.deliveries: list[str] = []

    async def hold(self, step_id: str, usd: float | None) -> None:
        """Hold money for a call. Raises ProviderError(BUDGET) when a limit is reached, after asking for more."""
        if not self._limits or usd is None:
            return
        turn = self._turn

        async def work(conn: AsyncConnection, _: int) -> None:
            day = await today(conn)
            for limit in self._limits:
                key = {"step_id": step_id, "turn_id": turn.id, "agent_group_id": turn.agent_group_id}
                if not await reserve(conn, **key, user_id=limit.user_id, day=day, cap=limit.usd, usd=usd):
                    raise _OverBudget(limit, day)

        try:
            await self._journal.write(work)
        except _OverBudget as over:
            await self._refuse(over.limit, over.day)

    async def _refuse(self, limit: Limit, day: datetime) -> None:
        whose = "" if limit.user_id == EVERYBODY else f" for {limit.user_id}"
        reason = f"the daily budget of {self._turn.folder}{whose} ({dollars(limit.usd)}) is spent"
        denied = held = False
        rows: list[dict[str, Any]] = []

        async def work(conn: AsyncConnection, first_seq: int) -> None:
            nonlocal denied, held, rows
            spent = await day_of(conn, self._turn.agent_group_id, limit.user_id, day)
            earlier = await find_approval(conn, spent.approval_id) if spent.approval_id else None
            denied = earlier is not None and earlier.status == "denied"
            held = spent.spent_usd < limit.usd + spent.extra_usd
            rows = []
            if held:
                return
            if earlier is not None and earlier.status in ("pending", "denied"):
                return
            approval_id = new_id()
            rows = [row | {"seq": first_seq + n} for n, row in enumerate(self._notices(places, approval_id, reason))]
            await insert_ignoring(conn, Approval, **self._approval(approval_id, limit, day, reason))
            await ask_for_more(conn, spent, approval_id)
            await store_notices(conn, rows)

        places = await self._db.read(lambda conn: approver_addresses(conn, self._turn.agent_group_id))
        await self._journal.write(work, messages=1 + len(places))
        self.deliveries += [row["id"] for row in rows]
        if held:
            why = f"what is left of the daily budget of {self._turn.folder}{whose} is held by calls under way"
            raise ProviderError(why, ErrorClass.RATE_LIMIT, HELD_SECONDS, False)
        if denied:
            raise ProviderError(f"{reason}, and more was not granted", ErrorClass.BUDGET, None, False)
        raise ProviderError(reason, ErrorClass.BUDGET, _until_tomorrow(day), False)

    def _approval(self, approval_id: str, limit: Limit, day: datetime, reason: str) -> dict[str, Any]:
        payload = {
            "agent_group_id": self._turn.agent_group_id,
            "user_id": limit.user_id,
            "day": day.date().isoformat(),
            "usd": limit.usd,
        }
        return {
            "id": approval_id,
            "session_id": self._turn.lease.session_id,
            "turn_id": self._turn.id,
            "category": CATEGORY,
            "summary": f"{reason}; allow {dollars(limit.usd)} more today?",
            "risk": "medium",
            "payload": payload,
            "payload_hash": hash_of(payload),
            "expires_at": day + timedelta(seconds=_until_tomorrow(day)),
        }

    def _notices(self, places: list[tuple[str, str]], approval_id: str, reason: str) -> list[dict[str, Any]]:
        """One to the conversation, one to each who may decide. Seq numbers are given when they are written."""
        here = ReplyTo.to_last_of(self._turn.lease.session_id, self._turn.messages)
        session_id = self._turn.lease.session_id
        asked = f"{reason}. Allow more: longshore approve {approval_id[-8:]} (or deny)"
        said = f"I have to pause: {reason}. Whoever runs me was asked for more; I go on then, or tomorrow."
        to_people = [(here.channel_type, here.platform_id, here.thread_id, said)]
        to_people += [(channel, place, None, asked) for channel, place in places]
        return [
            notice(
                session_id=session_id,
                seq=0,
                key=f"{approval_id}:{number}",
                channel_type=channel,
                platform_id=place,
                thread_id=thread,
                text=text,
            )
            for number, (channel, place, thread, text) in enumerate(to_people)
        ]


def dollars(usd: float) -> str:
    """As people write it, also when it is very little."""
    return f"${usd:,.2f}" if usd >= 0.01 else f"${usd:.8f}".rstrip("0").rstrip(".")


def _until_tomorrow(day: datetime) -> float:
    midnight = (day + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - day).total_seconds()


async def decide_raise(
    db: Database, approval_id: str, *, approve: bool, decided_by: str, usd: float | None = None
) -> Decided:
    """Say yes or no to a raise. Once; RefusedError says why it cannot be decided."""

    async def work(conn: AsyncConnection) -> Decided:
        approval = await decide_approval(conn, approval_id, "approved" if approve else "denied", decided_by)
        if approval is None:
            known = await find_approval(conn, approval_id)
            if known is None:
                raise RefusedError(f"there is no approval {approval_id!r}")
            raise RefusedError(f"it is already {'expired' if known.status == 'pending' else known.status}")
        asked = approval.payload
        # Locked first: a turn that is just being parked looks at it under the same lock.
        day = datetime.fromisoformat(asked["day"]).replace(tzinfo=UTC)
        await day_of(conn, asked["agent_group_id"], asked["user_id"], day)
        amount = usd if usd is not None else float(asked["usd"])
        if approve:
            await add_extra(conn, asked["agent_group_id"], asked["user_id"], asked["day"], amount)
        wakes = await _end_rests(conn, asked["agent_group_id"])
        said = f"{dollars(amount)} more for {asked['day']}" if approve else "denied: what waits for it is given up"
        return Decided(f"{said}; {len(wakes)} waiting turn{'s' * (len(wakes) != 1)} rung for", wakes)

    return await db.transact(work)


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
