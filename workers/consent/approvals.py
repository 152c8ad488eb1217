"""Approvals: what an agent may do only if somebody says so, for exactly one payload, once, and in time.

A risky call writes down what it wants (the whole payload and its hash) and parks. Whoever decides ends the rest; the
next attempt at the turn uses the approval up and runs the call. A call that is not the one that was approved, to the
letter, is refused. `decide` is the one way to a decision, for cards, the command line and the API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import ParkedError
from adapters.events import ApprovalRequested
from adapters.tool_port import Concern
from models.approvers import name_of
from models.audit import note
from models.base import AnyRow, storable_json
from models.consent import (
    ACCESS,
    BUDGET,
    TOOL,
    Approval,
    decide_approval,
    expire_approval,
    find_approval,
    lock_session_of,
    use_approval,
)
from models.database import Database
from models.quoting import one_line, quoted
from models.sessions import end_rest, find_session
from workers.access import Act, may
from workers.actions.caller import Caller
from workers.bells import Bells
from workers.budget import decide_raise
from workers.consent.approvers import is_public, resolve_approvers
from workers.consent.requests import Place, Request, hash_of, put_request, shown
from workers.consent.strangers import decide_access, stop_while_deciding
from workers.house import Done
from workers.journal import Journal
from workers.refusals import RefusedError

SUMMARY_LIMIT: Final = 300
SHOWN_LIMIT: Final = 60_000  # characters; nobody reads more before they say yes
OPERATOR: Final = "cli"
_ACTS: Final = {BUDGET: Act.RAISE_BUDGET, ACCESS: Act.ADMIT}


@dataclass(frozen=True)
class Verdict:
    """`go`: approved, and the approval is used up by this. `begun`: an earlier attempt has used it. `no`: `why` not."""

    word: Literal["go", "begun", "no"]
    why: str = ""


class Consent:
    """The approvals of one turn's risky calls."""

    def __init__(self, db: Database, bells: Bells, journal: Journal, caller: Caller, seconds: float) -> None:
        self._db = db
        self._bells = bells
        self._journal = journal
        self._caller = caller
        self._seconds = seconds

    async def take(
        self, step_id: str, tool: str, arguments: Mapping[str, Any], concern: Concern | None = None
    ) -> Verdict:
        """Whether the call may be made. ParkedError: nobody has decided yet. `concern` is for people: what it is about,
        if the call's own words do not say it best."""
        payload = self._payload(tool, arguments)
        approval = await self._db.read(lambda conn: find_approval(conn, step_id))
        if approval is None:
            await self._ask(step_id, tool, payload, concern)
            raise ParkedError(f"{tool} waits for approval", self._seconds)
        left = (approval.expires_at - approval.at).total_seconds()
        if approval.status == "pending" and left > 0:
            raise ParkedError(f"{tool} waits for approval", left)
        match approval.status:
            case "used":
                return Verdict("begun")
            case "denied":
                return Verdict("no", f"{tool} was not approved: {approval.decided_by} said no. Do not get around it.")
            case "approved" if left > 0:
                return await self._use(approval, tool, payload)
            case _:
                for message_out_id in await self._db.transact(lambda conn: expire_approval(conn, step_id)):
                    self._bells.deliver(message_out_id)
                return Verdict("no", f"{tool} was not approved in time.")

    async def _use(self, approval: AnyRow, tool: str, payload: dict[str, Any]) -> Verdict:
        if not approval.payload_hash == hash_of(payload) == hash_of(approval.payload):
            why = f"{tool} was not run: this is not the call that was approved. Ask again with a new call."
            return Verdict("no", why)
        used = False

        async def work(conn: AsyncConnection, _: int) -> None:
            nonlocal used
            used = await use_approval(conn, approval.id) or used

        await self._journal.write(work, activity=f"tool: {tool}")
        return Verdict("go" if used else "begun")

    def can_show(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether somebody could be asked for it: a card says all of it, in marks that may take ten times the room."""
        return len(shown(self._payload(tool, arguments))) <= SHOWN_LIMIT

    def _payload(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """As it is stored: what the database cannot hold must not make it another one."""
        whose = {"agent_group": self._caller.turn.folder, "session": self._caller.session_id}
        payload: dict[str, Any] = json.loads(storable_json({"tool": tool, "arguments": dict(arguments), **whose}))
        return payload

    async def _ask(self, step_id: str, tool: str, payload: dict[str, Any], concern: Concern | None) -> None:
        words = ", ".join(f"{key}={value}" for key, value in payload["arguments"].items())
        concern = concern or Concern(TOOL, f"{tool}({words})", "high")
        summary = one_line(f"{self._caller.turn.folder} wants {concern.summary}", SUMMARY_LIMIT)
        here, registry = self._caller.reply_to, self._caller.registry
        request = Request(
            approval_id=step_id,
            session_id=self._caller.session_id,
            turn_id=self._journal.turn_id,
            category=concern.category,
            summary=summary,
            risk=concern.risk,
            payload=payload,
            agent=self._caller.turn.folder,
            asked_by=self._caller.people,
            here=Place(here.channel_type, here.platform_id, here.thread_id, is_public(registry, here.channel_type)),
            waiting=f"I wait for an approval before I go on ({tool}). Whoever runs me has been asked.",
        )
        group = self._caller.turn.agent_group_id
        approvers = await resolve_approvers(self._db, registry, group, here.channel_type)
        deliveries: list[str] = []

        async def work(conn: AsyncConnection, _: int) -> None:
            nonlocal deliveries
            deliveries = await put_request(conn, request, approvers, self._seconds)

        event = ApprovalRequested(
            id=step_id, category=concern.category, summary=summary, risk=concern.risk, context=payload
        )
        await self._journal.write(work, activity="awaiting human", events=[event])
        for message_out_id in deliveries:
            self._bells.deliver(message_out_id)


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
