"""What a storm tells people: a summary in any case, and for each complaint everything known about its message."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.support.storm.fault_injector import FaultInjector
from tests.support.storm.installation import StormFleet
from tests.support.storm.ledger import Complaint, Ledger
from tests.support.storm.producers import Producers
from tests.support.storm.scale import Scale

SHOWN_COMPLAINTS = 8
_MESSAGE = ("id", "session_id", "seq", "status", "tries", "turn_id", "error_class", "error", "created_at")
_REPLY = ("seq", "status", "idempotency_key", "attempts", "content", "created_at")
_TURN = ("id", "number", "status", "attempt", "worker", "error", "started_at", "ended_at")
_STEP = ("turn_id", "key", "name", "status", "output", "started_at")


@dataclass(frozen=True)
class Outcome:
    scale: Scale
    ledger: Ledger
    injector: FaultInjector
    producers: Producers
    fleet: StormFleet
    revived: set[str]
    start_seconds: float
    drain_seconds: float
    seconds: float

    def summary(self) -> str:
        ledger, producers, injector = self.ledger, self.producers, self.injector
        deaths = ", ".join(f"{count} x {what}" for what, count in sorted(injector.done.items()))
        conducts = dict(Counter(arrival.conduct for arrival in ledger.arrivals))
        tries = dict(sorted(Counter(row.tries for row in ledger.inbox).items()))
        again = sum(turn.attempt > 1 for turn in ledger.turns)
        unknown = sum("unknown" in str(step.output) for step in ledger.steps)
        split = sum(turn.status == "cancelled" for turn in ledger.turns)
        lines = [
            f"storm: {len(ledger.planned)} messages, {self.scale.sessions} sessions, seed {self.scale.seed}",
            f"deaths: {deaths} ({injector.kills} by kill -9)",
            f"in: {producers.resent} re-sent by the producer, {producers.down} times 503, "
            f"{producers.duplicates} duplicates found",
            f"turns: {len(ledger.turns)}, {again} with more than one attempt, {split} split; tries per message {tries}",
            f"tools: {len(ledger.steps)} calls, {unknown} begun by a worker that died and not repeated",
            f"out: {len(ledger.outbox)} replies in {len(ledger.arrivals)} requests, "
            f"{ledger.repeated_keys} repeated under their own key; the receiver was {conducts}",
            f"tasks doubled: {self.fleet.duplicator.doubled}; brought back by an operator: {len(self.revived)}; "
            f"refused to start without a database: {self.fleet.processes.refused_to_start}",
            f"seconds: {self.start_seconds:.1f} to start, {self.scale.storm_seconds:g} of storm, "
            f"{self.drain_seconds:.1f} to drain, {self.seconds:.1f} in all",
        ]
        return "\n" + "\n  ".join(lines)

    def report(self, complaints: list[Complaint]) -> str:
        """The complaints last: it is the end of a long output that people, and CI, get to see."""
        parts = [f"{len(complaints)} complaints, below"]
        for path in sorted(self.fleet.processes.folder.glob("*.log")):
            parts += [f"--- {path.stem}, last lines", self.fleet.processes.tail(path.stem)]
        parts += ["--- the storm", *self.injector.log]
        parts += [f"--- {complaint.what}" for complaint in complaints[SHOWN_COMPLAINTS:40]]
        for complaint in complaints[:SHOWN_COMPLAINTS]:
            parts.append(f"--- {complaint.what}")
            for word in complaint.words[:2]:
                parts += self._about(word)
        return "\n".join(parts)

    def _about(self, word: str) -> list[str]:
        """A message's row, its replies, turns, steps and requests, and what the logs say about them."""
        ledger = self.ledger
        row = ledger.row(word)
        if row is None:
            return [f"  {word}: no row"]
        replies = [out for out in ledger.outbox if word in str(out.content)]
        turns = {row.turn_id, *(out.turn_id for out in replies)} | ledger.turns_with(row)
        lines = [f"  message {_fields(row, _MESSAGE)}"]
        lines += [f"  reply {_fields(out, _REPLY)}" for out in replies]
        lines += [f"  turn {_fields(turn, _TURN)}" for turn in ledger.turns if turn.id in turns]
        lines += [f"  step {_fields(step, _STEP)}" for step in ledger.steps if step.turn_id in turns]
        lines += [
            f"  event {event.created_at:%H:%M:%S.%f} {event.seq} {event.type} {event.payload}"
            for event in sorted(ledger.events, key=lambda event: event.seq)
            if event.turn_id in turns and event.type in ("turn_started", "turn_ended", "result")
        ]
        lines += [f"  arrival {a.number} {a.key} {a.conduct} {a.text!r}" for a in ledger.arrivals if word in a.text]
        return lines + [f"  {line}" for line in self.fleet.processes.mentions([row.session_id, *filter(None, turns)])]


def _fields(row: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {name: str(getattr(row, name)) for name in names}
