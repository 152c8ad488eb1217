"""Decisions about approvals: a yes or no, once, in time, by somebody with the standing for it. `decide` is the one way
to a decision, for cards, the command line and the API; what a turn waits for it with is in `risky_calls.py`."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from models.approvers import name_of
from models.audit import note
from models.base import AnyRow
from models.consent import ACCESS, BUDGET, Approval, decide_approval, find_approval, lock_session_of
from models.database import Database
from models.quoting import quoted
from models.sessions import end_rest, find_session
from workers.access import Act, may
from workers.consent.budget_raises import decide_raise
from workers.consent.requests import hash_of
from workers.consent.strangers import decide_access, stop_while_deciding
from workers.house import Done
from workers.refusals import RefusedError

OPERATOR: Final = "cli"
_ACTS: Final = {BUDGET: Act.RAISE_BUDGET, ACCESS: Act.ADMIT}


@dataclass(frozen=True)
class Decision:
    """A yes or no. `user_id`: who says it, by the identity a platform or a token vouches for; None: the operator at the
    terminal, who may do everything. `shown`: the hash of what they were shown, if a card showed it. `usd`: for a
    budget, another amount than was asked for."""

    approve: bool
    user_id: str | None = None
    shown: str | None = None
    usd: float | None = None

    @property
    def by(self) -> str:
        """As it is kept."""
        return (self.user_id or OPERATOR)[:255]


async def decide(
    db: Database,
    approval_id: str,
    *,
    approve: bool,
    user_id: str | None = None,
    shown: str | None = None,
    usd: float | None = None,
) -> Done:
    """Say yes or no. Once; RefusedError says why it cannot be decided, or not by this person: they must have the
    standing for it now, whatever it was when they were asked."""
    decision = Decision(approve, user_id, shown, usd)

    async def work(conn: AsyncConnection) -> Done:
        return await decide_within(conn, approval_id, decision)

    return await db.transact(work)


async def decide_within(conn: AsyncConnection, approval_id: str, decision: Decision) -> Done:
    """The same in a transaction of the caller's, which is to be rolled back if this raises."""
    await stop_while_deciding(conn, approval_id)
    await lock_session_of(conn, Approval, approval_id)
    approval = await find_approval(conn, approval_id)
    if approval is None:
        raise RefusedError(f"there is no approval {approval_id!r}")
    await _check(conn, approval, decision)
    if approval.status != "pending" or approval.expires_at <= approval.at:
        raise RefusedError(await _too_late(conn, approval))
    await _note(conn, approval, decision)
    if approval.category == ACCESS:
        return await decide_access(conn, approval_id, decision.approve, decision.by)
    closed = await decide_approval(conn, approval_id, "approved" if decision.approve else "denied", decision.by)
    if closed is None:  # its time has run out just now
        raise RefusedError("it is already expired")
    carry_out = _raise_budget if approval.category == BUDGET else _let_go_on
    done = await carry_out(conn, closed.row, decision)
    done.deliveries += closed.deliveries
    return done


async def _note(conn: AsyncConnection, approval: AnyRow, decision: Decision) -> None:
    session = await find_session(conn, approval.session_id)
    assert session is not None
    said, of = "approve" if decision.approve else "deny", session.agent_group_id
    about = {"decision": said, "category": approval.category, "usd": decision.usd}
    await note(conn, decision.by, "approval.decide", approval.id, agent_group_id=of, **about)


async def may_decide(conn: AsyncConnection, approval_id: str, user_id: str) -> bool:
    """Whether this person has the standing for it."""
    approval = await find_approval(conn, approval_id)
    return approval is not None and await _may(conn, approval, user_id)


async def _may(conn: AsyncConnection, approval: AnyRow, user_id: str) -> bool:
    session = await find_session(conn, approval.session_id)
    assert session is not None
    return await may(conn, user_id, session.agent_group_id, _ACTS.get(approval.category, Act.APPROVE))


async def _check(conn: AsyncConnection, approval: AnyRow, decision: Decision) -> None:
    if decision.user_id is not None and not await _may(conn, approval, decision.user_id):
        raise RefusedError("you may not decide this: it is for the admins of this agent and the owners")
    shown = approval.payload_hash if decision.shown is None else decision.shown
    if not shown == approval.payload_hash == hash_of(approval.payload):
        raise RefusedError("what was shown is not what is asked for now, so nothing was decided")
    if decision.usd is not None and approval.category != BUDGET:
        raise RefusedError("an amount is for a budget; this is about something else")


async def _too_late(conn: AsyncConnection, approval: AnyRow) -> str:
    if approval.status in ("pending", "expired"):
        return "it is already expired"
    word = "denied" if approval.status == "denied" else "approved"
    return f"it is already {word} by {await name_of(conn, approval.decided_by)}"


async def _raise_budget(conn: AsyncConnection, approval: AnyRow, decision: Decision) -> Done:
    said, wakes = await decide_raise(conn, approval, approve=decision.approve, usd=decision.usd)
    return Done(said, wakes)


async def _let_go_on(conn: AsyncConnection, approval: AnyRow, decision: Decision) -> Done:
    """The turn goes on: its next attempt uses the approval up, or hears the no."""
    await end_rest(conn, approval.session_id)
    session = await find_session(conn, approval.session_id)
    assert session is not None
    said = f"{'approved, once' if decision.approve else 'denied'}: {quoted(approval.summary)}"
    return Done(said, [(session.id, session.provider or session.group_provider)])
