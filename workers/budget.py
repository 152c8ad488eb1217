"""Keeping to a budget: money is held before a model call and settled after it. At the limit the turn is parked and
those who decide for the agent are asked; their yes (or the next day) lets it go on."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass, ProviderError
from adapters.registry import Registry
from models.base import new_id
from models.budgets import EVERYBODY, TASK, WORKFLOW, ask_for_more, awaits_approval, day_of, reserve, today
from models.consent import BUDGET, find_approval
from models.database import Database
from models.lookup import short
from models.quoting import named
from workers.consent.approvers import is_public, resolve_approvers
from workers.consent.budget_raises import dollars
from workers.consent.requests import Place, Request, put_request
from workers.journal import Journal
from workers.opening import OpenedTurn
from workers.replies import ReplyTo

# How soon to look again when the money is not spent, only held.
HELD_SECONDS = 2.0
# For how long more money for a workflow is asked for; its own time may run out before.
WORKFLOW_SECONDS = 86_400.0


@dataclass(frozen=True)
class Limit:
    """So many dollars a day, for everybody (an empty user), for one person, or for one task (`TASK` and its id). For a
    workflow (`WORKFLOW` and its id) they are for all of it, and counted on the day it began (`day`)."""

    user_id: str
    usd: float
    day: datetime | None = None


class _OverBudget(Exception):  # noqa: N818 - a way out of a transaction, not an error
    """Rolls back what was held so far."""

    def __init__(self, limit: Limit, day: datetime) -> None:
        super().__init__(limit, day)
        self.limit = limit
        self.day = day


def limits_of(turn: OpenedTurn, user_id: str | None) -> list[Limit]:
    """What the group's configuration and the task's terms say; none: it may spend what it likes."""
    budget = turn.config.get("budget") or {}
    limits = []
    if budget.get("daily_usd") is not None:
        limits.append(Limit(EVERYBODY, float(budget["daily_usd"])))
    if budget.get("user_daily_usd") is not None and user_id:
        limits.append(Limit(user_id, float(budget["user_daily_usd"])))
    if turn.terms.daily_usd is not None and turn.series_id is not None:
        limits.append(Limit(f"{TASK}{turn.series_id}", turn.terms.daily_usd))
    if turn.assignment is not None and turn.assignment.budget_usd is not None:
        limit = turn.assignment.budget_usd
        limits.append(Limit(f"{WORKFLOW}{turn.assignment.workflow_id}", limit, turn.assignment.began))
    return limits


class Purse:
    """The money of one turn."""

    def __init__(
        self, db: Database, registry: Registry, journal: Journal, turn: OpenedTurn, user_id: str | None
    ) -> None:
        self._db = db
        self._registry = registry
        self._journal = journal
        self._turn = turn
        self._limits = limits_of(turn, user_id)
        self._reached: tuple[Limit, datetime] | None = None
        # Notices to deliver once they are written.
        self.deliveries: list[str] = []

    async def hold(self, step_id: str, usd: float | None) -> None:
        """Hold money for a call. Raises ProviderError(BUDGET) when a limit is reached, after asking for more."""
        if not self._limits or usd is None:
            return
        turn = self._turn

        async def work(conn: AsyncConnection, _: int) -> None:
            date = await today(conn)
            for limit in self._limits:
                day = limit.day or date
                key = {"step_id": step_id, "turn_id": turn.id, "agent_group_id": turn.agent_group_id}
                if not await reserve(conn, **key, user_id=limit.user_id, day=day, cap=limit.usd, usd=usd):
                    raise _OverBudget(limit, day)

        try:
            await self._journal.write(work)
        except _OverBudget as over:
            self._reached = over.limit, over.day
            await self._refuse(over.limit, over.day)

    async def is_decided(self, conn: AsyncConnection) -> bool:
        """Whether nobody is asked any more about the limit that was reached: whoever decided while the turn was not
        parked yet had nothing to ring for. Other limits' questions are other turns' concern."""
        if self._reached is None:
            return False
        limit, day = self._reached
        return not await awaits_approval(conn, self._turn.agent_group_id, limit.user_id, day)

    async def _refuse(self, limit: Limit, day: datetime) -> None:
        turn = self._turn
        budget = f"the {'' if limit.day else 'daily '}budget of {_whose(turn.folder, limit.user_id)}"
        reason = f"{budget} ({dollars(limit.usd)}) is spent"
        if not turn.delivers:  # nobody would hear of the request, and all others would wait for its answer
            raise ProviderError(f"{reason}, and a replay does not ask for more", ErrorClass.BUDGET, None, False)
        request = self._request(limit, day, reason)
        # A workflow's budget is not filled up again overnight.
        seconds = _until_tomorrow(day) if limit.day is None else WORKFLOW_SECONDS
        denied = held = False
        deliveries: list[str] = []

        async def work(conn: AsyncConnection, _: int) -> None:
            nonlocal denied, held, deliveries
            spent = await day_of(conn, turn.agent_group_id, limit.user_id, day)
            earlier = await find_approval(conn, spent.approval_id) if spent.approval_id else None
            denied = earlier is not None and earlier.status == "denied"
            held = spent.spent_usd < limit.usd + spent.extra_usd
            if held or (earlier is not None and earlier.status in ("pending", "denied")):
                return
            deliveries = await put_request(conn, request, approvers, seconds)
            await ask_for_more(conn, spent, request.approval_id)

        assert request.here is not None
        approvers = await resolve_approvers(self._db, self._registry, turn.agent_group_id, request.here.channel_type)
        await self._journal.write(work)
        self.deliveries += deliveries
        if held:
            why = f"what is left of {budget} is held by calls under way"
            raise ProviderError(why, ErrorClass.RATE_LIMIT, HELD_SECONDS, False)
        if denied:
            raise ProviderError(f"{reason}, and more was not granted", ErrorClass.BUDGET, None, False)
        raise ProviderError(reason, ErrorClass.BUDGET, seconds, False)

    def _request(self, limit: Limit, day: datetime, reason: str) -> Request:
        turn = self._turn
        here = ReplyTo.to_last_of(turn.lease.session_id, turn.messages)
        public = is_public(self._registry, here.channel_type)
        return Request(
            approval_id=new_id(),
            session_id=turn.lease.session_id,
            turn_id=turn.id,
            category=BUDGET,
            summary=f"{reason}; allow {dollars(limit.usd)} more{'' if limit.day else ' today'}?",
            risk="medium",
            payload={
                "agent_group_id": turn.agent_group_id,
                "user_id": limit.user_id,
                "day": day.date().isoformat(),
                "usd": limit.usd,
            },
            agent=turn.folder,
            here=Place(here.channel_type, here.platform_id, here.thread_id, public),
            waiting=f"I have to pause: {reason}. Whoever runs me was asked for more; I go on then"
            f"{'.' if limit.day else ', or tomorrow.'}",
        )


def _whose(folder: str, user_id: str) -> str:
    if user_id.startswith(TASK):
        return f"task {short(user_id)} of {folder}"
    if user_id.startswith(WORKFLOW):
        return f"workflow {short(user_id)}"
    return folder if user_id == EVERYBODY else f"{folder} for {named(user_id)}"


def _until_tomorrow(day: datetime) -> float:
    midnight = (day + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - day).total_seconds()
