"""The tools of one turn, journaled: intent, then result. A finished call is never run twice; one that began and never
ended is run again only if it is idempotent, else the agent is told that nobody knows."""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import structlog
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import Outbound, ParkedError, Question, Tool, ToolContext, ToolOutcome, ToolSpec
from adapters.errors import ToolError, UnknownDriverError
from adapters.events import QuestionAsked, ToolResult
from adapters.registry import Drivers
from models.base import new_id, storable
from models.consent import expire_question, find_question, put_question
from models.database import Database
from models.outbox import MessageOut
from models.turns import Step, count_steps, find_step, finish_step
from models.upsert import insert_ignoring
from workers.bells import Bells
from workers.journal import Journal
from workers.questions import question_text, stored_question
from workers.replies import ReplyTo
from workers.watchdog import Watchdog

log = structlog.get_logger()

MAX_RESULT = 50_000
MAX_KEY = 200
EFFECT_UNKNOWN = (
    "This call was begun by a worker that died; whether it took effect is unknown. Check before you repeat it."
)


class JournaledToolBox:
    def __init__(
        self,
        db: Database,
        bells: Bells,
        tools: Drivers[Tool[Any]],
        journal: Journal,
        watchdog: Watchdog,
        reply_to: ReplyTo,
        *,
        agent_group: str,
        workspace: Path,
        key_prefix: str,
    ) -> None:
        self._db = db
        self._bells = bells
        self._tools = tools
        self._journal = journal
        self._watchdog = watchdog
        self._reply_to = reply_to
        self._agent_group = agent_group
        self._workspace = workspace
        self._key_prefix = key_prefix
        # Calls whose result is on record as an event too, written with the step: nobody need report it again.
        self.told: set[str] = set()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(_spec(self._tools.get(name)) for name in self._tools.names)

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        key = _step_key(f"{self._key_prefix}{call_id}:{name}")
        earlier = await self._db.read(lambda conn: find_step(conn, self._journal.turn_id, key))
        if earlier is not None and earlier.status != "started":
            return ToolOutcome(earlier.output["text"], ok=earlier.status == "finished", replayed=True)
        if earlier is not None and (outcome := await self._answer_to(earlier.id, call_id, name)) is not None:
            return outcome
        try:
            tool = self._tools.get(name)
            checked = tool.arguments.model_validate(dict(arguments))
        except UnknownDriverError as error:
            return ToolOutcome(str(error), ok=False)
        except ValidationError as error:
            first = error.errors()[0]
            return ToolOutcome(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}", ok=False)
        if earlier is not None and not tool.idempotent:
            outcome = ToolOutcome(EFFECT_UNKNOWN, ok=False)
            await self._finish(earlier.id, call_id, name, outcome)
            return outcome
        step_id = earlier.id if earlier is not None else await self._begin(key, tool, arguments)
        return await self._run(step_id, call_id, tool, checked)

    async def _begin(self, key: str, tool: Tool[Any], arguments: Mapping[str, Any]) -> str:
        step_id = new_id()
        turn_id = self._journal.turn_id

        async def work(conn: AsyncConnection, _: int) -> None:
            await insert_ignoring(
                conn,
                Step,
                id=step_id,
                turn_id=turn_id,
                number=await count_steps(conn, turn_id) + 1,
                key=key,
                kind="tool",
                name=tool.name,
                idempotent=tool.idempotent,
                input=json.loads(json.dumps(dict(arguments), default=str)),
            )

        await self._journal.write(work, activity=f"tool: {tool.name}")
        return step_id

    async def _run(self, step_id: str, call_id: str, tool: Tool[Any], checked: Any) -> ToolOutcome:
        context = ToolContext(
            session_id=self._journal.lease.session_id,
            turn_id=self._journal.turn_id,
            agent_group=self._agent_group,
            sender_id=self._reply_to.sender_id,
            workspace=self._workspace,
        )
        started = time.monotonic()
        try:
            with self._watchdog.busy():
                outcome = ToolOutcome(_bounded(await tool.handler(checked, context)))
        except ToolError as error:
            outcome = ToolOutcome(_bounded(str(error)), ok=False)
        except Exception as error:  # a tool's bug is the agent's to work around, not the turn's to die of
            log.exception("tool.crashed", tool=tool.name)
            outcome = ToolOutcome(f"{tool.name} failed: {type(error).__name__}", ok=False)
        if outcome.ok and context.question is not None:
            await self._ask(step_id, context.question)
        log.debug("tool.done", tool=tool.name, ok=outcome.ok, seconds=round(time.monotonic() - started, 3))
        await self._finish(step_id, call_id, tool.name, outcome, context.staged if outcome.ok else ())
        return outcome

    async def _ask(self, step_id: str, question: Question) -> NoReturn:
        """Put the question and park: its row waits, nothing else does. The step stays begun until it is answered."""
        journal = self._journal
        content = {"text": question_text(question), "question": {"id": step_id, **stored_question(question)}}
        row = self._reply_to.outbound(
            content=content, turn_id=journal.turn_id, key=f"{journal.turn_id}:{step_id}:question"
        )
        place = {key: row[key] for key in ("session_id", "turn_id", "channel_type", "platform_id", "thread_id")}
        asked = QuestionAsked(
            id=step_id,
            title=question.title,
            text=question.text,
            options=question.options,
            seconds=question.seconds,
        )

        async def work(conn: AsyncConnection, first_seq: int) -> None:
            await insert_ignoring(conn, MessageOut, **(row | {"seq": first_seq}))
            await put_question(conn, step_id, row["id"], stored_question(question), question.seconds, **place)

        await journal.write(work, activity="awaiting human", messages=1, events=[asked])
        self._bells.deliver(row["id"])
        raise ParkedError(f"{question.title}: {question.text}", question.seconds)

    async def _answer_to(self, step_id: str, call_id: str, name: str) -> ToolOutcome | None:
        """What came of the question this step asked; None: it asked none. Still open: the turn is parked again."""
        question = await self._db.read(lambda conn: find_question(conn, step_id))
        if question is None:
            return None
        if question.status == "pending" and not await self._db.transact(lambda conn: expire_question(conn, step_id)):
            question = await self._db.read(lambda conn: find_question(conn, step_id))
            assert question is not None
            if question.status == "pending":
                left = (question.expires_at - question.at).total_seconds()
                asked = question.question
                raise ParkedError(f"{asked['title']}: {asked['text']}", max(left, 0.0))
        if question.status == "answered":
            outcome = ToolOutcome(question.answer)
        else:
            outcome = ToolOutcome(f"Nobody answered within {question.question['seconds']:g} seconds.", ok=False)
        await self._finish(step_id, call_id, name, outcome)
        return outcome

    async def _finish(
        self, step_id: str, call_id: str, name: str, outcome: ToolOutcome, staged: Sequence[Outbound] = ()
    ) -> None:
        self.told.add(call_id)
        rows = [
            self._reply_to.outbound(
                kind=item.kind,
                content=item.content,
                turn_id=self._journal.turn_id,
                key=f"{self._journal.turn_id}:{step_id}:{number}",
            )
            for number, item in enumerate(staged, 1)
        ]

        async def work(conn: AsyncConnection, first_seq: int) -> None:
            await finish_step(conn, step_id, ok=outcome.ok, output={"text": outcome.text})
            for number, row in enumerate(rows):
                await insert_ignoring(conn, MessageOut, **(row | {"seq": first_seq + number}))

        result = ToolResult(id=call_id, name=name, ok=outcome.ok)
        await self._journal.write(work, activity="calling model", messages=len(rows), events=[result])
        for row in rows:
            self._bells.deliver(row["id"])


@cache
def _spec(tool: Tool[Any]) -> ToolSpec:
    """Made once per process: the schemas of a few tools cost as much CPU as the rest of a turn's preparation."""
    return tool.spec


def _bounded(text: str) -> str:
    if len(text) <= MAX_RESULT:
        return text
    return f"{text[:MAX_RESULT]}\n[cut: {len(text) - MAX_RESULT} of {len(text)} characters]"


def _step_key(key: str) -> str:
    """A call's key, of a length that can be stored: ids come from outside."""
    key = storable(key)
    return key if len(key) <= MAX_KEY else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
