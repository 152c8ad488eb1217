"""What a process lends to whoever acts in it for people, what such an act has done, and ringing for that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.events import Envelope
from adapters.registry import Registry
from models.database import Database
from models.sessions import mark_if_due
from scheduler.queues import wakes_of
from scheduler.ringing import Pace
from workers.bells import Bells
from workers.settings import Settings

Wake = tuple[str, str | None]  # session, provider (None: the default one)


class House(Protocol):
    @property
    def db(self) -> Database: ...

    @property
    def registry(self) -> Registry: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def bells(self) -> Bells: ...


@dataclass
class Done:
    """What was done, in words for whoever wanted it, and what to ring for after the commit. `stopped`: sessions that
    were taken from whoever ran them; `events`: what was written down of it, for those who watch."""

    text: str
    wakes: list[Wake] = field(default_factory=list)
    deliveries: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    events: list[Envelope] = field(default_factory=list)


async def due_wakes(conn: AsyncConnection, settings: Settings, session_id: str) -> list[Wake]:
    """Mark a session that has something to do now, and say on whose queue it is to be rung for."""
    if not await mark_if_due(conn, session_id):
        return []
    pace = Pace(settings.repeat_seconds, settings.default_provider)
    return [(wake.session_id, wake.provider) for wake in await wakes_of(conn, pace, [session_id])]


def ring(house: House, done: Done) -> Done:
    """For all that was done, after the commit."""
    for session_id in done.stopped:
        house.bells.nudge(session_id)
    house.bells.tell(*done.events)
    ring_for(house, done.wakes, done.deliveries)
    return done


def ring_for(house: House, wakes: Sequence[Wake], deliveries: Sequence[str] = ()) -> None:
    """After the commit."""
    for session_id, provider in wakes:
        house.bells.wake(session_id, provider or house.settings.default_provider)
    for message_out_id in deliveries:
        house.bells.deliver(message_out_id)
