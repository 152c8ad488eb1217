"""A wake becomes a turn: open it, run the provider, end it. At most one turn per wake; more work rings again."""

import asyncio
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import Limits, ParkedError, Query, QueryInput
from adapters.errors import AdapterError, ErrorClass, ProviderError
from adapters.events import Failed, Progress, ProviderEvent, Result, SessionStarted, ToolCall, ToolResult, UsageReport
from adapters.model_port import AnyProvider, ModelProvider
from adapters.policy import PolicyError, parse_policy
from adapters.providers.instrumentation import Instrumented
from adapters.station import ProgramProvider
from adapters.terminal_port import Terminal
from adapters.tool_port import NOTHING_BESIDE, Beside
from adapters.transcript import Item, Said
from adapters.workspace import Workspace
from models.consent import is_awaited
from models.database import uninterrupted
from models.errors import LeaseLostError, StoreError
from models.turns import has_finished, steps_of_turn
from workers.budget import Purse, limits_of
from workers.compaction import Compactor, is_wished
from workers.ending import NOTHING_NEW, PATIENCE_SECONDS, Ended, Ending, Memory
from workers.events import envelope
from workers.failover import Choice, after
from workers.follow_ups import FollowUps
from workers.formatting import format_prompt, is_raw, plain_text
from workers.gate import FleetGate
from workers.intake.rejections import record_rejection
from workers.journal import Journal
from workers.loop import Stop, current_job
from workers.mail import Mail
from workers.media import Media
from workers.model_journal import ModelJournal
from workers.opening import Elsewhere, NoSuchSession, NothingToDo, OpenedTurn, open_next
from workers.outfitting import outfit
from workers.programs import CHANGE_FILES, CUT_SHORT, PARKED, PROGRAM_USD, ProgramRun
from workers.replies import ReplyTo
from workers.runtime import Runtime
from workers.scripts import Found, TaskScript
from workers.system_prompt import system_prompt
from workers.takeover import Takeover
from workers.tool_loop import ToolLoop
from workers.toolbox import JournaledToolBox
from workers.typing import Typing
from workers.verdicts import Failure
from workers.watchdog import SilenceError, Watchdog
from workers.workflows.assignment import GIT_ENV, workbench_of, workspace_of

log = structlog.get_logger()

WakeOutcome = Literal[
    "nothing", "elsewhere", "completed", "waiting", "parked", "failed", "cancelled", "handed_over", "lost"
]


async def wake(
    runtime: Runtime, session_id: str, queue_provider: str | None = None, *, task_id: str = ""
) -> WakeOutcome:
    """Do what is due in a session. Called twice, late or for nothing, it does no harm."""
    opening = asyncio.ensure_future(
        runtime.db.transact(
            lambda conn: open_next(conn, runtime.registry, runtime.settings, session_id, runtime.owner, queue_provider)
        )
    )
    stopped = False
    try:
        opened = await uninterrupted(opening)
    except asyncio.CancelledError:
        if opening.cancelled() or opening.exception() is not None or not isinstance(opening.result(), OpenedTurn):
            raise
        opened, stopped = opening.result(), True  # it is ours now, and must be let go of
    except NothingToDo:
        return "nothing"
    except NoSuchSession:
        await _refuse(runtime, session_id, task_id)
        return "nothing"
    if isinstance(opened, Elsewhere):
        runtime.bells.wake(session_id, opened.provider)
        return "elsewhere"
    runtime.publisher.publish(envelope(session_id, opened.started, turn_id=opened.id, seq=opened.event_seq))
    try:
        ended = await _Attempt(runtime, opened).run(stopped=stopped)
    except LeaseLostError:
        log.warning("turn.lease_lost", session=session_id, turn=opened.id)
        return "lost"
    for message_out_id in ended.deliveries:
        runtime.bells.deliver(message_out_id)
    if opened.assignment is not None and ended.status in ("completed", "failed", "cancelled"):
        runtime.bells.advance(opened.assignment.workflow_id)
    if ended.wake or (opened.leftover and ended.status not in ("waiting", "parked")):
        runtime.bells.wake(ended.session_id or session_id, ended.provider or opened.provider)
    return ended.status  # type: ignore[return-value]


async def _refuse(runtime: Runtime, session_id: str, task_id: str) -> None:
    """A wake for a session that does not exist comes from a mistake; it is kept where somebody sees it."""
    reason = f"there is no session {session_id!r}"
    await record_rejection(runtime.db, task_id or session_id, "agent.wake", reason, {"session_id": session_id})
    log.warning("wake.no_such_session", session=session_id)


