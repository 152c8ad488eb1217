"""The tools of one turn, journaled: intent, then result. A finished call is never run twice; one that began and never
ended is run again only if it is idempotent, else the agent is told that nobody knows.

Before a call: may those in whose name the agent acts do this, and has somebody approved it if it is risky? What waits
for a person parks the turn; nothing of it is left in this process."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import structlog
from pydantic import ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import Action, Ask, ResetSession
from adapters.contracts import ParkedError, ToolOutcome, ToolSpec
from adapters.errors import ToolError
from adapters.events import QuestionAsked, ToolProgress, ToolResult
from adapters.redaction import Redactor
from adapters.sandbox.port import Sandbox
from adapters.tool_port import NOTHING_BESIDE, Beside, Tool, ToolContext
from adapters.web import Web
from adapters.workspace import Workspace
from models.base import AnyRow, new_id, storable
from models.consent import expire_question, find_approval, find_question
from models.database import Database
from models.turns import Step, count_steps, find_step, finish_step
from models.upsert import insert_ignoring
from workers.access import Act
from workers.actions.caller import Caller, Performed
from workers.actions.table import numbers_for, perform
from workers.bells import Bells
from workers.consent.questions import ask, question_content
from workers.consent.risky_calls import Consent
from workers.journal import Journal
from workers.watchdog import Watchdog

log = structlog.get_logger()

MAX_RESULT = 50_000
MAX_KEY = 200
PROGRESS_SECONDS = 5.0
EFFECT_UNKNOWN = (
    "This call was begun by a worker that died; whether it took effect is unknown. Check before you repeat it."
)
NO_SANDBOX = (
    "there is no sandbox here, so a script could not be run (longshore doctor says why); leave it out, and ask "
    "yourself in the prompt to do what it would have done"
)
REDACTED = (
    "this brings a script, and holds something that looks like a secret (a key, a password). That is not kept, and "
    "without it another script would be run: have it put into a file of the workspace, and read it there"
)
TOO_LONG = "this is too long to be shown to anybody who must approve it; do it in smaller parts"


@dataclass(frozen=True)
class Equipment:
    """What the tools of a turn work with, besides rows."""

    workspace: Workspace
    outbox: Path
    web: Web
    redactor: Redactor
    sandbox: Sandbox | None = None
    beside: Beside = NOTHING_BESIDE


class JournaledToolBox:
    def __init__(
        self,
        db: Database,
        bells: Bells,
        tools: Mapping[str, Tool[Any]],
        journal: Journal,
        watchdog: Watchdog,
        caller: Caller,
        equipment: Equipment,
        consent: Consent,
        *,
        key_prefix: str,
        reports: bool = True,
    ) -> None:
        """`reports`: results become events here. Programs tell of their calls themselves, under ids of their own."""
        self._reports = reports
        self._db = db
        self._bells = bells
        self._tools = tools
        self._journal = journal
        self._watchdog = watchdog
        self._caller = caller
        self._equipment = equipment
        self.consent: Final = consent
        self._key_prefix = key_prefix
        # Calls whose result is on record as an event too, written with the step: nobody need report it again.
        self.told: set[str] = set()
        # The agent wants to begin anew: done when the turn ends.
        self.reset_wanted = False

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    async def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        # What is kept of a call has no secrets in it, and what is run must be what is kept: it may be run from there.
        given = dict(arguments)
        arguments = self._equipment.redactor.value(given)
        key = _step_key(f"{self._key_prefix}{call_id}:{name}")
        earlier = await self._db.read(lambda conn: find_step(conn, self._journal.turn_id, key))
        return await self._go_on(earlier, key, call_id, name, arguments, redacted=arguments is not given)

    async def settle(self, step: AnyRow) -> ToolOutcome:
        """Go on with a call that an earlier attempt made and that waited for a person. Parks while it still does."""
        return await self._go_on(step, step.key, step.key, step.name, step.input)

    async def _go_on(
        self,
        earlier: AnyRow | None,
        key: str,
        call_id: str,
        name: str,
        arguments: Mapping[str, Any],
        *,
        redacted: bool = False,
    ) -> ToolOutcome:
        if earlier is not None and earlier.status != "started":
            self.reset_wanted |= earlier.status == "finished" and name == "reset_session"
            return ToolOutcome(earlier.output["text"], ok=earlier.status == "finished", replayed=True)
        if earlier is not None and (outcome := await self._answer_to(earlier.id, call_id, name)) is not None:
            return outcome
        try:
            tool, checked = self._checked(name, arguments)
            if redacted and tool.brings_code(checked):
                raise ToolError(REDACTED)
            if tool.admin_only:
                await self._check_admin(tool)
            risky = await self._is_risky(tool, checked, earlier)
            if risky and earlier is None and not self.consent.can_show(name, arguments):
                raise ToolError(TOO_LONG)
        except ToolError as error:
            refused = ToolOutcome(self._bounded(str(error)), ok=False)
            # One that waited for a person and cannot be made any more waits no longer.
            return refused if earlier is None else await self._finish(earlier.id, call_id, name, refused)
        if risky:
            step_id, refusal = await self._approved(earlier, key, tool, arguments, checked)
            if refusal is not None:
                return await self._finish(step_id, call_id, name, refusal)
        elif earlier is not None:
            step_id = earlier.id
            if not tool.idempotent:
                return await self._finish(step_id, call_id, name, ToolOutcome(EFFECT_UNKNOWN, ok=False))
        else:
            step_id = await self._begin(key, tool, arguments)
        return await self._run(step_id, call_id, tool, checked)

    def _checked(self, name: str, arguments: Mapping[str, Any]) -> tuple[Tool[Any], Any]:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolError(f"there is no tool {name!r} here; there are: {', '.join(sorted(self._tools)) or 'none'}")
        try:
            checked = tool.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "arguments"
            if first["type"] == "extra_forbidden":
                known = ", ".join(tool.spec.schema.get("properties", {})) or "no parameters"
                raise ToolError(f"{name}: there is no parameter {where}; it takes {known}") from None
            raise ToolError(f"{name}: {where}: {first['msg'].removeprefix('Value error, ')}") from None
        if (no_text := _no_text(arguments)) is not None:
            # Rows cannot hold it, and what is run must be what is kept.
            raise ToolError(f"{name}: {'.'.join(no_text)}: it holds a NUL or half a character; leave it out")
        return tool, checked

    async def _check_admin(self, tool: Tool[Any]) -> None:
        if not await self._db.read(self._caller.is_admin):
            raise ToolError(
                f"{tool.name} is for admins of this agent, and not everybody you are answering is one. "
                "An owner can make somebody one; you cannot."
            )

    async def _is_risky(self, tool: Tool[Any], checked: Any, earlier: AnyRow | None) -> bool:
        """Whether somebody must approve this call. What was put to somebody stays with them: whoever has become an
        admin meanwhile does not undo a no."""
        if tool.brings_code(checked):
            if self._equipment.sandbox is None:
                raise ToolError(NO_SANDBOX)
            step_id = earlier.id if earlier is not None else None
            if step_id is not None and await self._db.read(lambda conn: find_approval(conn, step_id)) is not None:
                return True
            if not await self._db.read(lambda conn: self._caller.have_asked(conn, Act.SET_SCRIPT)):
                return True
        return tool.risky or tool.name in self._caller.policy.approve

    async def _approved(
        self, earlier: AnyRow | None, key: str, tool: Tool[Any], arguments: Mapping[str, Any], checked: Any
    ) -> tuple[str, ToolOutcome | None]:
        """The step of a call that somebody must approve, and why it is not to be run after all. Parks the turn while
        nobody has decided."""
        step_id = earlier.id if earlier is not None else await self._begin(key, tool, arguments)
        concern = tool.concern(checked) if tool.concern is not None else None
        verdict = await self.consent.take(step_id, tool.name, arguments, concern)
        if verdict.word == "begun" and not tool.idempotent:
            return step_id, ToolOutcome(EFFECT_UNKNOWN, ok=False)
        return step_id, ToolOutcome(verdict.why, ok=False) if verdict.word == "no" else None

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
        context = self._context(step_id)
        started = time.monotonic()
        progress = asyncio.create_task(self._show_progress(call_id, tool.name))
        action: Action | None = None
        try:
            with self._watchdog.busy():
                said = await tool.handler(checked, context)
            if isinstance(said, str):
                outcome = ToolOutcome(self._bounded(said))
            else:
                action, outcome = said, ToolOutcome("")
        except ToolError as error:
            outcome = ToolOutcome(self._bounded(str(error)), ok=False)
        except Exception as error:  # a tool's bug is the agent's to work around, not the turn's to die of
            log.exception("tool.crashed", tool=tool.name)
            outcome = ToolOutcome(f"{tool.name} failed: {type(error).__name__}", ok=False)
        finally:
            progress.cancel()
            await asyncio.gather(progress, return_exceptions=True)
        if isinstance(action, Ask):
            await self._ask(step_id, action)
        log.debug("tool.done", tool=tool.name, ok=outcome.ok, seconds=round(time.monotonic() - started, 3))
        try:
            return await self._finish(step_id, call_id, tool.name, outcome, action)
        except ToolError as error:  # refused while it was done: nothing of it was written
            return await self._finish(step_id, call_id, tool.name, ToolOutcome(self._bounded(str(error)), ok=False))

    def _context(self, step_id: str) -> ToolContext:
        equipment = self._equipment
        return ToolContext(
            session_id=self._caller.session_id,
            turn_id=self._journal.turn_id,
            call=step_id,
            agent_group=self._caller.turn.folder,
            sender_id=self._caller.reply_to.sender_id,
            workspace=equipment.workspace,
            outbox=equipment.outbox,
            policy=self._caller.policy,
            web=equipment.web,
            sandbox=equipment.sandbox,
            clock=self._caller.turn.clock,
            beside=equipment.beside,
        )

    async def _show_progress(self, call_id: str, name: str) -> None:
        """Long work shows that it goes on."""
        elapsed = 0.0
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            elapsed += PROGRESS_SECONDS
            self._journal.add(ToolProgress(id=call_id, name=name, elapsed=elapsed))

    async def _ask(self, step_id: str, question: Ask) -> NoReturn:
        """Put the question and park: its row waits, nothing else does. The step stays begun until it is answered."""
        journal = self._journal
        card_id = new_id()
        row = self._caller.reply_to.outbound(
            content=question_content(question, step_id, card_id),
            turn_id=journal.turn_id,
            key=f"{journal.turn_id}:{step_id}:question",
        )
        asked = QuestionAsked(
            id=step_id,
            title=question.title,
            text=question.text,
            options=question.options,
            seconds=question.seconds,
        )

        async def work(conn: AsyncConnection, first_seq: int) -> None:
            await ask(conn, question, step_id, card_id, row | {"seq": first_seq})

        await journal.write(work, activity="awaiting human", messages=1, events=[asked])
        self._bells.deliver(row["id"])
        raise ParkedError(f"{question.title}: {question.text}", question.seconds)

    async def _answer_to(self, step_id: str, call_id: str, name: str) -> ToolOutcome | None:
        """What came of the question this step asked; None: it asked none. Still open: the turn is parked again."""
        question = await self._db.read(lambda conn: find_question(conn, step_id))
        if question is None:
            return None
        if question.status == "pending":
            expired = await self._db.transact(lambda conn: expire_question(conn, step_id))
            for message_out_id in expired.deliveries if expired is not None else ():
                self._bells.deliver(message_out_id)
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
        return await self._finish(step_id, call_id, name, outcome)

    async def _finish(
        self, step_id: str, call_id: str, name: str, outcome: ToolOutcome, action: Action | None = None
    ) -> ToolOutcome:
        """Write the result, and do what the tool wants done, in one transaction."""
        performed = Performed(outcome.text)

        async def work(conn: AsyncConnection, first_seq: int) -> None:
            nonlocal performed
            if action is not None:
                performed = await perform(conn, self._caller, action, step_id, first_seq)
                performed.text = self._bounded(performed.text)
            await finish_step(conn, step_id, ok=outcome.ok, output={"text": performed.text})

        result = ToolResult(id=call_id, name=name, ok=outcome.ok)
        numbers = numbers_for(action) if action is not None else 0
        events = [result] if self._reports else []
        await self._journal.write(work, activity="calling model", messages=numbers, events=events)
        self.told.add(call_id)
        self.reset_wanted |= isinstance(action, ResetSession)
        for message_out_id in performed.deliveries:
            self._bells.deliver(message_out_id)
        for session_id, provider in performed.wakes:
            self._bells.wake(session_id, provider)
        for session_id in performed.stopped:
            self._bells.nudge(session_id)
        self._bells.tell(*performed.events)
        return ToolOutcome(performed.text, ok=outcome.ok)

    def _bounded(self, text: str) -> str:
        """What an agent is told: no secrets, and not without end."""
        text = self._equipment.redactor.text(text)
        if len(text) <= MAX_RESULT:
            return text
        return f"{text[:MAX_RESULT]}\n[cut: {len(text) - MAX_RESULT} of {len(text)} characters]"


def _no_text(value: Any) -> list[str] | None:
    """Where in it there is a string that no database takes."""
    match value:
        case str():
            return [] if storable(value) != value else None
        case Mapping():
            inside = (([] if _no_text(key) is not None else _within(key, item)) for key, item in value.items())
        case list() | tuple():
            inside = (_within(number, item) for number, item in enumerate(value))
        case _:
            return None
    return next((where for where in inside if where is not None), None)


def _within(name: object, value: Any) -> list[str] | None:
    where = _no_text(value)
    return None if where is None else [str(name), *where]


def _step_key(key: str) -> str:
    """A call's key, of a length that can be stored: ids come from outside."""
    key = storable(key)
    return key if len(key) <= MAX_KEY else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
