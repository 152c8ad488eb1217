"""What a turn's risky calls need before they are made: somebody's approval, for exactly one payload, once, and in time.

A risky call writes down what it wants (the whole payload and its hash) and parks. Whoever decides (`approvals.py`) ends
the rest; the next attempt at the turn uses the approval up and runs the call. A call that is not the one that was
approved, to the letter, is refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import ParkedError
from adapters.events import ApprovalRequested
from adapters.tool_port import Concern
from models.base import AnyRow, storable_json
from models.consent import TOOL, expire_approval, find_approval, use_approval
from models.database import Database
from models.quoting import one_line
from workers.actions.caller import Caller
from workers.bells import Bells
from workers.consent.approvers import is_public, resolve_approvers
from workers.consent.requests import Place, Request, hash_of, put_request, shown
from workers.journal import Journal

SUMMARY_LIMIT: Final = 300
SHOWN_LIMIT: Final = 60_000  # characters; nobody reads more before they say yes


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
                return _too_late(tool)

    async def _use(self, approval: AnyRow, tool: str, payload: dict[str, Any]) -> Verdict:
        if not approval.payload_hash == hash_of(payload) == hash_of(approval.payload):
            why = f"{tool} was not run: this is not the call that was approved. Ask again with a new call."
            return Verdict("no", why)
        used = False

        async def work(conn: AsyncConnection, _: int) -> None:
            nonlocal used
            used = await use_approval(conn, approval.id) or used

        await self._journal.write(work, activity=f"tool: {tool}")
        return Verdict("go") if used else _too_late(tool)

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


def _too_late(tool: str) -> Verdict:
    return Verdict("no", f"{tool} was not approved in time.")