@dataclass
class _Heard:
    """What the provider has said so far."""

    results: list[Result] = field(default_factory=list)
    usage: list[UsageReport] = field(default_factory=list)
    continuation: str | None = None
    failure: Failed | None = None


class _Attempt:
    def __init__(self, runtime: Runtime, turn: OpenedTurn) -> None:
        self._runtime = runtime
        self._turn = turn
        self._job = current_job()
        self._journal = Journal(runtime.db, runtime.publisher, turn.lease, turn.id, turn.event_seq, self._job)
        self._ending = Ending(runtime.db, self._journal, turn, runtime.patience)
        self._heard = _Heard()
        self._prompt = ""
        self._watchdog = Watchdog(runtime.settings.silent_seconds)
        self._tools: JournaledToolBox | None = None
        self._loop: ToolLoop | None = None
        self._notebook: ModelJournal | None = None
        self._purse: Purse | None = None
        self._program: ProgramRun | None = None
        self._mail = Mail(runtime.db, turn.lease.session_id)
        self._watches = False
        self._unpaid: list[UsageReport] = []
        # The agent need not be asked, or cannot be: what its turn leaves behind then.
        self._spared: Memory | None = None

    async def run(self, *, stopped: bool) -> Ended:
        with self._runtime.leases.hold(self._turn.lease, self._job) as self._held:
            self._held.on_mail = self._mail.ring
            try:
                ended = await (self._stopped() if stopped else self._run())
                ended.deliveries += self._purse.deliveries if self._purse is not None else []
                return ended
            finally:
                self._mail.cancel()
                await self._journal.close()  # also when the lease is lost: nothing flushes behind our back

    async def _run(self) -> Ended:
        parked: ParkedError | None = None
        other: Choice | None = None
        try:
            failure = await self._attempt() if self._turn.verdict is None else self._verdict()
            if failure is not None:
                other = await self._other()
            await self._journal.close()
        except ParkedError as error:
            parked, failure = error, None
            await self._journal.close()
        except asyncio.CancelledError:
            return await self._stopped()
        # From here on only whole transactions follow, which no stop tears apart.
        self._held.ending = True
        if parked is not None:
            return await self._put_away(parked)
        if failure is not None:
            is_decided = self._purse.is_decided if self._purse is not None else None
            return await self._ending.fail(failure, other, self._interrupted(failure.message), is_decided)
        if self._mail.cut_short:
            return await self._ending.hand_over(self._interrupted(CUT_SHORT))
        if self._spared is not None:
            return await self._ending.complete([], [], [], self._spared)
        try:
            return await self._complete()
        except StoreError:
            raise
        except Exception as error:  # what cannot be written now cannot be written by five more tries
            log.exception("turn.not_stored", turn=self._turn.id)
            why = f"its answer could not be stored ({type(error).__name__})"
            return await self._ending.fail(Failure(ErrorClass.INTERNAL, why, retryable=False))

    async def _attempt(self) -> Failure | None:
        if self._turn.terms.script is not None:
            failure = await self._ask_script()
            if failure is not None or self._spared is not None:
                return await self._judge(failure)
        reply_to = ReplyTo.to_last_of(self._turn.lease.session_id, self._turn.messages)
        async with Typing(self._runtime, reply_to) if self._turn.delivers else nullcontext():
            failure = await self._ask_provider()
            if self._program is not None:
                await self._program.note(failure)
                if (parked := await self._program.waits()) is not None:
                    raise parked
            return await self._judge(failure)

    async def _ask_script(self) -> Failure | None:
        """Whether there is anything to do. What rides along with a task that the agent never sees waits for the next
        turn, also when the script failed."""
        script = TaskScript(self._runtime, self._turn, self._journal)
        found = await script.ask()
        failure = found if isinstance(found, Failure) else None
        if (isinstance(found, Found) and not found.wakes) or (failure and failure.error_class is ErrorClass.SCRIPT):
            self._spared = Memory(write=script.leave)
            self._turn.messages[:] = [message for message in self._turn.messages if message.wakes]
        return failure

    async def _put_away(self, parked: ParkedError) -> Ended:
        """A program that could not go on from where it is would have asked in vain."""
        if self._program is not None and self._program.unkept:
            why = f"it asked a person, but what it remembers could not be kept to go on with: {self._program.unkept}"
            return await self._ending.fail(Failure(ErrorClass.INTERNAL, why, retryable=False))
        return await self._ending.park(parked, self._is_decided, self._interrupted(PARKED))

    async def _complete(self) -> Ended:
        heard = self._heard
        reset = await self._is_reset_wanted()
        if self._loop is not None and self._notebook is not None:
            # Its usage is on record with its model calls.
            memory = Memory(write=self._notebook.write_end)
            return await self._ending.complete(heard.results, self._loop.said, [], memory, reset=reset)
        said: list[Item] = [Said("user", self._prompt)]
        said += [Said("assistant", result.text) for result in heard.results if result.text.strip()]
        if self._program is not None:
            return await self._ending.complete(heard.results, said, self._unpaid, self._program.memory(), reset=reset)
        return await self._ending.complete(heard.results, said, heard.usage, Memory(heard.continuation), reset=reset)

    def _interrupted(self, reason: str) -> Memory:
        if self._program is None:
            return self._spared or NOTHING_NEW
        return self._program.interrupted(reason, self._heard.results)

    async def _is_decided(self, conn: AsyncConnection) -> bool:
        """Whether what a turn that is being parked waits for has come meanwhile. A program goes on when it all has."""
        if self._program is not None:
            return await self._program.is_decided(conn)
        return not await is_awaited(conn, self._turn.id, self._key_prefix)

    async def _is_reset_wanted(self) -> bool:
        """Also if it was a program's earlier attempt that wanted it."""
        if self._program is None:
            return self._tools is not None and self._tools.reset_wanted
        return await self._runtime.db.read(
            lambda conn: has_finished(conn, self._turn.id, "reset_session"), patience=PATIENCE_SECONDS
        )

    async def _other(self) -> Choice | None:
        """Who could go on with this turn. Once it has said something, only one that will not say it again."""
        turn, providers = self._turn, self._runtime.registry.providers
        other = after(turn.offered, turn.provider, turn.tried)
        if other is None or other.provider not in providers.names:
            return None
        same_journal = self._loop is not None and isinstance(providers.get(other.provider), ModelProvider)
        return other if same_journal or not await self._ending.has_said_something() else None

    def _verdict(self) -> Failure:
        assert self._turn.verdict is not None
        return Failure(*self._turn.verdict, retryable=False)

    async def _ask_provider(self) -> Failure | None:
        """None: it answered. Everything a provider can do wrong comes back as a Failure."""
        try:
            provider = self._runtime.registry.providers.get(self._turn.provider)
        except AdapterError as error:
            return Failure(ErrorClass.UNKNOWN_PROVIDER, str(error), retryable=False)
        query: Query | None = None
        servers = AsyncExitStack()
        try:
            query = await self._start(provider, servers)
            if isinstance(query, Terminal):
                self._held.on_control = (await servers.enter_async_context(Takeover(query, self._journal))).hear
            async for event in self._watchdog.watch(query.events):
                self._hear(event, query)
                if self._heard.failure is not None:
                    break
                if isinstance(event, ToolCall) and event.name in CHANGE_FILES:
                    await self._watch_workspace(servers)
        except SilenceError:
            silent = f"the provider said nothing for {self._runtime.settings.silent_seconds:g} s"
            if isinstance(provider, ModelProvider):
                account = (provider.manifest.adapter_id, provider.account)
                await self._runtime.breaker.failed(account, ProviderError(silent, ErrorClass.PROVIDER_HANG))
            return Failure(ErrorClass.PROVIDER_HANG, silent, retryable=True)
        except (LeaseLostError, ParkedError):
            raise
        except ProviderError as error:
            return Failure(
                error.error_class, str(error), error.error_class.can_pass, error.retry_after, asked=error.asked
            )
        except (AdapterError, PolicyError) as error:
            return Failure(ErrorClass.INVALID_REQUEST, str(error), retryable=False)
        except Exception as error:  # a driver's bug must not take the message with it
            log.exception("provider.crashed", provider=self._turn.provider, turn=self._turn.id)
            # Only its type: the text of a driver's error may hold an address with a key in it.
            return Failure(ErrorClass.INTERNAL, f"the provider crashed ({type(error).__name__})", retryable=True)
        finally:
            await uninterrupted(self._clean_up(query, servers))
        if self._heard.failure is None:
            return None
        said = self._heard.failure
        return Failure(said.error_class, said.message, said.retryable, said.retry_after, said.asked)

    async def _clean_up(self, query: Query | None, held: AsyncExitStack) -> None:
        """Whatever goes wrong with one of these, the rest is done: nothing of the attempt may be left."""
        self._held.ending = True  # what comes now is for the next turn
        async with held:
            try:
                await self._mail.close()
            finally:
                if query is not None:
                    await query.abort()
            if self._program is not None:
                await self._program.keep()
                await self._charge(self._program.id)

    async def _charge(self, held_for: str) -> None:
        try:
            await self._ending.charge(self._heard.usage, held_for)
        except LeaseLostError:
            raise
        except StoreError:  # its end, which is waited for longer, takes it along
            self._unpaid = self._heard.usage
        except Exception:  # figures that no column holds cost nobody the answer
            log.exception("turn.not_charged", turn=self._turn.id)

    async def _watch_workspace(self, held: AsyncExitStack) -> None:
        """From the first tool on that may change files. (A program's is watched from its start.)"""
        if self._program is None and not self._watches:
            self._watches = True
            workspace, _ = await self._workspace()
            watch = Instrumented(await self._runtime.sandbox(), workspace.root, self._journal.add)
            await held.enter_async_context(watch)

    async def _workspace(self) -> tuple[Workspace, Beside]:
        """The agent's own folder; of a workflow's stage, the tree it works on, with its repository to be read."""
        turn, runtime = self._turn, self._runtime
        if turn.assignment is None or turn.assignment.tree is None:
            return await runtime.workspace(turn.folder, turn.scratch), NOTHING_BESIDE
        root = runtime.settings.workspace_root
        bench = workbench_of(root, turn.assignment.workflow_id, await runtime.sandbox())
        return await workspace_of(bench, turn.assignment), Beside((bench.repository,), GIT_ENV)

    async def _start(self, provider: AnyProvider, servers: AsyncExitStack) -> Query:
        """Ask the provider. Others' MCP servers, if the group has any, run until `servers` is closed."""
        turn, runtime = self._turn, self._runtime
        workspace, beside = await self._workspace()
        capabilities = provider.manifest.capabilities
        if isinstance(provider, ProgramProvider):  # it opens files itself
            capabilities = replace(capabilities, images=False, pdfs=False)
        media = Media(workspace, runtime.web, runtime.registry.channels, capabilities, runtime.fetching)
        await media.prepare(turn.messages)
        for note in media.problems:
            self._journal.add(Progress(text=note))
        self._prompt = format_prompt(turn.messages, media.notes, turn.facts)
        policy = parse_policy(turn.config)
        tools = self._tools = await outfit(
            runtime, turn, self._journal, self._watchdog, provider, policy, workspace, beside, servers, self._key_prefix
        )
        given = QueryInput(
            prompt=self._prompt,
            messages=tuple(plain_text(message, turn.facts) for message in turn.messages),
            raw=is_raw(turn.messages),
            tools=tools,
            attempt=turn.attempt,
            model=turn.model,
            continuation=turn.continuation,
            cwd=str(workspace.root),
            extra_directories=tuple(map(str, beside.readable)),
            task=turn.assignment.planned if turn.assignment is not None else None,
            policy=policy,
            limits=Limits(seconds_silent=runtime.settings.silent_seconds),
            env={
                "LONGSHORE_SESSION_ID": turn.lease.session_id,
                "LONGSHORE_TURN_ID": turn.id,
                "LONGSHORE_AGENT": turn.folder,
                **beside.env,
            },
            options=turn.options,
        )
        if isinstance(provider, ModelProvider):
            return await self._start_loop(provider, given, media)
        if isinstance(provider, ProgramProvider):
            given = await self._prepare_program(provider, given, media, servers)
        elif turn.attempt > 1 and self._replays_steps():
            given = replace(given, called=await self._called())
        query = provider.query(given)
        if provider.manifest.capabilities.push:
            plain = provider.manifest.capabilities.plain_texts
            follow_ups = FollowUps(runtime.db, self._journal, turn, media, plain=plain)
            self._mail.for_agent(query, follow_ups, self._program)
        return query

    async def _called(self) -> frozenset[str]:
        steps = await self._runtime.db.read(lambda conn: steps_of_turn(conn, self._turn.id))
        return frozenset(step.key.rpartition(":")[0] for step in steps)

    async def _prepare_program(
        self, provider: ProgramProvider, given: QueryInput, media: Media, held: AsyncExitStack
    ) -> QueryInput:
        turn, runtime = self._turn, self._runtime
        assert self._tools is not None
        self._program = ProgramRun(runtime, turn, self._journal, self._watchdog, provider)
        reply_to = ReplyTo.to_last_of(turn.lease.session_id, turn.messages)
        self._purse = Purse(runtime.db, runtime.registry, self._journal, turn, reply_to.sender_id)
        await self._purse.hold(self._program.id, PROGRAM_USD)
        prompt = await system_prompt(runtime.settings.workspace_root, turn.folder, turn.name, (), given.policy)
        given = replace(given, system_prompt=prompt)
        return await self._program.prepare(given, await runtime.sandbox(), self._tools, media.notes, held)

    async def _start_loop(self, provider: ModelProvider, given: QueryInput, media: Media) -> ToolLoop:
        turn, runtime = self._turn, self._runtime
        workspace_root, specs = runtime.settings.workspace_root, given.tools.specs
        prompt = await system_prompt(workspace_root, turn.folder, turn.name, specs, given.policy)
        reply_to = ReplyTo.to_last_of(turn.lease.session_id, turn.messages)
        budgeted = bool(limits_of(turn, reply_to.sender_id))
        self._notebook = ModelJournal(self._journal, turn, reply_to.sender_id, media, budgeted=budgeted)
        self._purse = Purse(runtime.db, runtime.registry, self._journal, turn, reply_to.sender_id)
        self._loop = ToolLoop(
            provider,
            replace(given, system_prompt=prompt),
            self._notebook,
            FleetGate(provider, runtime.breaker, runtime.governor, self._purse, self._notebook),
            Compactor(Path(given.cwd)),
            self._watchdog.alive,
            media.load,
            lambda: is_wished(turn.messages),
        )
        self._mail.for_loop(self._loop)
        return self._loop

    def _hear(self, said: ProviderEvent, query: Query) -> None:
        event = said if self._program is None else self._program.hear(said, query)
        if event is None:
            return
        match event:
            case Result():
                self._heard.results.append(event)
                self._journal.end_text()
                return  # told of when it leaves
            case UsageReport():
                self._heard.usage.append(event)
            case SessionStarted():
                self._heard.continuation = event.continuation
                self._mail.ring()  # what came before it could be told
            case Failed():
                self._heard.failure = event
            case ToolResult(id=call_id) if self._tools is not None and call_id in self._tools.told:
                return
        # The last things a provider says are written with the turn's end; the tool box writes a call with its step.
        self._journal.add(event, soon=not isinstance(event, UsageReport | SessionStarted | Failed | ToolCall))

    async def _stopped(self) -> Ended:
        """Somebody stopped this attempt; what that means for the turn depends on who."""
        # The clean-up below must not be stopped by the same cancellation.
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        await self._journal.close()
        self._held.ending = True
        waits = self._job.reason in (Stop.SHUTDOWN, Stop.TIME_LIMIT)
        if waits and self._program is not None and (parked := await self._program.waits()) is not None:
            return await self._put_away(parked)
        match self._job.reason:
            case Stop.SHUTDOWN:
                return await self._ending.hand_over(self._interrupted("the worker it ran on was stopped"))
            case Stop.REVOKED:
                failure = Failure(ErrorClass.CANCELLED, "stopped by an operator", retryable=False)
                return await self._ending.fail(failure)
            case Stop.TIME_LIMIT:
                limit = Failure(ErrorClass.PROVIDER_HANG, "the turn took longer than it may", retryable=True)
                return await self._ending.fail(await self._judged(limit), None, self._interrupted(limit.message))
            case _:
                raise LeaseLostError(f"session {self._turn.lease.session_id}: stopped, its lease is gone")

    async def _judge(self, failure: Failure | None) -> Failure | None:
        return None if failure is None else await self._judged(failure)

    async def _judged(self, failure: Failure) -> Failure:
        """An attempt that has already said something is run again only by a provider that will not repeat it. (Whether
        a program would, its memory decides when it is opened again.)"""
        repeats = not self._replays_steps() and self._program is None
        if failure.retryable and repeats and await self._ending.has_said_something():
            why = f"{failure.message} (not tried again: it had already said something)"
            return Failure(ErrorClass.OUTPUT_SENT, why, retryable=False)
        return failure

    @property
    def _key_prefix(self) -> str:
        """A provider that asks anew on a second attempt may use an id again for another call."""
        return "" if self._replays_steps() else f"{self._turn.attempt}:"

    def _replays_steps(self) -> bool:
        with suppress(AdapterError):
            return self._runtime.registry.providers.get(self._turn.provider).manifest.capabilities.replays_steps
        return False
