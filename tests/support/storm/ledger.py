"""The ledger: what was sent in, what arrived, what the rows say, and every way in which these can disagree.

Messages carry a word of their own (`m0042`), and the scripted agents name in each answer the words they answer. The
judgement needs no database: `tests/chaos/test_ledger.py` shows that it sees each kind of fault."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.storm.receiver import Arrival

ANSWER, NOTE = "answered:", "note:"
OWNER_ENDPOINT = "owner"
_WORD = re.compile(r"\bm\d{4}\b")


@dataclass(frozen=True)
class Place:
    """A conversation: one session each."""

    group: str
    endpoint: str
    thread: str


@dataclass(frozen=True)
class Planned:
    word: str
    place: Place
    via: Literal["accept", "celery"]
    twice: bool = False
    poison: bool = False

    @property
    def text(self) -> str:
        return f"{'poison ' if self.poison else ''}{self.word}"


@dataclass(frozen=True)
class Complaint:
    what: str
    words: tuple[str, ...] = ()


@dataclass
class Ledger:
    planned: Sequence[Planned]
    arrivals: Sequence[Arrival]
    max_tries: int
    inbox: Sequence[Any] = ()
    outbox: Sequence[Any] = ()
    turns: Sequence[Any] = ()
    steps: Sequence[Any] = ()
    events: Sequence[Any] = ()
    # Brought back by an operator after its workers had died too often: its place in the order and its journal are gone.
    revived: frozenset[str] = field(default_factory=frozenset)

    def complaints(self) -> list[Complaint]:
        checks = (
            self._one_row_each(), self._ended(), self._answered_once(), self._one_body_per_key(), self._in_order(),
            self._sent_is_written(), self._poison(), self._finished_tools_once(), self._events_without_gaps(),
            self._one_hand_per_attempt(),
        )  # fmt: skip
        return [complaint for check in checks for complaint in check]

    @property
    def repeated_keys(self) -> int:
        """Requests beyond the first that was accepted under the same key: allowed, and counted."""
        accepted = [arrival for arrival in self.arrivals if arrival.accepted]
        return len(accepted) - len({arrival.key for arrival in accepted})

    def row(self, word: str) -> Any | None:
        return next((row for row in self.inbox if row.platform_message_id == word), None)

    def turns_with(self, row: Any) -> set[str]:
        """All turns that ever had the message, also those that were split or given up."""
        return {
            event.turn_id
            for event in self.events
            if event.type == "turn_started"
            and event.session_id == row.session_id
            and row.seq in event.payload["messages"]
        }

    def _one_row_each(self) -> Iterator[Complaint]:
        rows: dict[str, int] = defaultdict(int)
        for row in self.inbox:
            rows[row.platform_message_id] += 1
        for message in self.planned:
            if rows[message.word] != 1:
                yield Complaint(f"{message.word} has {rows[message.word]} rows in messages_in", (message.word,))
        for stranger in set(rows) - {message.word for message in self.planned}:
            yield Complaint(f"messages_in has a row nobody sent: {stranger}")
        sessions: dict[Any, set[str]] = defaultdict(set)
        places = {message.word: message.place for message in self.planned}
        for row in self.inbox:
            sessions[places.get(row.platform_message_id)].add(row.session_id)
        for place, ids in sessions.items():
            if len(ids) != 1:
                yield Complaint(f"{place} has {len(ids)} sessions")

    def _ended(self) -> Iterator[Complaint]:
        for message in self.planned:
            row = self.row(message.word)
            if row is not None and not message.poison and row.status != "completed":
                yield Complaint(f"{message.word} is {row.status} ({row.error_class}: {row.error})", (message.word,))
        for out in self.outbox:
            if out.status != "delivered":
                yield Complaint(f"reply {out.idempotency_key} is {out.status}: {out.error}", _words(out.content))
        for turn in self.turns:
            if turn.status in ("running", "waiting", "parked"):
                yield Complaint(f"turn {turn.id} was left {turn.status}")

    def _answered_once(self) -> Iterator[Complaint]:
        keys = self._keys_naming(ANSWER)
        for message in self.planned:
            answers = keys[message.word]
            if message.poison and answers:
                yield Complaint(f"the poison {message.word} was answered", (message.word,))
            if not message.poison and len(answers) != 1:
                yield Complaint(f"{message.word} was answered {len(answers)} times: {sorted(answers)}", (message.word,))
        places = {message.word: message.place for message in self.planned}
        for arrival in self._first_arrivals():
            for word in _words(arrival.text):
                place = places.get(word)
                if place is None or (arrival.endpoint, arrival.thread) != (place.endpoint, place.thread):
                    yield Complaint(f"{word} was answered in {arrival.endpoint}/{arrival.thread}", (word,))

    def _one_body_per_key(self) -> Iterator[Complaint]:
        bodies: dict[str, set[tuple[str, str | None, str]]] = defaultdict(set)
        for arrival in self.arrivals:
            bodies[arrival.key].add((arrival.endpoint, arrival.thread, arrival.text))
        for key, different in bodies.items():
            if len(different) != 1:
                yield Complaint(f"key {key} came with {len(different)} bodies: {sorted(map(str, different))}")

    def _in_order(self) -> Iterator[Complaint]:
        """By the numbers the sessions gave: what came in first is answered first, what was said first arrives first."""
        numbers = {row.platform_message_id: row.seq for row in self.inbox}
        out_numbers = {row.idempotency_key: row.seq for row in self.outbox}
        said: dict[tuple[str, str | None], int] = defaultdict(int)
        answered: dict[tuple[str, str | None], int] = defaultdict(int)
        for arrival in self._first_arrivals():
            place = (arrival.endpoint, arrival.thread)
            if arrival.endpoint != OWNER_ENDPOINT:
                number = out_numbers.get(arrival.key, 0)
                if number < said[place]:
                    yield Complaint(f"{arrival.text!r} (reply {number}) arrived after reply {said[place]} in {place}")
                said[place] = max(said[place], number)
            if not arrival.text.startswith(ANSWER):
                continue
            for word in _words(arrival.text):
                if word in self.revived:
                    continue
                number = numbers.get(word, 0)
                if number < answered[place]:
                    yield Complaint(f"{word} ({number}) was answered after {answered[place]} in {place}", (word,))
                answered[place] = max(answered[place], number)

    def _sent_is_written(self) -> Iterator[Complaint]:
        arrived = {arrival.key for arrival in self.arrivals if arrival.accepted}
        written = {row.idempotency_key: row for row in self.outbox}
        for key, row in written.items():
            if row.status == "delivered" and key not in arrived:
                yield Complaint(f"reply {key} is marked delivered and never arrived", _words(row.content))
        for arrival in self.arrivals:
            if arrival.key not in written:
                yield Complaint(f"{arrival.text!r} arrived under {arrival.key}, which no row has", _words(arrival.text))

    def _poison(self) -> Iterator[Complaint]:
        for message in self.planned:
            row = self.row(message.word)
            if not message.poison or row is None:
                continue
            if row.status != "failed" or row.tries != self.max_tries:
                yield Complaint(f"poison {message.word} is {row.status} after {row.tries} tries", (message.word,))
            if (tries := self._tries_by_events(row)) != self.max_tries:
                yield Complaint(f"poison {message.word} was tried {tries} times by its events", (message.word,))
            dead = f"{row.turn_id}:dead"
            notices = [out for out in self.outbox if out.kind == "notice" and out.idempotency_key.startswith(dead)]
            if sorted(out.platform_id for out in notices) != sorted((message.place.endpoint, OWNER_ENDPOINT)):
                told = [out.platform_id for out in notices]
                yield Complaint(f"of poison {message.word} these were told: {told}", (message.word,))

    def _tries_by_events(self, row: Any) -> int:
        """Attempts that were begun, without those handed over by a worker that left in peace."""
        mine = self.turns_with(row)
        events = [event for event in self.events if event.turn_id in mine]
        begun = [event for event in events if event.type == "turn_started"]
        ended = [event.payload["status"] for event in events if event.type == "turn_ended"]
        buried_unseen = 1 if row.error_class == "worker_lost" else 0  # opened only to be buried
        return len(begun) - ended.count("handed_over") - buried_unseen

    def _finished_tools_once(self) -> Iterator[Complaint]:
        """What a tool sent on the way was sent once for each message, and exactly then if the tool finished. What an
        operator brought back begins anew: that is what they asked for."""
        notes = self._keys_naming(NOTE)
        for word, keys in notes.items():
            if len(keys) > 1 and word not in self.revived:
                yield Complaint(f"a finished tool ran again: {len(keys)} notes name {word}: {sorted(keys)}", (word,))
        of_turn: dict[str, int] = defaultdict(int)
        for out in self.outbox:
            of_turn[out.turn_id] += str(out.content.get("text", "")).startswith(NOTE)
        for step in self.steps:
            expected = int(step.status == "finished")
            if step.name == "send_message" and of_turn[step.turn_id] != expected:
                yield Complaint(f"turn {step.turn_id}: step {step.status}, {of_turn[step.turn_id]} notes")

    def _events_without_gaps(self) -> Iterator[Complaint]:
        numbers: dict[str, list[int]] = defaultdict(list)
        for event in self.events:
            numbers[event.session_id].append(event.seq)
        for session, given in numbers.items():
            if sorted(given) != list(range(1, len(given) + 1)):
                yield Complaint(f"the events of session {session} have gaps")

    def _one_hand_per_attempt(self) -> Iterator[Complaint]:
        """A worker that lost its session writes nothing more: between its beginning and its end, an attempt is told by
        one voice, and after its end by none. (Unique keys hide from the receiver what a missing fence would let in.)"""
        running: dict[str, set[str]] = {}
        for event in sorted(self.events, key=lambda event: (event.session_id, event.seq)):
            if event.type == "turn_started":
                running[event.turn_id] = set()
            elif event.turn_id not in running:
                yield Complaint(f"turn {event.turn_id} went on after its end: event {event.seq}, {event.type}")
            elif event.type == "turn_ended":
                del running[event.turn_id]
            elif event.type == "tool_call":
                if event.payload["id"] in running[event.turn_id]:
                    yield Complaint(f"one attempt of turn {event.turn_id} made {event.payload['id']} twice")
                running[event.turn_id].add(event.payload["id"])

    def _first_arrivals(self) -> Iterator[Arrival]:
        seen: set[str] = set()
        for arrival in sorted(self.arrivals, key=lambda arrival: arrival.number):
            if arrival.accepted and arrival.key not in seen:
                seen.add(arrival.key)
                yield arrival

    def _keys_naming(self, start: str) -> dict[str, set[str]]:
        keys: dict[str, set[str]] = defaultdict(set)
        for arrival in self.arrivals:
            if arrival.accepted and arrival.text.startswith(start):
                for word in _words(arrival.text):
                    keys[word].add(arrival.key)
        return keys


def _words(content: Any) -> tuple[str, ...]:
    return tuple(_WORD.findall(str(content)))
