"""A wake becomes a turn: open it, run the provider, end it. At most one turn per wake; more work rings again."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import structlog

from adapters.contracts import Limits, Provider, Query, QueryInput
from adapters.errors import AdapterError, ErrorClass, ProviderError
from adapters.events import Failed, ProviderEvent, Result, SessionStarted, ToolCall, UsageReport
from models.database import uninterrupted
from models.errors import LeaseLostError, StoreError
from workers.ending import Ended, Ending, Failure
from workers.events import envelope
from workers.formatting import format_prompt, plain_text
from workers.ingest import record_rejection
from workers.journal import Journal
from workers.loop import Stop, current_job
from workers.opening import Elsewhere, NoSuchSession, NothingToDo, OpenedTurn, open_next
from workers.replies import ReplyTo
from workers.runtime import Runtime
from workers.toolbox import JournaledToolBox
from workers.watchdog import SilenceError, Watchdog

log = structlog.get_logger()

WakeOutcome = Literal["nothing", "elsewhere", "completed", "waiting", "failed", "cancelled", "handed_over", "lost"]


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
    if ended.wake or (opened.leftover and ended.status != "waiting"):
        runtime.bells.wake(session_id, opened.provider)
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
        self._ending = Ending(runtime.db, self._journal, turn, runtime.backoff)
        self._heard = _Heard()
        self._prompt = ""
        self._watchdog = Watchdog(runtime.settings.silent_seconds)

    async def run(self, *, stopped: bool) -> Ended:
        with self._runtime.leases.hold(self._turn.lease, self._job) as self._held:
            try:
                return await (self._stopped() if stopped else self._run())
            finally:
                await self._journal.close()  # also when the lease is lost: nothing flushes behind our back

    async def _run(self) -> Ended:
        try:
            failure = await self._judge(await self._ask_provider()) if self._turn.verdict is None else self._verdict()
            await self._journal.close()
        except asyncio.CancelledError:
            return await self._stopped()
        # From here on only whole transactions follow, which no stop tears apart.
        self._held.ending = True
        if failure is not None:
            return await self._ending.fail(failure)
        try:
            return await self._ending.complete(
                self._prompt, self._heard.results, self._heard.usage, self._heard.continuation
            )
        except StoreError:
            raise
        except Exception as error:  # what cannot be written now cannot be written by five more tries
            log.exception("turn.not_stored", turn=self._turn.id)
            why = f"its answer could not be stored ({type(error).__name__})"
            return await self._ending.fail(Failure(ErrorClass.INTERNAL, why, retryable=False))

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
        try:
            query = await self._start(provider)
            async for event in self._watchdog.watch(query.events):
                self._hear(event)
                if self._heard.failure is not None:
                    break
        except SilenceError:
            silent = f"the provider said nothing for {self._runtime.settings.silent_seconds:g} s"
            return Failure(ErrorClass.PROVIDER_HANG, silent, retryable=True)
        except LeaseLostError:
            raise
        except ProviderError as error:
            return Failure(error.error_class, str(error), error.error_class.can_pass, error.retry_after)
        except AdapterError as error:
            return Failure(ErrorClass.INVALID_REQUEST, str(error), retryable=False)
        except Exception as error:  # a driver's bug must not take the message with it
            log.exception("provider.crashed", provider=self._turn.provider, turn=self._turn.id)
            # Only its type: the text of a driver's error may hold an address with a key in it.
            return Failure(ErrorClass.INTERNAL, f"the provider crashed ({type(error).__name__})", retryable=True)
        finally:
            if query is not None:
                await uninterrupted(query.abort())
        if self._heard.failure is None:
            return None
        said = self._heard.failure
        return Failure(said.error_class, said.message, said.retryable, said.retry_after)

    async def _start(self, provider: Provider) -> Query:
        turn, runtime = self._turn, self._runtime
        self._prompt = format_prompt(turn.messages)
        workspace = await runtime.workspace(turn.folder)
        tools = JournaledToolBox(
            runtime.db,
            runtime.bells,
            runtime.registry.tools,
            self._journal,
            self._watchdog,
            ReplyTo.to_last_of(turn.lease.session_id, turn.messages),
            agent_group=turn.folder,
            # A provider that asks anew on a second attempt may use an id again for another call.
            key_prefix="" if self._replays_steps() else f"{turn.attempt}:",
        )
        given = QueryInput(
            prompt=self._prompt,
            messages=tuple(plain_text(message) for message in turn.messages),
            tools=tools,
            attempt=turn.attempt,
            model=turn.model,
            continuation=turn.continuation,
            cwd=str(workspace),
            limits=Limits(seconds_silent=runtime.settings.silent_seconds),
            options=turn.options,
        )
        return provider.query(given)

    def _hear(self, event: ProviderEvent) -> None:
        match event:
            case Result():
                self._heard.results.append(event)
            case UsageReport():
                self._heard.usage.append(event)
            case SessionStarted():
                self._heard.continuation = event.continuation
            case Failed():
                self._heard.failure = event
        # The last things a provider says are written with the turn's end; the tool box writes a call with its step.
        self._journal.add(event, soon=not isinstance(event, Result | UsageReport | SessionStarted | Failed | ToolCall))

    async def _stopped(self) -> Ended:
        """Somebody stopped this attempt; what that means for the turn depends on who."""
        # The clean-up below must not be stopped by the same cancellation.
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        await self._journal.close()
        self._held.ending = True
        match self._job.reason:
            case Stop.SHUTDOWN:
                return await self._ending.hand_over()
            case Stop.REVOKED:
                failure = Failure(ErrorClass.CANCELLED, "stopped by an operator", retryable=False)
                return await self._ending.fail(failure)
            case Stop.TIME_LIMIT:
                limit = Failure(ErrorClass.PROVIDER_HANG, "the turn took longer than it may", retryable=True)
                return await self._ending.fail(await self._judged(limit))
            case _:
                raise LeaseLostError(f"session {self._turn.lease.session_id}: stopped, its lease is gone")

    async def _judge(self, failure: Failure | None) -> Failure | None:
        return None if failure is None else await self._judged(failure)

    async def _judged(self, failure: Failure) -> Failure:
        """An attempt that has already said something is run again only by a provider that will not repeat it."""
        if failure.retryable and not self._replays_steps() and await self._ending.has_said_something():
            why = f"{failure.message} (not tried again: it had already said something)"
            return Failure(ErrorClass.OUTPUT_SENT, why, retryable=False)
        return failure

    def _replays_steps(self) -> bool:
        with suppress(AdapterError):
            return self._runtime.registry.providers.get(self._turn.provider).manifest.capabilities.replays_steps
        return False
