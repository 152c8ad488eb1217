"""What a scheduled task looks like: not one row but a series of them, seen from its live end (`models.task_lookup`)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from models.lookup import short
from models.series import Terms
from scheduler.recurrence import RecurrenceError, next_after
from scheduler.words import next_dates


@dataclass(frozen=True)
class Run:
    """A run that has begun or is over, or a date that was passed over. `extra`: somebody asked for it besides the
    schedule. `usd`: what its turn cost, if that is known."""

    message_id: str
    session_id: str
    scheduled: datetime
    status: str  # processing, completed, failed, discarded; pending: begun, and waits to go on
    began: datetime | None = None
    ended: datetime | None = None
    error: str | None = None
    error_class: str | None = None
    turn_id: str | None = None
    usd: float | None = None
    extra: bool = False


@dataclass(frozen=True)
class Task:
    """A task as it stands. `id` is the same for all its runs. `scheduled`: its next date, without jitter; None if none
    follows the run that is on. `goes_on`: there are dates after that one. `failures`: in a row. `error`: why the fleet
    has paused it, or what went wrong with the run that is on."""

    id: str
    agent: str  # its folder
    agent_group_id: str
    session_id: str
    prompt: str
    scheduled: datetime | None
    recurrence: str | None
    timezone: str
    status: str  # of its live end, as in messages_in
    under_way: bool
    goes_on: bool
    terms: Terms
    failures: int
    error: str | None
    last: Run | None
    channel_type: str
    platform_id: str
    thread_id: str | None
    sender_id: str | None
    content: dict[str, Any]  # of its message, with the prompt
    provider: str | None  # whose queue it runs on; None: the default one's
    written: datetime  # when its row was

    @property
    def handle(self) -> str:
        """What people and agents call it."""
        return short(self.id)

    @property
    def state(self) -> str:
        """In words."""
        if self.under_way:
            return "running now" if self.scheduled is not None else "running now, for the last time"
        if self.status == "paused":
            return f"paused after {self.failures} failures in a row" if self.gave_up else "paused"
        return "pending"

    @property
    def gave_up(self) -> bool:
        """Whether the fleet has paused it, because it failed too often."""
        return self.status == "paused" and 0 < self.terms.pause_after <= self.failures

    def next_run(self, at: datetime) -> datetime | None:
        """When it runs next. One that is paused goes on with a date to come, however long it has rested."""
        date = self.scheduled
        if self.status != "paused" or not self.goes_on or self.recurrence is None or date is None or date > at:
            return date
        try:
            return next_after(self.recurrence, at, self.timezone)
        except RecurrenceError:
            return date

    def next_runs(self, at: datetime) -> list[datetime]:
        """The next five, if each is on time."""
        first = self.next_run(at)
        return next_dates(self.recurrence, first, self.timezone, at) if first is not None else []

    @property
    def is_over(self) -> bool:
        return self.scheduled is None and not self.under_way
