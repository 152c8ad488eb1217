"""A turn whose agent is a program: its home and memory, what it may do, what it waits for, and where it goes on.

Unlike our own tool loop, a program keeps the conversation itself. Its memory is kept with the end of each attempt: of a
whole turn, or of one that was interrupted in the middle, which then goes on from there and not from its beginning."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import ParkedError, Query, QueryInput, ToolBox
from adapters.errors import ErrorClass, ProviderError
from adapters.events import (
    ApprovalRequested,
    DiffAvailable,
    FilesTouched,
    Message,
    Progress,
    ProviderEvent,
    Result,
    SessionStarted,
    ToolCall,
    ToolResult,
)
from adapters.providers.cli.home import pack
from adapters.providers.instrumentation import Instrumented
from adapters.sandbox.port import Sandbox
from adapters.station import ProgramProvider, Station, ToolDoor
from models.base import AnyRow, new_id
from models.consent import abandon_waits, steps_that_waited, still_waits
from models.errors import StoreError
from models.programs import load_state, save_interrupted, save_state
from models.turns import set_turn, steps_of_turn
from workers.ending import PATIENCE_SECONDS, Memory
from workers.formatting import format_prompt
from workers.gate import is_down
from workers.guarding import ALLOWED, KEY, FleetGuard
from workers.journal import Journal
from workers.opening import OpenedTurn
from workers.runtime import Runtime
from workers.scripts import KEY as SCRIPT
from workers.toolbox import JournaledToolBox
from workers.verdicts import Failure
from workers.watchdog import Watchdog

if TYPE_CHECKING:
    from workers.tool_binding import Binding  # whose libraries are heavy: see `Runtime.tool_server`

log = structlog.get_logger()

PARKED: Final = "it waited for a person"
CUT_SHORT: Final = "somebody said something that cannot wait"
# A program that was told to end its turn, because somebody has to be asked, may take so long for its last words.
LAST_WORDS_SECONDS: Final = 60.0
# Held for an attempt, in dollars: what it will cost nobody knows before it has ended.
PROGRAM_USD: Final = 0.05
WANTED: Final = 200  # characters of what it wanted
CHANGE_FILES: Final = frozenset({"write_file", "edit_file", "run_command"})
# Programs have these themselves, and know them better.
OWN_TOOLS: Final = CHANGE_FILES | {"read_file", "list_files", "search_files"}
_GO_ON: Final = (
    "You were interrupted in the middle of your work ({reason}). What you have done so far is done, and what you have "
    "said was heard. Go on from there, and finish what you were asked."
)
_MEANWHILE: Final = "\n\nThis was said while you were at work; answer it if you have not yet:\n{messages}"
_DECIDED: Final = "What you were waiting for has been decided:\n\n{what}\n\nGo on from there."
_DONE_BEFORE: Final = (
    "An earlier attempt of yours was cut off, and you remember nothing of it. It had done this; do not do it again, "
    "and look first where that is in doubt:\n{what}\n\n"
)
SHOWN: Final = 500  # characters of what was done
MOST_TOLD: Final = 50  # such calls


class ProgramRun:
    """One attempt: `prepare`, then `hear` what the program says; `keep` after its end, while its home is there."""

    def __init__(
        self, runtime: Runtime, turn: OpenedTurn, journal: Journal, watchdog: Watchdog, provider: ProgramProvider
    ) -> None:
        self.id = new_id()  # of this attempt, for the money held for it
        self._known = [message.seq for message in turn.messages]  # others join while it runs
        self._runtime = runtime
        self._turn = turn
        self._journal = journal
        self._watchdog = watchdog
        self._provider = provider
        self._guard: FleetGuard | None = None
        self._binding: Binding | None = None
        self._station: Station | None = None
        self._continuation: str | None = None
        self._version = ""
        self._packed: bytes | None = None
        self.unkept = ""  # why what it remembers could not be kept, if it could not
        self._acted = False
        self._told: set[str] = set()  # files the program said it touched, which the watch will see as well
        self._working: dict[str, ExitStack] = {}
        self._query: Query | None = None  # while it runs
        self._watch = AsyncExitStack()  # over its workspace
        self._change = ""  # to its workspace, as git sums it up
        self._judging: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def remembers(self) -> bool:
        """Whether it can go on where it was interrupted."""
        return bool(self._provider.needs.state)

    @property
    def parked(self) -> ParkedError | None:
        """What it waits for, if it has asked somebody."""
        asked = [one.parked for one in (self._guard, self._binding) if one is not None and one.parked is not None]
        return min(asked, key=lambda parked: parked.seconds, default=None)

    async def waits(self) -> ParkedError | None:
        """The same after its end, when the rows tell: a call may have been cut off behind its question."""
        if self.parked is not None:
            return self.parked
        left = await self._runtime.db.read(self._left, patience=PATIENCE_SECONDS)
        return None if left is None else ParkedError("it has asked a person", left)

    async def prepare(
        self,
        given: QueryInput,
        sandbox: Sandbox | None,
        tools: JournaledToolBox,
        notes: Mapping[int, Sequence[str]],
        held: AsyncExitStack,
    ) -> QueryInput:
        """What the program is given. `held` keeps its home and its memory on this machine until it is closed; `notes`
        are those on attachments. ParkedError: what it waits for is not decided yet."""
        name, turn, runtime = self._provider.manifest.adapter_id, self._turn, self._runtime
        if sandbox is None:
            why = f"{name} runs in a sandbox, and this machine has none that holds: see `longshore doctor`"
            raise ProviderError(why, ErrorClass.INVALID_REQUEST)
        if wait := await runtime.breaker.wait(self._account):
            raise is_down(name, wait)
        held.enter_context(runtime.admission.admit(name, self._provider.needs.memory_bytes))
        self._guard = FleetGuard(runtime.db, self._journal, tools.consent, given.policy)
        prompt = await self._prompt(str(given.prompt), tools, notes)
        state = await runtime.db.read(lambda conn: load_state(conn, turn.lease.session_id, turn.provider))
        home = await held.enter_async_context(runtime.homes.lend(state))
        held.push_async_callback(self._watch.aclose)
        await self._watch.enter_async_context(Instrumented(sandbox, Path(given.cwd), self._see))
        if wait := await runtime.breaker.try_again(self._account):
            raise is_down(name, wait)
        self._station = Station(sandbox, home, self, self._guard)
        messages = given.messages if prompt == given.prompt else (prompt,)
        return replace(given, prompt=prompt, messages=messages, station=self._station)

    @asynccontextmanager
    async def open(self, tools: ToolBox) -> AsyncIterator[ToolDoor]:
        """Our tools for the program (`ToolDoors`)."""
        async with self._runtime.tool_server.bind(tools) as self._binding:
            yield ToolDoor(self._binding.socket, self._binding.token)

    async def _prompt(self, asked: str, tools: JournaledToolBox, notes: Mapping[int, Sequence[str]]) -> str:
        interrupted = self._turn.interrupted
        if interrupted is None:
            return asked if self._turn.attempt == 1 else await self._done_before() + asked
        known = set(interrupted.messages_known or ())
        missed = [message for message in self._turn.messages if message.seq not in known]
        said = _MEANWHILE.format(messages=format_prompt(missed, notes, self._turn.facts)) if missed else ""
        return await self._going_on(interrupted, tools) + said

    async def _done_before(self) -> str:
        """What an attempt has done whose memory is lost: what is not to be done twice is told."""
        await self._journal.write(lambda conn, _: abandon_waits(conn, self._turn.id))
        steps = await self._runtime.db.read(lambda conn: steps_of_turn(conn, self._turn.id))
        steps = [step for step in steps if step.kind == "tool" and not step.key.startswith(SCRIPT)]  # the agent's own
        begun = [step for step in steps if step.status == "started" and not step.idempotent]
        done = [step for step in steps if step.status == "finished"] + begun
        return _DONE_BEFORE.format(what="\n".join(map(_was_done, done[-MOST_TOLD:]))) if done else ""

    async def _going_on(self, interrupted: AnyRow, tools: JournaledToolBox) -> str:
        if interrupted.reason != PARKED:
            return _GO_ON.format(reason=interrupted.reason)
        steps = await self._runtime.db.read(lambda conn: steps_that_waited(conn, self._turn.id, interrupted.updated_at))
        left = await self._runtime.db.read(lambda conn: still_waits(conn, [step.id for step in steps]))
        if left is not None:
            raise ParkedError("it still waits for a person", left)
        told = [f"- {_called(step)}: {await self._outcome(step, tools)}" for step in steps]
        return _DECIDED.format(what="\n".join(told))

    async def _outcome(self, step: AnyRow, tools: JournaledToolBox) -> str:
        assert self._guard is not None
        if step.key.startswith(KEY):
            if step.status == "started":
                return await self._guard.settle(step)
            said: str = step.output["text"]
            return "approved; look first whether it is done already" if said == ALLOWED else said
        return (await tools.settle(step)).text

    def hear(self, event: ProviderEvent, query: Query) -> ProviderEvent | None:
        """The event as it is to be passed on; None if somebody else has told of it."""
        self._query = query
        match event:
            case SessionStarted():
                self._continuation, self._version = event.continuation, (event.version or "")[:100]
            case ToolCall(id=call_id):
                # It is at work, however long it says nothing.
                self._acted = True
                if call_id not in self._working:
                    self._working[call_id] = ExitStack()
                    self._working[call_id].enter_context(self._watchdog.busy())
            case ToolResult(id=call_id) if call_id in self._working:
                self._working.pop(call_id).close()
            case FilesTouched(paths=paths):
                self._told |= set(paths)
            case ApprovalRequested():
                return None  # the guard has, with the id by which it is decided
            case Result() if self.parked is not None:
                event = Message(text=event.text)  # no answer yet: it says that it waits
        if self.parked is not None and self._ending is None:
            self._ending = asyncio.create_task(self._end_soon(query))
            self._rest()  # from here on, silence is silence
        return event

    def _rest(self) -> None:
        for working in self._working.values():
            working.close()
        self._working.clear()

    def _see(self, event: ProviderEvent) -> None:
        """What the watch over the workspace has seen: told once, if the program has told of it itself."""
        if isinstance(event, FilesTouched):
            told = self._told & set(event.paths)
            self._told -= told
            event = FilesTouched(paths=tuple(path for path in event.paths if path not in told))
            if not event.paths:
                return
        self._journal.add(event)
        if isinstance(event, DiffAvailable):
            self._change = event.summary
            if self._query is not None and (self._judging is None or self._judging.done()):
                self._judging = asyncio.create_task(self._judge(self._query))

    async def _judge(self, query: Query | None) -> None:
        """A change that has grown too large is looked at by a person before it grows further."""
        assert self._guard is not None
        if (await self._guard.see(self._change)).word == "wait" and query is not None:
            await query.abort()

    async def _end_soon(self, query: Query) -> None:
        await asyncio.sleep(LAST_WORDS_SECONDS)
        await query.abort()

    async def keep(self) -> None:
        """The program has ended: take what it remembers, before its home goes. Never raises: what an agent has made of
        its home is its own affair."""
        self._query = None
        self._rest()
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        await self._judge_last()
        if self._station is None:
            return
        if self._continuation is None:
            self.unkept = "it did not say how it finds the conversation again"
            return
        try:
            self._packed = await asyncio.to_thread(pack, self._station.home, self._provider.needs.state)
        except Exception as error:  # noqa: BLE001
            self.unkept = str(error) if isinstance(error, ProviderError) else type(error).__name__
            log.warning("program.memory_not_kept", turn=self._turn.id, reason=self.unkept)
            self._journal.add(Progress(text=f"what it remembers of this turn could not be kept: {self.unkept}"))

    async def _judge_last(self) -> None:
        """What the workspace has come to. A person who is just being asked has been asked when this is over."""
        if self._judging is not None:
            await asyncio.gather(self._judging, return_exceptions=True)
        await self._watch.aclose()
        if self._change and self.parked is None:
            try:
                await self._judge(None)
            except StoreError as error:
                log.warning("program.change_not_judged", turn=self._turn.id, reason=str(error))

    async def note(self, failure: Failure | None) -> None:
        """For the whole fleet: how the provider is."""
        try:
            if failure is None:
                await self._runtime.breaker.succeeded(self._account)
            elif failure.asked:
                error = ProviderError(failure.message, failure.error_class, failure.retry_after)
                await self._runtime.breaker.failed(self._account, error)
        except StoreError as error:
            log.warning("program.health_not_noted", turn=self._turn.id, reason=str(error))

    @property
    def _account(self) -> tuple[str, str]:
        """One for all keys: which it was, its driver knows."""
        return self._provider.manifest.adapter_id, ""

    def memory(self) -> Memory:
        """Of a whole turn."""
        packed, turn = self._packed, self._turn

        async def write(conn: AsyncConnection) -> None:
            await self._write_version(conn)
            if packed is not None:
                await save_state(conn, turn.lease.session_id, turn.provider, packed)

        return Memory(None if packed is None else self._continuation, write)

    def interrupted(self, reason: str, answers: Sequence[Result]) -> Memory:
        """Of a turn that goes on later, with what it has answered so far. One that has done nothing yet begins again
        instead."""
        turn, reason = self._turn, self._journal.redactor.text(reason)
        packed = self._packed if self._acted or answers or reason == PARKED else None
        if packed is None:
            return Memory(write=self._write_version)

        async def write(conn: AsyncConnection) -> None:
            await self._write_version(conn)
            await save_interrupted(
                conn,
                turn.lease.session_id,
                turn.provider,
                packed,
                turn_id=turn.id,
                reason=reason,
                messages_known=self._known,
            )

        return Memory(self._continuation, write, tuple(answers))

    async def _write_version(self, conn: AsyncConnection) -> None:
        if self._version:  # else its driver's stays
            await set_turn(conn, self._turn.id, provider_version=self._version)

    async def is_decided(self, conn: AsyncConnection) -> bool:
        """Whether everything it has asked people is decided, when the turn is being parked for it."""
        return await self._left(conn) is None

    async def _left(self, conn: AsyncConnection) -> float | None:
        """For how many seconds it still waits for a person; None: for nobody."""
        since = self._turn.interrupted.updated_at if self._turn.interrupted is not None else None
        steps = await steps_that_waited(conn, self._turn.id, since)
        return await still_waits(conn, [step.id for step in steps])


def _was_done(step: AnyRow) -> str:
    if step.key.startswith(KEY):
        return f"- {_called(step)}: it was allowed; look whether it was done"
    wanted = " ".join(str(step.input).split())[:SHOWN]
    if step.status == "started":
        return f"- {step.name} {wanted}: begun; whether it took effect is unknown"
    return f"- {step.name} {wanted}: {' '.join(step.output['text'].split())[:SHOWN]}"


def _called(step: AnyRow) -> str:
    """What the program wanted, as it would know it again."""
    wanted = step.input.get("command") or ", ".join(step.input.get("paths") or ())
    return (
        f"{step.name} ({' '.join(wanted.split())[:WANTED]})" if wanted and step.key.startswith(KEY) else str(step.name)
    )
