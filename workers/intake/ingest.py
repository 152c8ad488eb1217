"""Accepting a message: check, dedupe, route, store, commit; the caller rings after that.

The same function behind every door (Celery producers, the command line, HTTP). It succeeds only after the commit, and
refuses with `RefusedError`, whose text is for whoever sent the message. Who comes from outside passes the reception
first; the command line and producers are the operator's own."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, Literal

import structlog
from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass
from adapters.events import Envelope
from adapters.registry import Registry
from models.base import AnyRow, new_id
from models.consent import answer_question, chosen_value, open_question
from models.database import Database
from models.engagements import follow
from models.errors import StoreError
from models.groups import agent_folders
from models.inbox import MessageIn, heard_before
from models.people import remember_user
from models.series import DEFAULT_TERMS, Terms, change_series
from models.sessions import Admission, admit, end_rest, ensure_session, take_numbers
from models.tasks import database_now, is_series
from models.upsert import insert_ignoring
from workers.access import user_id_of
from workers.bells import Bells
from workers.consent.approvers import resolve_approvers
from workers.consent.strangers import AskFirstError, wait_outside
from workers.intake import switchboard
from workers.intake.incoming import Incoming
from workers.intake.received import AgainError, Handled, Passed, Turned
from workers.intake.visits import Visit, visit_key
from workers.refusals import RefusedError
from workers.settings import Settings
from workers.task_dates import first_date, slot
from workers.task_terms import check_provider

log = structlog.get_logger()

Find = Callable[[AsyncConnection, Incoming], Awaitable[switchboard.Found]]

ATTEMPTS: Final = 3  # at one message, if what it was judged by changes meanwhile
# So long ago the first date of a recurring task may be: a producer's message may have waited a while.
OLDEST: Final = timedelta(days=1)


@dataclass(kw_only=True)
class Accepted:
    """What a producer learns: the id to follow; and what the door it came through has to ring for."""

    message_id: str
    session_id: str = ""
    seq: int = 0
    duplicate: bool = False
    # The turn whose question this message answered; it was no message of its own then.
    answered_turn: str | None = None
    # Dealt with on the spot: it is no message of an agent's, and has no session and no number.
    handled: Literal["code", "command", "answer", "before"] | None = None
    wake_provider: str | None = None
    interrupts: bool = False
    # What else it set off: sessions with their providers, what the fleet says to people, and what was given up.
    wakes: list[tuple[str, str]] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    events: list[Envelope] = field(default_factory=list)

    def ring(self, bells: Bells) -> None:
        """After the commit: wake whoever must be woken."""
        if self.wake_provider is not None:
            bells.wake(self.session_id, self.wake_provider)
        if self.interrupts:
            bells.nudge(self.session_id)
        for session_id, provider in self.wakes:
            bells.wake(session_id, provider)
        for message_out_id in self.deliveries:
            bells.deliver(message_out_id)
        for session_id in self.stopped:
            bells.nudge(session_id)
        bells.tell(*self.events)

    @property
    def is_stored(self) -> bool:
        """Now, and as a message: neither was it there before, nor dealt with on the spot."""
        return not self.duplicate and self.handled is None

    def public(self) -> dict[str, Any]:
        """What its sender is told, at every door."""
        told: dict[str, Any] = {"id": self.message_id, "duplicate": self.duplicate}
        if self.handled is not None:
            return told | {"handled": self.handled}
        return told | {"session": self.session_id, "seq": self.seq, "answered_turn": self.answered_turn}


Besides = Callable[[AsyncConnection, Accepted], Awaitable[None]]


@dataclass(frozen=True)
class _Duplicate:
    agent_group_id: str


async def accept(
    db: Database,
    registry: Registry,
    settings: Settings,
    incoming: Incoming,
    *,
    row_id: str | None = None,
    from_outside: bool = False,
    is_direct: bool = False,
    trusted: bool = False,
    may_decide: bool = True,
    script: str | None = None,
    find: Find | None = None,
    besides: Besides | None = None,
) -> Accepted:
    """Store the message. `row_id` (a Celery task's id) becomes the row's id, so that its sender can follow it and a
    second delivery of the same task finds it. `from_outside`: its sender is whoever the platform says, and is let in
    or not; `is_direct`: in a chat of one person; `trusted`: it is a service of the operator's own. `may_decide` False:
    what its sender came in with is good for talking, and it answers no question. `script`: what a task runs before its
    agent; for the operator at the command line, and nobody else. `find`: which agent takes it, where a door has rules
    of its own about that; it raises what it likes, and nothing is stored then. `besides`: what is written in the same
    transaction, if the message is stored."""
    row_id = row_id or new_id()
    visit = None
    if from_outside:
        visit = Visit(incoming, is_direct, trusted, visit_key(incoming, row_id), may_decide=may_decide)
    terms = _checked_terms(registry, incoming, script, visit)

    async def take(conn: AsyncConnection) -> Accepted | Turned | _Duplicate:
        how = (find or find_inside, may_decide)
        taken = await _take(conn, registry, settings, incoming, row_id, visit, terms, *how)
        if besides is not None and isinstance(taken, Accepted) and taken.is_stored:
            await besides(conn, taken)
        return taken

    for _ in range(ATTEMPTS):
        try:
            stored = await db.transact(take)
        except AgainError:
            log.info("message.handled_before", channel=incoming.channel_type)
            return Accepted(message_id=row_id, duplicate=True, handled="before")
        except AskFirstError as first:
            assert visit is not None
            found = await resolve_approvers(db, registry, first.agent_group_id, incoming.channel_type)
            visit = replace(visit, deciders={**visit.deciders, first.agent_group_id: found})
            continue
        if isinstance(stored, Turned):
            raise RefusedError(stored.reason, stored.deliveries, stored.kind)
        if isinstance(stored, Accepted):
            accepted: Accepted | None = stored
        else:
            agent_group_id = stored.agent_group_id
            accepted = await db.read(lambda conn: _existing(conn, incoming, row_id, agent_group_id))  # noqa: B023
        if accepted is None:  # it is gone again
            continue
        if accepted.duplicate:
            log.info("message.duplicate", message=accepted.message_id, session=accepted.session_id)
        return accepted
    raise StoreError("too much changed while the message was looked at: send it again")


async def _take(
    conn: AsyncConnection,
    registry: Registry,
    settings: Settings,
    incoming: Incoming,
    row_id: str,
    visit: Visit | None,
    terms: Terms,
    find: Find,
    may_decide: bool,
) -> Accepted | Turned | _Duplicate:
    if incoming.channel_type not in registry.channels.names:
        installed = ", ".join(registry.channels.names)
        raise RefusedError(f"channel_type: there is no channel {incoming.channel_type!r} here; installed: {installed}")
    if visit is None:
        passed = Passed(await find(conn, incoming), may_answer=may_decide)
    else:
        place = (incoming.channel_type, incoming.platform_id)
        known = await heard_before(conn, *place, incoming.message_id) if incoming.message_id is not None else None
        if known is not None:
            return _duplicate(known)
        # Imported here: the operator's own messages do not pass it, and a command that sends one is to start soon.
        from workers.intake.reception import receive

        received = await receive(conn, registry, settings, visit)
        if isinstance(received, Handled):
            done = received.done
            wakes = [(session, provider or settings.default_provider) for session, provider in done.wakes]
            return Accepted(
                message_id=row_id,
                handled=received.what,
                wakes=wakes,
                deliveries=done.deliveries,
                stopped=done.stopped,
                events=done.events,
            )
        if isinstance(received, Turned):
            return received
        passed = received
    return await _store(conn, registry, settings, incoming, row_id, passed, visit, terms)


async def _store(
    conn: AsyncConnection,
    registry: Registry,
    settings: Settings,
    incoming: Incoming,
    row_id: str,
    passed: Passed,
    visit: Visit | None,
    terms: Terms,
) -> Accepted | _Duplicate:
    """_Duplicate: it is already there (and nothing was written)."""
    route, agent = passed.found.route, passed.found.agent
    assert route is not None
    assert agent is not None
    follow_up = incoming.follow_up or route.follow_up
    waits = passed.stranger is not None
    wakes = route.wakes and not waits
    dates = await _dates(conn, incoming, row_id, terms)
    # One with a date needs no wake now, and must not stand in the way of another's.
    admission = await _admit(conn, passed.found, settings, incoming, wakes=wakes and "process_after" not in dates)
    provider = terms.provider or admission.provider or agent.provider or settings.default_provider
    known = provider in registry.providers.names
    if follow_up == "reject" and admission.running and not waits and not await _comes_later(conn, dates):
        reason = "the agent is at work, and its wiring refuses messages meanwhile: send it again later"
        raise RefusedError(reason, kind="busy")
    question, closed = await _answer(conn, incoming, admission) if wakes and passed.may_answer else (None, [])
    values: dict[str, Any] = {
        "id": row_id,
        "session_id": admission.session_id,
        "agent_group_id": route.agent_group_id,
        "seq": admission.seq,
        "kind": incoming.kind,
        "wakes": route.wakes,
        "follow_up": "enqueue" if follow_up == "reject" else follow_up,
        "channel_type": incoming.channel_type,
        "platform_id": incoming.platform_id,
        "thread_id": incoming.thread_id,
        "platform_message_id": incoming.message_id,
        "sender_id": incoming.sender_id,
        "content": _content(incoming, passed.raw),
        **dates,
    }
    if passed.raw is not None:
        values["follow_up"] = "separate"  # a command is one only if it stands alone
    if waits:
        values["status"] = "paused"
    elif question is not None:
        values |= {"status": "completed", "wakes": False}
    elif not known:
        reason = registry.providers.missing(provider)
        values |= {"status": "failed", "error_class": ErrorClass.UNKNOWN_PROVIDER, "error": reason}
    if not await insert_ignoring(conn, MessageIn, **values):
        await conn.rollback()  # gives the number back
        return _Duplicate(route.agent_group_id)
    if incoming.kind == "task":
        await _check_new(conn, incoming, row_id)
    if terms != DEFAULT_TERMS:
        await change_series(conn, row_id, route.agent_group_id, **asdict(terms))
    if passed.stranger is not None:
        assert visit is not None
        approvers = visit.deciders.get(route.agent_group_id)
        deliveries = await wait_outside(conn, passed.stranger, admission.session_id, incoming.words, approvers)
        return Accepted(message_id=row_id, session_id=admission.session_id, seq=admission.seq, deliveries=deliveries)
    if route.follows and incoming.thread_id is not None:
        await follow(conn, route.agent_group_id, route.messaging_group_id, incoming.thread_id)
    if incoming.sender_id is not None:
        user_id = user_id_of(incoming.channel_type, incoming.sender_id)
        await remember_user(conn, user_id, incoming.channel_type, incoming.sender_name)
    return Accepted(
        message_id=row_id,
        session_id=admission.session_id,
        seq=admission.seq,
        answered_turn=question.turn_id if question is not None else None,
        wake_provider=provider if known and (admission.ring or question is not None) else None,
        interrupts=route.wakes and question is None and admission.running and follow_up == "interrupt",
        deliveries=closed,
    )


def _checked_terms(registry: Registry, incoming: Incoming, script: str | None, visit: Visit | None) -> Terms:
    if script is not None and incoming.kind != "task":
        raise RefusedError("a script needs kind task")
    if visit is not None and incoming.kind == "task":
        raise RefusedError("a task is for the operator to send, and for agents to schedule")
    terms = incoming.run_on(script)
    check_provider(registry, terms)
    return terms


async def _dates(conn: AsyncConnection, incoming: Incoming, row_id: str, terms: Terms) -> dict[str, Any]:
    """When it is due and whether again, as columns; nothing for what is due at once. By the database's clock."""
    at_once = incoming.process_after is None and incoming.recurrence is None
    if at_once and terms.jitter_seconds == 0:
        return {} if terms == DEFAULT_TERMS else {"series_id": row_id}
    date = incoming.process_after or first_date(None, incoming.recurrence, incoming.timezone, await database_now(conn))
    return slot(row_id, date, incoming.recurrence, incoming.timezone, terms)


async def _comes_later(conn: AsyncConnection, dates: dict[str, Any]) -> bool:
    """Whether it is said at a later date: what the agent does now does not matter then."""
    return "process_after" in dates and dates["process_after"] > await database_now(conn)


async def _check_new(conn: AsyncConnection, incoming: Incoming, row_id: str) -> None:
    """What a task must not be that was just written; the same one again is a duplicate, whatever time it is. Its id is
    that of its series, with its terms: an id whose first row was pruned long ago may still be one."""
    date = incoming.process_after
    if incoming.recurrence is not None and date is not None and date < (at := await database_now(conn)) - OLDEST:
        raise RefusedError(
            f"process_after: {date.isoformat()} is more than a day ago (it is {at.isoformat(timespec='seconds')} now): "
            "give a recurring task a first date to come, or leave it out to begin with the next"
        )
    if await is_series(conn, row_id):
        raise RefusedError(f"the id {row_id!r} is that of a task which is here already: send it under another")


def _content(incoming: Incoming, raw: str | None) -> dict[str, Any]:
    """`raw`: as the reception lets a command through to a program."""
    content = incoming.stored_content()
    return content if raw is None else content | {"text": raw, "raw": True}


async def _answer(conn: AsyncConnection, incoming: Incoming, admission: Admission) -> tuple[AnyRow | None, list[str]]:
    """A chat message to a session whose turn has asked a person is the answer; anything else waits behind it. Returns
    the question, if it was one, and what its card becomes, to be rung for."""
    busy = admission.resting or admission.running  # it may have asked and not be parked yet
    if not busy or incoming.kind not in ("chat", "chat-sdk") or incoming.process_after is not None:
        return None, []
    question = await open_question(conn, admission.session_id)
    if question is None:
        return None, []
    text = chosen_value(question.question, incoming.words)
    sender = incoming.sender_id
    by = user_id_of(incoming.channel_type, sender) if sender is not None else None
    answered = await answer_question(conn, question.id, text, by)
    if answered is None:
        return None, []
    await end_rest(conn, admission.session_id)
    return question, answered.deliveries


async def find_inside(conn: AsyncConnection, incoming: Incoming) -> switchboard.Found:
    """For those inside, who are told what there is."""
    found = await switchboard.find(conn, incoming)
    if found.route is not None:
        return found
    if incoming.agent_group is not None:
        known = ", ".join(await agent_folders(conn)) or "none yet (make one: longshore groups add NAME)"
        raise RefusedError(f"there is no agent group {incoming.agent_group!r}; there are: {known}")
    if not found.wired:
        raise RefusedError(
            f"no agent is wired to {incoming.channel_type} {incoming.platform_id!r}: "
            "name an agent_group, or wire one (longshore wire)"
        )
    raise RefusedError(f"no agent in {incoming.channel_type} {incoming.platform_id!r} listens to such a message")


async def _admit(
    conn: AsyncConnection, found: switchboard.Found, settings: Settings, incoming: Incoming, *, wakes: bool
) -> Admission:
    route, agent = found.route, found.agent
    assert route is not None
    assert agent is not None
    key = (route.agent_group_id, route.messaging_group_id, route.thread_id)
    admission = await admit(conn, *key, wakes=wakes, repeat_seconds=settings.repeat_seconds)
    made = admission is None and await ensure_session(conn, *key)
    if admission is None:
        admission = await admit(conn, *key, wakes=wakes, repeat_seconds=settings.repeat_seconds)
    assert admission is not None, "a session that was just made is there"
    if not made:
        return admission
    # Imported here: few messages begin a session.
    from workers.intake.briefing import brief, oversees_somebody

    config = agent.config or {}
    if oversees_somebody(config) and await brief(conn, route, config, incoming, admission):
        return replace(admission, seq=await take_numbers(conn, admission.session_id, 1))
    return admission


async def _existing(conn: AsyncConnection, incoming: Incoming, row_id: str, agent_group_id: str) -> Accepted | None:
    same = MessageIn.id == row_id
    if incoming.message_id is not None:
        same |= and_(
            MessageIn.agent_group_id == agent_group_id,
            MessageIn.channel_type == incoming.channel_type,
            MessageIn.platform_id == incoming.platform_id,
            MessageIn.platform_message_id == incoming.message_id,
        )
    row = (await conn.execute(select(MessageIn.id, MessageIn.session_id, MessageIn.seq).where(same))).first()
    return None if row is None else _duplicate(row)


def _duplicate(row: AnyRow) -> Accepted:
    return Accepted(message_id=row.id, session_id=row.session_id, seq=row.seq, duplicate=True)
