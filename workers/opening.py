"""Opening a turn: claim the session, take its due messages (or the turn a dead worker left), write that it runs.

One transaction. If there is nothing to do it is rolled back, and the session was never taken."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import AdapterError, ErrorClass
from adapters.events import AnyEvent, TurnStarted, event_to_dict
from adapters.model_port import AnyProvider, ModelProvider
from adapters.registry import Registry
from models.base import AnyRow, new_id
from models.consent import steps_that_waited
from models.conversation import Event
from models.fleet import providers_down
from models.groups import how_it_runs
from models.inbox import begin_processing
from models.outbox import has_left
from models.programs import count_left, interrupted_at
from models.series import DEFAULT_TERMS, Terms
from models.sessions import Lease, claim, give_back_turn_number, session_exists
from models.turns import Turn, set_turn
from workers.failover import Choice, choices, choose
from workers.formatting import TaskFacts
from workers.model_journal import Recalled, recall
from workers.settings import Settings
from workers.taking import is_lost, take
from workers.workflows.assignment import Assignment, assigned

_INSERT_TURN = insert(Turn.__table__)  # type: ignore[arg-type]
_INSERT_EVENT = insert(Event.__table__)  # type: ignore[arg-type]


@dataclass(frozen=True)
class OpenedTurn:
    """A turn that is ours to run."""

    id: str
    number: int
    attempt: int
    tries: int
    lease: Lease
    provider: str
    model: str | None
    continuations: Mapping[str, str]  # how each provider finds the conversation again
    agent_group_id: str
    folder: str
    name: str
    config: dict[str, Any]
    options: Mapping[str, Any]
    # Who could run it, in order, and who was given up on.
    offered: tuple[Choice, ...]
    tried: tuple[str, ...]
    at: datetime  # when this attempt began, by the database's clock
    waited_seconds: float  # for limits and outages, so far
    messages: list[AnyRow]
    facts: TaskFacts
    event_seq: int
    started: AnyEvent
    # The task it is a run of, and how that one is run.
    series_id: str | None = None
    terms: Terms = DEFAULT_TERMS
    recalled: Recalled | None = None  # for a provider whose tool loop is ours
    # Where its program was interrupted in the middle of it, if what it remembers was kept then (`ProgramState`).
    interrupted: AnyRow | None = None
    # Why it must not be run after all: it is ended at once with this.
    verdict: tuple[ErrorClass, str] | None = None
    # Other messages are due that this turn does not take.
    leftover: bool = False
    # What was said to another session is said here again; and what is said leaves only if `delivers`.
    replay_of: str | None = None
    delivers: bool = True
    assignment: Assignment | None = None  # of a workflow
    opened: float = field(default_factory=time.monotonic)

    def clock(self) -> datetime:
        """What time it is now for the fleet: this machine's own clock may be wrong."""
        return self.at + timedelta(seconds=time.monotonic() - self.opened)

    @property
    def scratch(self) -> str | None:
        """Whose copy of the agent's folder it works on: a replay's own."""
        return self.lease.session_id if self.replay_of is not None else None

    @property
    def continuation(self) -> str | None:
        return self.continuations.get(self.provider)


@dataclass(frozen=True)
class Elsewhere:
    """The session belongs on another provider's queue."""

    provider: str


class NothingToDo(Exception):  # noqa: N818 - a way out of a transaction, not an error
    """Rolls the claim back."""


class NoSuchSession(Exception):  # noqa: N818 - likewise
    """Somebody rang for a session that is not there."""


