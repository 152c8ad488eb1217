"""What a program that is an agent may do by itself: judged by its group's policy, and asked of people where that says
so. What waits for a person is a step of the turn, like any tool call; its approval is good for exactly that, once."""

import asyncio
import hashlib
import json
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import ParkedError
from adapters.policy import Policy
from adapters.risk import Intent, Judgement, judge, judge_diff
from adapters.station import Permission
from adapters.tool_port import Concern
from models.base import AnyRow, new_id, storable_json
from models.consent import find_approval
from models.database import Database
from models.turns import Step, count_steps, find_step, finish_step
from models.upsert import insert_ignoring
from workers.consent.risky_calls import Consent
from workers.journal import Journal

KEY: Final = "intent:"
ALLOWED: Final = "allowed"
_FOLDERS: Final = ("folder", "cwd", "workdir")  # what programs call the place where a command runs
WAIT: Final = (
    "This waits for a person's approval. It was neither refused nor done. You will be told what they said. "
    "Do not try it in another way and do not wait for it: end your turn now."
)
LONGEST: Final = 200_000  # characters of a wish; nobody reads more before they say yes
TOO_LONG: Final = "this would need a person's approval, and is too long to be shown to anybody; do it in smaller parts"
LARGE_CHANGE: Final = {"change": "large"}


class FleetGuard:
    """`parked`: somebody was asked, and the turn is to be put away."""

    def __init__(self, db: Database, journal: Journal, consent: Consent, policy: Policy) -> None:
        self._db = db
        self._journal = journal
        self._consent = consent
        self._policy = policy
        self._deciding = asyncio.Lock()
        self.parked: ParkedError | None = None

    async def ask(self, intent: Intent) -> Permission:
        judgement = judge(intent, self._policy)
        if judgement.word == "allow":
            return Permission("allow")
        return await self._decide(judgement, intent.tool, _wanted(intent))

    async def see(self, change: str) -> Permission:
        """A change grows: whether it may, said once for the turn. `change` is git's summary."""
        judgement = judge_diff(change, self._policy)
        if judgement.word == "allow" or await self._times_allowed(_prefix(LARGE_CHANGE)):
            return Permission("allow")
        return await self._decide(judgement, "a large change", LARGE_CHANGE)

    async def _decide(self, judgement: Judgement, tool: str, wanted: dict[str, Any]) -> Permission:
        """One at a time: two of the same wish at once would both find the one approval."""
        async with self._deciding:
            return await self._decide_alone(judgement, tool, wanted)

    async def _decide_alone(self, judgement: Judgement, tool: str, wanted: dict[str, Any]) -> Permission:
        # People see what is kept, and no secret is: commands that differ only in theirs are the same.
        redactor = self._journal.redactor
        summary = redactor.text(judgement.summary)
        facts = {"category": judgement.category, "summary": summary, "risk": judgement.risk}
        if judgement.word == "deny":
            return Permission("deny", judgement.why, **facts)  # type: ignore[arg-type]
        written = storable_json(wanted)
        if len(written) > LONGEST:
            return Permission("deny", TOO_LONG, **facts)  # type: ignore[arg-type]
        step = await self._step(tool, redactor.value(json.loads(written)))
        if step.status == "failed":
            return Permission("deny", step.output["text"], **facts)  # type: ignore[arg-type]
        concern = Concern(judgement.category, f"to {summary}", judgement.risk)
        try:
            verdict = await self._consent.take(step.id, tool, step.input, concern)
        except ParkedError as parked:
            self.parked = parked
            return Permission("wait", WAIT, **facts)  # type: ignore[arg-type]
        if verdict.word == "no":
            await self._finish(step.id, verdict.why, ok=False)
            return Permission("deny", verdict.why, **facts)  # type: ignore[arg-type]
        await self._finish(step.id, ALLOWED, ok=True)
        return Permission("allow", **facts)  # type: ignore[arg-type]

    async def settle(self, step: AnyRow) -> str:
        """What came of something that waited for a person, for the program to be told. Parks while it still does."""
        approval = await self._db.read(lambda conn: find_approval(conn, step.id))
        assert approval is not None
        left = (approval.expires_at - approval.at).total_seconds()
        match approval.status:
            case "pending" if left > 0:
                raise ParkedError(f"{step.name} waits for approval", left)
            case "approved" | "used" if left > 0 or approval.status == "used":
                # `used`: by an attempt that ended before it could tell its program.
                return f"{approval.decided_by} approved it. Do it now, exactly as you wanted to, once."
            case "denied":
                why = f"{approval.decided_by} said no. Do not get around it."
            case _:
                why = "nobody approved it in time."
        await self._finish(step.id, why, ok=False)
        return why

    async def _step(self, tool: str, wanted: dict[str, Any]) -> AnyRow:
        """Its step: that of the same wish while it waits or was refused, else a new one."""
        turn_id, prefix = self._journal.turn_id, _prefix(wanted)
        key = f"{prefix}{await self._times_allowed(prefix)}"
        known = await self._db.read(lambda conn: find_step(conn, turn_id, key))
        if known is not None:
            return known

        async def work(conn: AsyncConnection, _: int) -> None:
            row = {"id": new_id(), "turn_id": turn_id, "key": key, "kind": "tool", "name": tool[:200]}
            await insert_ignoring(conn, Step, **row, number=await count_steps(conn, turn_id) + 1, input=wanted)

        await self._journal.write(work, activity=f"tool: {tool}")
        written = await self._db.read(lambda conn: find_step(conn, turn_id, key))
        assert written is not None
        return written

    async def _times_allowed(self, prefix: str) -> int:
        """How often in this turn a person has let a wish with this key through."""
        done = select(func.count()).select_from(Step).where(
            Step.turn_id == self._journal.turn_id, Step.key.startswith(prefix), Step.status == "finished"
        )  # fmt: skip
        return await self._db.read(lambda conn: conn.scalar(done)) or 0

    async def _finish(self, step_id: str, text: str, *, ok: bool) -> None:
        async def work(conn: AsyncConnection, _: int) -> None:
            await finish_step(conn, step_id, ok=ok, output={"text": text})

        await self._journal.write(work)


def _prefix(wanted: dict[str, Any]) -> str:
    """Of the keys of all steps for the same wish."""
    return f"{KEY}{hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:32]}:"


def _wanted(intent: Intent) -> dict[str, Any]:
    """What is approved: a line of shell, where it runs and what it reaches; anything else with all its details. (What a
    program says about a command may differ each time it asks.)"""
    if intent.command:
        folder = next((str(intent.details[name]) for name in _FOLDERS if intent.details.get(name)), "")
        return {"command": intent.command, "folder": folder, "url": intent.url}
    return {"paths": list(intent.paths), "url": intent.url, "details": dict(intent.details)}
