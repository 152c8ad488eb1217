"""Ending an attempt: completed, to be tried again, dead, or handed over. Each is one transaction that lets go of the
session first, so that a worker that has lost it writes nothing."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import structlog
from sqlalchemy import func, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.contracts import ParkedError
from adapters.errors import ErrorClass
from adapters.events import AnyEvent, Envelope, Result, TurnEnded, UsageReport
from adapters.transcript import Item
from models.base import new_id, now, rows
from models.budgets import release_reservations
from models.budgets import settle as settle_money
from models.consent import close_questions
from models.conversation import TranscriptItem, Usage
from models.database import Database, uninterrupted
from models.inbox import MessageIn, complete_messages, settle
from models.notices import owner_notices, store_notices
from models.outbox import MessageOut, has_left, notice
from models.people import owner_addresses
from models.quoting import quoted
from models.sessions import Released, end_rest, release
from models.turns import Turn, complete_turn, set_turn
from models.upsert import insert_ignoring
from workers.failover import Choice
from workers.journal import Journal, count_lasting
from workers.opening import OpenedTurn
from workers.replies import ReplyTo
from workers.session_reset import begin_anew
from workers.verdicts import Failure, GiveUp, Move, Patience, Rest

log = structlog.get_logger()

_INSERT_OUT = insert(MessageOut.__table__)  # type: ignore[arg-type]
# Returning something makes SQLAlchemy send several rows in one statement, for half the CPU.
_INSERT_TRANSCRIPT = insert(TranscriptItem.__table__).returning(TranscriptItem.id)  # type: ignore[arg-type]
_INSERT_USAGE = insert(Usage.__table__)  # type: ignore[arg-type]

# Long enough to sit out a restart of the database: what the provider said is in memory only.
PATIENCE_SECONDS = 60.0
_GIVEN_UP = "I could not answer this. Your message is kept, and whoever runs me can see why and try it again."


Write = Callable[[AsyncConnection], Awaitable[None]]
Look = Callable[[AsyncConnection], Awaitable[bool]]


@dataclass(frozen=True)
class Memory:
    """What the provider itself remembers of the conversation: how it finds it again, and what else is to be written
    for that. `answers`: what it remembers having said, in the middle of a turn: they leave with it."""

    continuation: str | None = None
    write: Write | None = None
    answers: tuple[Result, ...] = ()


NOTHING_NEW = Memory()


@dataclass
class Ended:
    """What to ring for after the commit. `provider`: on whose queue, if it is another's now; `session_id`: the session
    to wake, if the conversation goes on in another."""

    status: str
    wake: bool = False
    provider: str | None = None
    session_id: str | None = None
    deliveries: list[str] = field(default_factory=list)


class Ending:
    def __init__(self, db: Database, journal: Journal, turn: OpenedTurn, patience: Patience) -> None:
        self._db = db
        self._journal = journal
        self._redactor = journal.redactor
        self._turn = turn
        self._patience = patience

    @property
    def _reply_to(self) -> ReplyTo:
        """To the last message, which may have joined the turn while it ran."""
        return ReplyTo.to_last_of(self._turn.lease.session_id, self._turn.messages)

    async def complete(
        self,
        results: list[Result],
        said: Sequence[Item],
        usage: list[UsageReport],
        memory: Memory = NOTHING_NEW,
        *,
        reset: bool = False,
    ) -> Ended:
        """Answers, usage, transcript (`said`), the provider's memory and `completed`, all or nothing. `reset`: the
        agent wants the conversation to begin anew."""
        turn = self._turn
        outbound = self._outbound(results, turn.id)
        events = self._last_events(TurnEnded(status="completed"), results)

        async def work(conn: AsyncConnection) -> tuple[Ended, list[Envelope]]:
            released, _ = await self._let_go(conn, events, memory, messages=len(outbound))
            first = released.message_seq - len(outbound) + 1
            if outbound:
                await conn.execute(_INSERT_OUT, rows([row | {"seq": first + n} for n, row in enumerate(outbound)]))
            await complete_messages(conn, turn.id)
            await complete_turn(conn, turn.id)
            if said:
                await conn.execute(_INSERT_TRANSCRIPT, rows(self._transcript(said)))
            if usage:
                await conn.execute(_INSERT_USAGE, rows([self._usage(report) for report in usage]))
            if turn.attempt > 1 or usage:  # else nobody may have settled the money that was held
                await release_reservations(conn, turn.id)
            anew = await begin_anew(conn, turn.lease.session_id) if reset else None
            stored = await self._journal.store(conn, events, released.event_seq)
            ended = Ended("completed", released.more, deliveries=[row["id"] for row in outbound])
            if anew is not None:
                ended.wake, ended.session_id = anew.due, anew.session_id
                ended.deliveries += anew.deliveries
            return ended, stored

        return await self._commit(work)

    def _last_events(self, ended: TurnEnded, answers: Sequence[Result] = ()) -> list[AnyEvent]:
        """All that is not on record yet. An answer is told of when it leaves, not when it is heard: the attempt may be
        lost in between, and the next says it again."""
        return [*self._journal.take(), *(answer for answer in answers if answer.text.strip()), ended]

    async def _let_go(
        self, conn: AsyncConnection, events: list[AnyEvent], memory: Memory, *, messages: int = 0, **how: Any
    ) -> tuple[Released, list[str]]:
        """Let go of the session, with what the provider remembers. Returns the ids of the answers that leave now too;
        they have the numbers before the `messages` that were asked for."""
        turn = self._turn
        found_by = {**turn.continuations, turn.provider: memory.continuation} if memory.continuation else None
        said = self._outbound(memory.answers, f"{turn.id}:{turn.attempt}")
        released = await release(
            conn,
            turn.lease,
            messages=len(said) + messages,
            events=count_lasting(events),
            continuation=found_by,
            **how,
        )
        if said:
            first = released.message_seq - messages - len(said) + 1
            await conn.execute(_INSERT_OUT, rows([row | {"seq": first + n} for n, row in enumerate(said)]))
        if memory.write is not None:
            await memory.write(conn)
        return released, [row["id"] for row in said]

    def _outbound(self, results: Sequence[Result], key: str) -> list[dict[str, Any]]:
        texts = [self._redactor.text(result.text) for result in results if result.text.strip()]
        return [
            self._reply_to.outbound(content={"text": text}, turn_id=self._turn.id, key=f"{key}:{number}")
            for number, text in enumerate(texts, 1)
        ]

    async def fail(
        self,
        failure: Failure,
        other: Choice | None = None,
        memory: Memory = NOTHING_NEW,
        is_decided: Look | None = None,
    ) -> Ended:
        """Go on with another provider, try again later, or give up: dead-letter, and tell the people concerned.
        `is_decided`: as for `park`, if it is a person it waits for."""
        turn = self._turn
        failure = replace(failure, message=self._redactor.text(failure.message))
        verdict = self._patience.judge(failure, tries=turn.tries, waited=turn.waited_seconds, other=other)
        facts = {"session": turn.lease.session_id, "turn": turn.id, "error": failure.error_class}
        log.warning("turn.failed", **facts, then=type(verdict).__name__)
        match verdict:
            case Rest():
                return await self._rest(failure, verdict, memory, is_decided)
            case Move(choice=choice):
                return await self._move(failure, choice)
            case GiveUp():
                return await self._bury(failure, memory)

    async def _rest(self, failure: Failure, rest: Rest, memory: Memory, is_decided: Look | None) -> Ended:
        turn = self._turn
        status: Literal["parked", "waiting"] = "parked" if rest.parked else "waiting"
        why = {"error": failure.message, "error_class": failure.error_class}
        ended = TurnEnded(status=status, retry_in=round(rest.seconds, 1), **why)
        events = self._last_events(ended, memory.answers)
        uncounted: dict[str, Any] = {} if rest.counted else {"tries": MessageIn.tries - 1}

        async def work(conn: AsyncConnection) -> tuple[Ended, list[Envelope]]:
            released, said = await self._let_go(
                conn, events, memory, rest_seconds=rest.seconds, activity=_words(failure)
            )
            await release_reservations(conn, turn.id)
            await settle(conn, turn.id, "pending", **why, **uncounted)
            waits: Any = Turn.waiting_since if rest.counted else func.coalesce(Turn.waiting_since, now())
            await set_turn(conn, turn.id, status=status, waiting_since=None if rest.parked else waits, **why)
            decided = rest.parked and is_decided is not None and await is_decided(conn)
            if decided:
                await end_rest(conn, turn.lease.session_id)
            stored = await self._journal.store(conn, events, released.event_seq)
            return Ended(status, wake=decided, deliveries=said), stored

        return await self._commit(work)

    async def _move(self, failure: Failure, choice: Choice) -> Ended:
        """The same turn, with its journal, on another provider's queue, with all its tries."""
        turn = self._turn
        why = f"{turn.provider}: {failure.message}; going on with {choice.provider}"
        ended = TurnEnded(status="handed_over", error=why, error_class=failure.error_class)
        events = self._last_events(ended)

        async def work(conn: AsyncConnection) -> tuple[Ended, list[Envelope]]:
            released = await release(conn, turn.lease, events=count_lasting(events), ring=True)
            await release_reservations(conn, turn.id)
            await settle(conn, turn.id, "pending", tries=0)
            changes = {"error": why, "error_class": failure.error_class, "waiting_since": None}
            await set_turn(conn, turn.id, status="waiting", tried=[*turn.tried, turn.provider], **changes)
            stored = await self._journal.store(conn, events, released.event_seq)
            return Ended("handed_over", wake=True, provider=choice.provider), stored

        return await self._commit(work)

    async def park(self, parked: ParkedError, is_decided: Look, memory: Memory = NOTHING_NEW) -> Ended:
        """Put the turn away until a person has answered, or for as long as it waits at most. `is_decided`: whether what
        it waits for has come meanwhile."""
        turn = self._turn
        ended = TurnEnded(status="parked", error=parked.reason, retry_in=parked.seconds)
        events = self._last_events(ended, memory.answers)

        async def work(conn: AsyncConnection) -> tuple[Ended, list[Envelope]]:
            released, said = await self._let_go(
                conn, events, memory, rest_seconds=parked.seconds, activity="awaiting human"
            )
            await release_reservations(conn, turn.id)
            await settle(conn, turn.id, "pending", tries=MessageIn.tries - 1)
            await set_turn(conn, turn.id, status="parked", error=None, error_class=None, waiting_since=None)
            # The answer may have come while the worker still had the session; nobody rang then.
            answered = await is_decided(conn)
            if answered:
                await end_rest(conn, turn.lease.session_id)
            stored = await self._journal.store(conn, events, released.event_seq)
            return Ended("parked", wake=answered, deliveries=said), stored

        return await self._commit(work)

    async def _bury(self, failure: Failure, memory: Memory) -> Ended:
        turn, place = self._turn, self._reply_to
        status = "cancelled" if failure.error_class is ErrorClass.CANCELLED else "failed"
        ended = TurnEnded(
            status="cancelled" if status == "cancelled" else "failed",
            error=failure.message,
            error_class=failure.error_class,
        )
        events = self._last_events(ended, memory.answers)
        numbers = ", ".join(str(message.seq) for message in turn.messages)
        key, why = f"{turn.id}:dead", f"{failure.error_class}: {quoted(failure.message)}"

        async def work(conn: AsyncConnection) -> tuple[Ended, list[Envelope]]:
            owners = await owner_addresses(conn)
            released, answers = await self._let_go(conn, events, memory, messages=1 + len(owners))
            first = released.message_seq - len(owners)
            await release_reservations(conn, turn.id)
            closed = await close_questions(conn, turn.id)
            await settle(conn, turn.id, "failed", error=failure.message, error_class=failure.error_class)
            await set_turn(
                conn, turn.id, status=status, ended_at=now(), error=failure.message, error_class=failure.error_class
            )
            said = notice(
                session_id=turn.lease.session_id,
                seq=first,
                key=key,
                channel_type=place.channel_type,
                platform_id=place.platform_id,
                thread_id=place.thread_id,
                content={"text": _GIVEN_UP},
            )
            told = owner_notices(
                owners,
                session_id=turn.lease.session_id,
                first_seq=first + 1,
                key=key,
                text=f"{turn.folder}: message {numbers} was given up after {turn.tries} tries ({why}). "
                f"See it: longshore dead show {turn.messages[-1].id}",
            )
            ids = await store_notices(conn, [said, *told])
            stored = await self._journal.store(conn, events, released.event_seq)
            return Ended(status, released.more, deliveries=[*answers, *ids, *closed]), stored

        return await self._commit(work)

    async def charge(self, usage: list[UsageReport], held_for: str) -> None:
        """Put on record what an attempt has used, however it goes on, and settle the money that was held for it."""
        used = [self._usage(report) for report in usage]
        cost = sum(report.cost_usd or 0.0 for report in usage)

        async def work(conn: AsyncConnection, _: int) -> None:
            for row in used:
                await insert_ignoring(conn, Usage, **row)
            await settle_money(conn, held_for, cost)

        await self._journal.write(work)

    async def hand_over(self, memory: Memory = NOTHING_NEW) -> Ended:
        """This process is leaving. The try does not count, and another worker goes on at once."""
        turn = self._turn
        events = self._last_events(TurnEnded(status="handed_over"), memory.answers)

        async def work(conn: AsyncConnection) -> tuple[Ended, list[Envelope]]:
            released, said = await self._let_go(conn, events, memory, ring=True)
            await release_reservations(conn, turn.id)
            await settle(conn, turn.id, "pending", tries=MessageIn.tries - 1)
            await set_turn(conn, turn.id, status="waiting")
            stored = await self._journal.store(conn, events, released.event_seq)
            return Ended("handed_over", wake=True, deliveries=said), stored

        return await self._commit(work)

    async def has_said_something(self) -> bool:
        return await self._db.read(lambda conn: has_left(conn, self._turn.id))

    async def _commit(self, work: Any) -> Ended:
        async def run() -> Ended:
            ended, stored = await self._db.transact(work, patience=PATIENCE_SECONDS)
            self._journal.publish(stored)
            return ended  # type: ignore[no-any-return]

        return await uninterrupted(run())

    def _transcript(self, said: Sequence[Item]) -> list[dict[str, Any]]:
        ids = {"turn_id": self._turn.id, "session_id": self._turn.lease.session_id}
        records = map(self._redactor.record, said)
        return [ids | {"position": position, "id": new_id()} | record for position, record in enumerate(records)]

    def _usage(self, report: UsageReport) -> dict[str, Any]:
        return {
            "id": new_id(),
            "agent_group_id": self._turn.agent_group_id,
            "session_id": self._turn.lease.session_id,
            "turn_id": self._turn.id,
            "user_id": self._reply_to.sender_id,
            "provider": self._turn.provider,
            "model": (report.model or self._turn.model or "")[:200] or None,
            "input_tokens": report.input_tokens,
            "output_tokens": report.output_tokens,
            "cache_read_tokens": report.cache_read_tokens,
            "cache_write_tokens": report.cache_write_tokens,
            "cost_usd": report.cost_usd,
        }


def _words(failure: Failure) -> str:
    """What a resting session waits for."""
    match failure.error_class:
        case ErrorClass.RATE_LIMIT:
            return "rate limited"
        case ErrorClass.BUDGET:
            return "awaiting human: the budget is spent"
        case _:
            return f"tries again after: {failure.error_class}"
