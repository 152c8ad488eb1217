"""A turn's events as people read them: `TurnView.feed` takes one after the other, and says which entries are new or
have changed. The page and the live stream are made by the same, so that both show the same.

Pure: nothing is read or rendered here. What only rows know is added by `joining`."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from adapters.events import (
    ApprovalRequested,
    ControlChanged,
    DiffAvailable,
    Envelope,
    FilesTouched,
    Message,
    MessagesJoined,
    Progress,
    QuestionAsked,
    Result,
    Stderr,
    Thinking,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnStarted,
    UsageReport,
)
from gateway.console.timeline.entries import Asked, Attempt, Call, Entry, Note, Received, Said, Sent, Thought, Tone

_ENDS: Final[dict[str, tuple[str, str, Tone]]] = {
    "failed": ("✗", "given up: {}", "bad"),
    "cancelled": ("■", "{}", "warn"),
    "waiting": ("↻", "{}", "warn"),
    "parked": ("‖", "waits: {}", "warn"),
    "handed_over": ("⇄", "{}", ""),
}
_HANDED_OVER: Final = "handed over to another worker"


@dataclass
class Spent:
    """What the model calls of a turn took. `unpriced`: so many have no known price."""

    read_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    unpriced: int = 0

    def add(self, report: UsageReport) -> None:
        self.read_tokens += report.read_tokens
        self.output_tokens += report.output_tokens
        if report.cost_usd is None:
            self.unpriced += 1
        else:
            self.cost_usd = (self.cost_usd or 0.0) + report.cost_usd


@dataclass
class TurnView:
    id: str
    number: int = 0
    status: str = "running"
    provider: str = ""
    model: str | None = None
    worker: str = ""
    error: str | None = None
    error_class: str | None = None
    began: datetime | None = None
    ended: datetime | None = None
    due: datetime | None = None
    spent: Spent = field(default_factory=Spent)
    entries: list[Entry] = field(default_factory=list)
    by_key: dict[str, Entry] = field(default_factory=dict)
    left_out: int = 0  # entries at its beginning, which a page has no room for
    fed: bool = False  # there are events; of a turn of long ago there may be none
    _attempt: Attempt | None = None  # the one under way

    def feed(self, item: Envelope) -> list[Entry]:
        """What is new or has changed, besides the head."""
        key, self.fed = f"e{item.seq}", True
        match item.event:
            case TurnStarted() as started:
                return self._start(key, item.at, started)
            case MessagesJoined(messages=numbers):
                return [self._join(number, item.at) for number in numbers]
            case Thinking(text=text):
                return [self._think(key, item.at, text)]
            case Message(text=text):
                return [self.put(Said(key, item.at, text))]
            case Result(text=text):
                return [self.put(Sent(key, item.at, text=text))]
            case ToolCall() as called:
                return [self._call(key, item.at, called)]
            case ToolResult(id=call, ok=ok):
                return self._answer(call, item.at, ok)
            case ApprovalRequested(id=subject, summary=summary) if subject:
                return [self.put(Asked(f"ask{subject}", item.at, "approval", subject, summary))]
            case QuestionAsked(id=subject, title=title, text=text):
                return [self.put(Asked(f"ask{subject}", item.at, "question", subject, title, text))]
            case UsageReport() as report:
                self.spent.add(report)
                return []
            case TurnEnded() as ended:
                return self._end(key, item.at, ended)
            case _:
                note = _note(key, item)
                return [self.put(note)] if note is not None else []

    def _start(self, key: str, at: datetime, started: TurnStarted) -> list[Entry]:
        changed: list[Entry] = []
        lost = self._attempt is not None  # it began and never ended
        if self._attempt is not None:
            self._attempt.lost = True
            changed.append(self._attempt)
            changed += self._leave_unanswered()
            changed += self._make_void(self._attempt)
        again = self.status in ("parked", "handed_over") and not lost
        self.number, self.provider, self.model = started.number, started.provider, started.model
        self.status, self.worker, self.error, self.due, self.ended = "running", started.worker, None, None, None
        self.began = self.began or at
        changed += [self.put(Received(f"in{number}", at, number)) for number in started.messages]
        who = started.attempt, started.worker, started.provider, started.model
        self._attempt = Attempt(key, at, *who, again=again)
        return [*changed, self.put(self._attempt)]

    def _end(self, key: str, at: datetime, ended: TurnEnded) -> list[Entry]:
        asks, self._attempt = self._asks(), None
        self.status, self.ended = ended.status, at
        self.error, self.error_class = ended.error, ended.error_class
        self.due = at + timedelta(seconds=ended.retry_in) if ended.retry_in is not None else None
        changed = self._leave_unanswered() if ended.status in ("completed", "failed", "cancelled") else []
        if ended.status == "parked":
            changed += self._put_off()
        if ended.status in _ENDS and not (ended.status == "parked" and asks):
            mark, words, tone = _ENDS[ended.status]
            text = words.format(ended.error or _HANDED_OVER)
            changed.append(self.put(Note(key, at, mark, text, tone, self.due if ended.status == "waiting" else None)))
        return changed

    def _join(self, number: int, at: datetime) -> Entry:
        """Its row may have been seen before its event."""
        entry = self.put(Received(f"in{number}", at, number))
        if isinstance(entry, Received):
            entry.joined = True
        return entry

    def _think(self, key: str, at: datetime, text: str) -> Entry:
        """Thoughts come in pieces, and no event says when one is whole: what comes next does."""
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Thought) and not last.void:
            last.text += text
            return last
        return self.put(Thought(key, at, text))

    def _call(self, key: str, at: datetime, called: ToolCall) -> Entry:
        """One that waited for a person is asked for again when the turn goes on: it is the same."""
        for entry in self.entries:
            if isinstance(entry, Call) and entry.call == called.id and entry.state == "waiting":
                entry.state = "running"
                return entry
        return self.put(Call(key, at, called.id, called.name, called.preview))

    def _answer(self, call: str, at: datetime, ok: bool) -> list[Entry]:
        for entry in reversed(self.entries):
            if isinstance(entry, Call) and entry.call == call:
                entry.state, entry.ended_at = "ok" if ok else "failed", at
                return [entry]
        return []

    def _put_off(self) -> list[Entry]:
        """Calls that wait for a person."""
        waiting = [entry for entry in self.entries if isinstance(entry, Call) and entry.state == "running"]
        for entry in waiting:
            entry.state = "waiting"
        return list(waiting)

    def _asks(self) -> bool:
        """Whether what the attempt waits for stands there."""
        begun = self.entries.index(self._attempt) if self._attempt is not None else 0
        return any(isinstance(entry, Asked) for entry in self.entries[begun:])

    def _leave_unanswered(self) -> list[Entry]:
        left = [entry for entry in self.entries if isinstance(entry, Call) and entry.state in ("running", "waiting")]
        for entry in left:
            entry.state = "unanswered"
        return list(left)

    def _make_void(self, since: Attempt) -> list[Entry]:
        """What a lost attempt said counts for nothing: the next one says it again."""
        later = self.entries[self.entries.index(since) :]
        void = [entry for entry in later if isinstance(entry, Said | Thought)]
        for entry in void:
            entry.void = True
        return list(void)

    def put(self, entry: Entry, before: Entry | None = None) -> Entry:
        """The same key again is the same entry."""
        if entry.key in self.by_key:
            return self.by_key[entry.key]
        self.by_key[entry.key] = entry
        self.entries.insert(self.entries.index(before) if before is not None else len(self.entries), entry)
        return entry


def _note(key: str, item: Envelope) -> Note | None:
    match item.event:
        case Progress(text=text):
            return Note(key, item.at, "·", text)
        case Stderr(text=text):
            return Note(key, item.at, "!", text)
        case FilesTouched(paths=paths):
            return Note(key, item.at, "✎", ", ".join(paths))
        case DiffAvailable(summary=summary):
            return Note(key, item.at, "±", summary)
        case ControlChanged(mode=mode, by=by):
            return Note(key, item.at, "»", f"{by}: {mode}", "warn")
        case ApprovalRequested(summary=summary):
            return Note(key, item.at, "!", summary, "warn")
        case _:
            return None
