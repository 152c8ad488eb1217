"""What becomes of a turn whose attempt failed: another provider, another time, or never. Pure."""

from dataclasses import dataclass

from adapters.errors import ErrorClass
from scheduler.backoff import MAX_WAIT_SECONDS, Backoff
from workers.failover import Choice

# From so many tries on, a provider that does not answer is not waited for if there is another.
MOVES_AFTER_TRIES = 2
# A provider that refuses and asks for less patience than this gets as much, and more the longer it goes on.
LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Failure:
    """`asked`: False when the provider was held back (its limit, its outage, the budget) and never asked."""

    error_class: ErrorClass
    message: str
    retryable: bool
    retry_after: float | None = None
    asked: bool = True


@dataclass(frozen=True)
class Rest:
    """Later. `counted`: it used up one of the tries. `parked`: a person may end the rest."""

    seconds: float
    counted: bool = True
    parked: bool = False


@dataclass(frozen=True)
class Move:
    """Now, on another provider."""

    choice: Choice


@dataclass(frozen=True)
class GiveUp:
    """Never, unless a person says so."""


Verdict = Rest | Move | GiveUp


@dataclass(frozen=True)
class Patience:
    """`move_after`: a provider that asks for more seconds than this is not waited for if there is another. `waits`: how
    long a turn may wait for limits and outages in all; after that, each wait uses up a try."""

    backoff: Backoff
    move_after: float
    waits: float

    def judge(self, failure: Failure, *, tries: int, waited: float, other: Choice | None) -> Verdict:
        """`tries` attempts have been made, the turn has waited so many seconds for limits and outages, and `other`
        could go on with it."""
        if failure.error_class is ErrorClass.BUDGET:
            return GiveUp() if failure.retry_after is None else Rest(failure.retry_after, counted=False, parked=True)
        if other is not None and self._is_to_move(failure, tries):
            return Move(other)
        if not failure.retryable:
            return GiveUp()
        waits = failure.retry_after is not None and failure.retry_after < MAX_WAIT_SECONDS
        held_back = not failure.asked or failure.error_class is ErrorClass.RATE_LIMIT
        if waits and held_back and waited < self.waits:
            assert failure.retry_after is not None
            at_once = failure.asked and failure.retry_after < LEAST_SECONDS
            return Rest(max(LEAST_SECONDS, waited / 10) if at_once else failure.retry_after, counted=False)
        delay = self.backoff.delay(tries, failure.retry_after)
        return GiveUp() if delay is None else Rest(delay)

    def _is_to_move(self, failure: Failure, tries: int) -> bool:
        match failure.error_class:
            case ErrorClass.QUOTA | ErrorClass.AUTH | ErrorClass.UNKNOWN_PROVIDER:
                return True
            case ErrorClass.RATE_LIMIT if failure.retry_after is not None:
                return failure.retry_after > self.move_after
            case ErrorClass.RATE_LIMIT | ErrorClass.TRANSPORT | ErrorClass.PROVIDER_HANG:
                return not failure.asked or tries >= MOVES_AFTER_TRIES
            case _:
                return False
