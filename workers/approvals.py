"""Approvals: what an agent may do only if somebody says so, for exactly one payload, once, and in time.

A risky call writes down what it wants (the whole payload and its hash) and parks. Whoever decides (`longshore approve`,
later a card) ends the rest; the next attempt at the turn uses the approval up and runs the call. A call that is not
the one that was approved, to the letter, is refused."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import ParkedError
from adapters.events import ApprovalRequested
from models.base import AnyRow, storable_json
from models.consent import decide_approval, expire_approval, find_approval, put_approval, use_approval
from models.database import Database
from models.people import approver_addresses
from models.sessions import end_rest, find_session
from workers.actions.caller import Caller
from workers.bells import Bells
from workers.ingest import RefusedError
from workers.journal import Journal
from workers.notices import notice, store_notices

CATEGORY: Final = "tool"
SUMMARY_LIMIT: Final = 300


def hash_of(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Wish:
    """What somebody is asked to approve, in words."""

    category: str
    summary: str
    risk: Literal["low", "medium", "high"]


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

    async def take(self, step_id: str, tool: str, arguments: Mapping[str, Any], wish: Wish | None = None) -> Verdict:
        """Whether the call may be made. ParkedError: nobody has decided yet. `wish` is for people: what it is about, if
        the call's own words do not say it best."""
        # As it is stored: what the database cannot hold must not make it another payload.
        payload = json.loads(storable_json({"tool": tool, "arguments": dict(arguments), **self._whose()}))
        approval = await self._db.read(lambda conn: find_approval(conn, step_id))
        if approval is None:
            await self._ask(step_id, tool, payload, wish)
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
                await self._db.transact(lambda conn: expire_approval(conn, step_id))
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

    def _whose(self) -> dict[str, str]:
        return {"agent_group": self._caller.turn.folder, "session": self._caller.session_id}

    async def _ask(self, step_id: str, tool: str, payload: dict[str, Any], wish: Wish | None) -> None:
        words = ", ".join(f"{key}={value}" for key, value in payload["arguments"].items())
        wish = wish or Wish(CATEGORY, f"{tool}({words})", "high")
        # In one line: an agent's text must not look like something else we say.
        summary = " ".join(f"{self._caller.turn.folder} wants {wish.summary}".split())
        summary = summary if len(summary) <= SUMMARY_LIMIT else f"{summary[: SUMMARY_LIMIT - 1]}…"
        places = await self._db.read(lambda conn: approver_addresses(conn, self._caller.turn.agent_group_id))
        decide = f"Whole: longshore approvals {step_id[-8:]}; decide: longshore approve {step_id[-8:]} (or deny)"
        here = self._caller.reply_to
        said = f"I wait for an approval before I go on ({tool}). Whoever runs me has been asked."
        to_people = [(here.channel_type, here.platform_id, here.thread_id, said)]
        to_people += [(channel, place, None, f"{summary}. {decide}") for channel, place in places]
        rows = [
            notice(
                session_id=self._caller.session_id,
                seq=0,
                key=f"{step_id}:approval:{number}",
                channel_type=channel,
                platform_id=place,
                thread_id=thread,
                text=text,
            )
            for number, (channel, place, thread, text) in enumerate(to_people)
        ]
        asked = {
            "id": step_id,
            "session_id": self._caller.session_id,
            "turn_id": self._journal.turn_id,
            "category": wish.category[:50],
            "summary": summary,
            "risk": wish.risk,
            "payload": payload,
            "payload_hash": hash_of(payload),
        }

        async def work(conn: AsyncConnection, first_seq: int) -> None:
            await put_approval(conn, self._seconds, **asked)
            await store_notices(conn, [row | {"seq": first_seq + number} for number, row in enumerate(rows)])

        event = ApprovalRequested(id=step_id, category=wish.category, summary=summary, risk=wish.risk, context=payload)
        await self._journal.write(work, activity="awaiting human", messages=len(rows), events=[event])
        for row in rows:
            self._bells.deliver(row["id"])


@dataclass
class Decided:
    """What a decision did, in words, and which sessions to ring for."""

    text: str
    wakes: list[tuple[str, str | None]] = field(default_factory=list)


async def decide_call(db: Database, approval_id: str, *, approve: bool, decided_by: str) -> Decided:
    """Say yes or no to a risky call. Once; RefusedError says why it cannot be decided."""

    async def work(conn: AsyncConnection) -> Decided:
        known = await find_approval(conn, approval_id)
        if known is None:
            raise RefusedError(f"there is no approval {approval_id!r}")
        # The session's row first: a worker that is just parking the turn holds it, and looks for decisions under it.
        await end_rest(conn, known.session_id)
        if await decide_approval(conn, approval_id, "approved" if approve else "denied", decided_by) is None:
            now_is = await find_approval(conn, approval_id)
            assert now_is is not None
            raise RefusedError(f"it is already {'expired' if now_is.status == 'pending' else now_is.status}")
        session = await find_session(conn, known.session_id)
        assert session is not None
        said = f"{'approved, once' if approve else 'denied'}: {known.summary}"
        return Decided(said, [(session.id, session.provider or session.group_provider)])

    return await db.transact(work)