async def open_next(
    conn: AsyncConnection,
    registry: Registry,
    settings: Settings,
    session_id: str,
    owner: str,
    queue_provider: str | None,
) -> OpenedTurn | Elsewhere:
    """Claim and open. Raises NothingToDo if the session is not to be had or has nothing due."""
    session = await claim(conn, session_id, owner, settings.lease_seconds)
    if session is None:
        raise NothingToDo if await session_exists(conn, session_id) else NoSuchSession
    group = await how_it_runs(conn, session.agent_group_id)
    taken = await take(conn, session, settings)
    if taken is None:
        raise NothingToDo
    messages, unfinished = taken.messages, taken.unfinished
    offered = choices(session, group, settings, taken.terms, taken.named)
    tried = tuple(unfinished.tried or ()) if unfinished is not None else ()
    down = await providers_down(conn) if len(offered) > 1 else set()
    choice = choose(offered, tried, down)
    provider = choice.provider
    if queue_provider is not None and provider != queue_provider and provider in registry.providers.names:
        await conn.rollback()
        return Elsewhere(provider)
    lease = Lease(session.id, owner, session.lease_token)
    driver = _driver(registry, provider)
    model = choice.model or (driver.default_model if isinstance(driver, ModelProvider) else None)
    verdict = None
    interrupted: AnyRow | None = None
    if unfinished is None:
        turn_id, number, attempt = new_id(), session.turn_seq, 1
        turn = {"id": turn_id, "session_id": session_id, "number": number, "provider": provider, "model": model}
        turn |= _facts(driver)
        await conn.execute(_INSERT_TURN, turn | {"worker": owner, "lease_token": lease.token})
    else:
        interrupted = await interrupted_at(conn, session_id, provider, unfinished.id)
        verdict = await _verdict(conn, registry, settings, unfinished, messages, provider, interrupted)
        turn_id, number, attempt = unfinished.id, unfinished.number, unfinished.attempt + 1
        await give_back_turn_number(conn, session_id)
        changes = {"status": "running", "attempt": attempt, "provider": provider, "model": model, **_facts(driver)}
        await set_turn(conn, turn_id, worker=owner, lease_token=lease.token, **changes)
    if verdict is None:
        await begin_processing(conn, [message.id for message in messages], turn_id)
    recalled = None
    if verdict is None and isinstance(driver, ModelProvider):
        assert model is not None
        recalled = await recall(conn, session_id, turn_id, number, model, messages, new=unfinished is None)
    started = TurnStarted(
        number=number,
        attempt=attempt,
        provider=provider,
        model=model,
        messages=tuple(message.seq for message in messages),
        worker=owner,
    )
    event = {"session_id": session_id, "seq": session.event_seq, "turn_id": turn_id, "type": started.type}
    await conn.execute(_INSERT_EVENT, event | {"payload": event_to_dict(started)})
    return OpenedTurn(
        id=turn_id,
        number=number,
        attempt=attempt,
        tries=max(message.tries for message in messages) + (0 if verdict else 1),
        lease=lease,
        provider=provider,
        model=model,
        continuations=session.continuation or {},
        agent_group_id=session.agent_group_id,
        folder=group.folder,
        name=group.name,
        config=group.config or {},
        options=choice.options,
        offered=offered,
        tried=tried,
        at=session.activity_since,
        waited_seconds=_waited(unfinished, session.activity_since),
        messages=messages,
        facts=TaskFacts(unfinished.started_at if unfinished is not None else session.activity_since),
        event_seq=session.event_seq,
        started=started,
        series_id=taken.series_id,
        terms=taken.terms,
        recalled=recalled,
        interrupted=interrupted,
        verdict=verdict,
        leftover=taken.leftover,
        replay_of=session.replay_of,
        delivers=session.delivers,
        assignment=await assigned(conn, session_id, messages) if session.workflow_id is not None else None,
    )


async def _verdict(
    conn: AsyncConnection,
    registry: Registry,
    settings: Settings,
    turn: AnyRow,
    messages: list[AnyRow],
    provider: str,
    interrupted: AnyRow | None,
) -> tuple[ErrorClass, str] | None:
    """Whether an unfinished turn must not be continued. One found `running` lost its worker; `waiting` is a retry."""
    if is_lost(turn, messages, settings):
        tries = max(message.tries for message in messages)
        return ErrorClass.WORKER_LOST, f"{tries} attempts ended without a word, the last on {turn.worker}"
    if interrupted is not None:
        # A program goes on where it was interrupted. What it has said since then is not in its memory; it will be told
        # what came of the calls that waited for a person.
        told = [step.id for step in await steps_that_waited(conn, turn.id, interrupted.updated_at)]
        repeats = await count_left(conn, turn.id, besides=told) > interrupted.messages_left
    else:
        repeats = not _replays(registry, turn.provider, provider) and await has_left(conn, turn.id)
    if repeats:
        return (
            ErrorClass.OUTPUT_SENT,
            "an earlier attempt had already said something; running it again would say it twice",
        )
    return None


def _waited(unfinished: AnyRow | None, at: datetime) -> float:
    since = unfinished.waiting_since if unfinished is not None else None
    return 0.0 if since is None else float((at - since).total_seconds())


def _replays(registry: Registry, before: str, now_on: str) -> bool:
    """Whether what the turn has done so far is not done again: by the same provider if it can, or by any whose loop is
    ours, since they share one journal."""
    driver = _driver(registry, now_on)
    if driver is None or not driver.manifest.capabilities.replays_steps:
        return False
    return before == now_on or (
        isinstance(driver, ModelProvider) and isinstance(_driver(registry, before), ModelProvider)
    )


def _facts(driver: AnyProvider | None) -> dict[str, Any]:
    """What the provider of this attempt is and can, for whoever looks at the turn later."""
    if driver is None:
        return {"provider_version": None, "capabilities": None}
    manifest = driver.manifest
    return {"provider_version": manifest.version, "capabilities": asdict(manifest.capabilities)}


def _driver(registry: Registry, provider: str) -> AnyProvider | None:
    try:
        return registry.providers.get(provider)
    except AdapterError:
        return None
