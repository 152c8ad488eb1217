"""Writing a workflow down stage by stage, straight as rows, as the engine and its workers would leave them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models import Approval, MessageIn, MessageOut, PendingQuestion, Session, Turn, Usage
from models.base import new_id
from models.groups import ensure_messaging_group
from models.workflows import Stage, Workflow
from tests.support.fleet import Fleet
from workers.consent.requests import hash_of
from workers.workflows.engine import CHANNEL, place_of
from workers.workflows.spec import CLERK, StageKind

# Stages of one lane go on in one session.
_LANES: Final = {"fix": "build", "prepare": "clerk"}


class WorkflowRows:
    """One workflow. What is begun was begun at `at`, the story's own time, which every end moves on by minutes."""

    def __init__(self, fleet: Fleet, workflow_id: str, group_id: str, at: datetime) -> None:
        self.fleet = fleet
        self.id = workflow_id
        self.group_id = group_id
        self.at = at
        self._sessions: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    async def begin(
        self,
        kind: StageKind,
        task: str = "",
        *,
        round: int = 0,
        attempt: int = 1,
        provider: str = CLERK,
        model: str | None = None,
        doing: str = "calling model",
    ) -> str:
        """The stage, its message and its turn; a worker is at it."""
        lane = ":".join(filter(None, (_LANES.get(kind, kind), task)))
        session_id = await self._session(lane)
        stage_id, turn_id, number = new_id(), new_id(), self._count("stages")
        seq, place = self._count(session_id), place_of(self.id)
        who = {"provider": provider, "model": model}
        begun = {"session_id": session_id, "started_at": self.at, **who}
        await self.fleet.insert(Turn, {"id": turn_id, "number": seq, "lease_token": 1, **begun})
        said = {"channel_type": CHANNEL, "platform_id": place, "thread_id": lane, "content": {"prompt": kind}, **who}
        row = {"id": stage_id, "session_id": session_id, "agent_group_id": self.group_id, "seq": seq, "kind": "task"}
        await self.fleet.insert(MessageIn, {**row, **said, "status": "processing", "turn_id": turn_id})
        named = {"kind": kind, "task": task, "round": round, "attempt": attempt, "number": number}
        await self.fleet.insert(Stage, {"id": stage_id, "workflow_id": self.id, **named, **begun})
        await self._set(Session, session_id, activity=doing, activity_since=self.at, lease_owner="worker@host")
        return stage_id

    async def finish(
        self,
        stage_id: str,
        output: Mapping[str, Any] | None = None,
        *,
        status: str = "completed",
        error: str | None = None,
        cost: str | None = None,
        minutes: float = 2,
    ) -> None:
        """Followed up, as the engine writes it down. `cost`: US dollars of one model call."""
        self.at += timedelta(minutes=minutes)
        stage, turn_id = await self._stage_and_turn(stage_id)
        if cost is not None:
            await self.spend(stage_id, cost)
        over = {"replaced": "completed", "cancelled": "cancelled"}.get(status, status)
        message = {"completed": "completed", "failed": "failed", "cancelled": "discarded"}[over]
        await self._set(Turn, turn_id, status=over, ended_at=self.at, error=error)
        await self._set(MessageIn, stage_id, status=message, error=error)
        await self._set(Stage, stage_id, status=status, output=output, error=error, turn_id=turn_id, ended_at=self.at)
        await self._set(Session, stage.session_id, lease_owner=None, activity=None, activity_since=None)

    async def do(self, kind: StageKind, output: Mapping[str, Any] | None = None, task: str = "", **more: Any) -> str:
        """Begun and finished."""
        ending = {name: more.pop(name) for name in ("status", "error", "cost", "minutes") if name in more}
        stage_id = await self.begin(kind, task, **more)
        await self.finish(stage_id, output, **ending)
        return stage_id

    async def spend(self, stage_id: str, cost: str) -> None:
        stage, turn_id = await self._stage_and_turn(stage_id)
        used = {"agent_group_id": self.group_id, "session_id": stage.session_id, "turn_id": turn_id}
        used |= {"provider": stage.provider, "model": stage.model, "input_tokens": 12_000, "output_tokens": 800}
        await self.fleet.insert(Usage, {**used, "cost_usd": Decimal(cost)})

    async def ask_approval(self, stage_id: str, summary: str, payload: dict[str, Any], category: str = "tool") -> str:
        """The stage's turn is parked for it."""
        stage, turn_id = await self._stage_and_turn(stage_id)
        approval_id = new_id()
        asked = {"id": approval_id, "session_id": stage.session_id, "turn_id": turn_id, "category": category}
        asked |= {"summary": summary, "risk": "high", "payload": payload, "payload_hash": hash_of(payload)}
        await self.fleet.insert(Approval, {**asked, "expires_at": datetime.now(UTC) + timedelta(days=1)})
        await self._park(stage.session_id, turn_id)
        return approval_id

    async def ask_question(self, stage_id: str, text: str, options: list[str]) -> str:
        stage, turn_id = await self._stage_and_turn(stage_id)
        question_id, out_id = new_id(), new_id()
        place = {"channel_type": CHANNEL, "platform_id": place_of(self.id), "session_id": stage.session_id}
        question = {"title": text, "text": text, "options": options, "values": options}
        said = {"id": out_id, "turn_id": turn_id, "seq": self._count(stage.session_id), "kind": "chat"}
        said |= {"status": "delivered", "idempotency_key": out_id, "content": {"text": text}}
        await self.fleet.insert(MessageOut, {**said, **place})
        expires = datetime.now(UTC) + timedelta(days=1)
        asked = {"id": question_id, "turn_id": turn_id, "message_out_id": out_id, "question": question}
        await self.fleet.insert(PendingQuestion, {**asked, **place, "expires_at": expires})
        await self._park(stage.session_id, turn_id)
        return question_id

    async def end(self, status: str, outcome: str, result: Mapping[str, Any] | None = None) -> None:
        await self._set(Workflow, self.id, status=status, outcome=outcome, result=result, ended_at=self.at)

    async def _park(self, session_id: str, turn_id: str) -> None:
        await self._set(Turn, turn_id, status="parked")
        await self._set(Session, session_id, lease_owner=None, activity="awaiting human", activity_since=self.at)

    async def _session(self, lane: str) -> str:
        if lane not in self._sessions:
            place = await self.fleet.db.transact(lambda conn: ensure_messaging_group(conn, CHANNEL, place_of(self.id)))
            self._sessions[lane] = new_id()
            row = {"id": self._sessions[lane], "agent_group_id": self.group_id, "messaging_group_id": place}
            await self.fleet.insert(Session, {**row, "thread_id": lane, "workflow_id": self.id, "message_seq": 900})
        return self._sessions[lane]

    async def _stage_and_turn(self, stage_id: str) -> tuple[Any, str]:
        async def look(conn: AsyncConnection) -> tuple[Any, str]:
            stage = (await conn.execute(select(Stage.__table__).where(Stage.id == stage_id))).one()
            turn_id = (await conn.execute(select(MessageIn.turn_id).where(MessageIn.id == stage_id))).scalar_one()
            assert turn_id is not None
            return stage, turn_id

        return await self.fleet.db.read(look)

    async def _set(self, table: Any, row_id: str, **changes: Any) -> None:
        async def work(conn: AsyncConnection) -> None:
            await conn.execute(update(table).where(table.id == row_id).values(**changes))

        await self.fleet.db.transact(work)

    def _count(self, what: str) -> int:
        self._counts[what] = self._counts.get(what, 0) + 1
        return self._counts[what]
