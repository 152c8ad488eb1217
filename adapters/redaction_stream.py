"""Secrets out of a text that comes in pieces. It gives exactly what the whole text would give, however it was cut.

A text is read once, from left to right, in linear time. What is found becomes `[redacted]`, without any part of it."""

from typing import Final

from adapters.known_secrets import KnownSecrets
from adapters.secret_shapes import SHAPES_BY_FIRST, Shape

LABEL: Final = "[redacted]"
_SHORTEST: Final = 3  # no word that makes a place worth looking at is shorter
_CONTEXT: Final = 3  # what a boundary may depend on: `\n` and `%0A` in escaped texts
_KNOWN: Final = Shape()  # what is known goes on as far as it was found, and no further

_Found = tuple[Shape, str, int]


def redacted(text: str, known: KnownSecrets) -> str:
    """A whole text, without its secrets. The same object, if there is nothing to hide."""
    if known.whole_trigger.search(text) is None:
        return text
    stream = StreamRedactor(known)
    shown = stream.feed(text) + stream.flush()
    return text if shown == text else shown


class StreamRedactor:
    """Pieces of one text. Holds back only what could be the beginning of a secret: a character or two of ordinary
    text, at most about a thousand, or the length of the longest known secret, of a suspicious one."""

    def __init__(self, known: KnownSecrets) -> None:
        self._known = known
        self._search = known.trigger.search
        self._text = ""  # a little of what is decided, then what is not
        self._at = 0  # where the undecided begins
        self._fresh = False  # what ends there was a secret: the next word begins there
        self._inside: Shape | None = None  # a secret is under way: its label is shown, its rest is dropped

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        self._text = text = self._text + piece
        if self._inside is None and not self._fresh:
            at = self._at
            match = self._search(text, at)
            place = len(text) if match is None else match.start()
            if len(text) - place < _SHORTEST:  # too little to be judged
                decided = place - _CONTEXT if place > _CONTEXT else 0
                self._text, self._at = text[decided:], place - decided
                return text[at:place]
        return self._read(final=False)

    def flush(self) -> str:
        """The rest. What comes after is another text."""
        shown = self._read(final=True) if self._at < len(self._text) else ""
        self._text, self._at, self._fresh, self._inside = "", 0, False, None
        return shown

    def _read(self, *, final: bool) -> str:
        text, at, fresh = self._text, self._at, self._fresh
        shown: list[str] = []
        begin = 0
        while True:
            if self._inside is not None:
                end = self._leave(text, begin, at, final=final)
                if end is None:
                    return "".join(shown)
                at, fresh, self._inside = end, True, None
            place, found = self._find(text, at, fresh=fresh, final=final)
            shown.append(text[at:place])
            if found is None:
                break
            shape, prefix, end = found
            shown += (prefix, LABEL)
            self._inside, begin, at = shape, place, end
        fresh = fresh and place == at
        decided = max(0, place - _CONTEXT)
        self._text, self._at, self._fresh = text[decided:], place - decided, fresh
        return "".join(shown)

    def _leave(self, text: str, begin: int, at: int, *, final: bool) -> int | None:
        """Where the secret that is under way ends; None: not yet. Then only as much of it is kept as may matter."""
        assert self._inside is not None
        end = self._inside.end(text, begin, at)
        if end is None and final:
            return len(text)
        if end is not None:
            end = self._known.widened(text, begin, end, final=final)
            if end >= 0:
                return end
        if end is None:
            begin, at = max(begin, len(text) - self._known.keep), len(text)
        self._text, self._at = text[begin:], at - begin
        return None

    def _find(self, text: str, at: int, *, fresh: bool, final: bool) -> tuple[int, _Found | None]:
        """Up to where there is nothing to hide, and the secret that begins there; without one, the rest waits."""
        start = at
        while (match := self._search(text, at)) is not None:
            place = match.start()
            verdict = self._judge(text, place, loose=fresh and place == start, final=final)
            if verdict is not None:
                return place, None if verdict == "wait" else verdict  # type: ignore[return-value]
            at = place + 1
        return len(text), None

    def _judge(self, text: str, at: int, *, loose: bool, final: bool) -> _Found | str | None:
        known = self._known.end(text, at, final=final)
        if known == -1:
            return "wait"
        for shape in SHAPES_BY_FIRST.get(text[at], ()):
            full, partial = shape.loose if loose else shape.strict
            match = full.match(text, at)
            if (match is None or shape.closed) and not final and partial.match(text, at) is not None:
                return "wait"
            if match is not None:
                prefix = redacted(match[1], self._known) if shape.closed else ""
                return shape, prefix, match.end()
        return (_KNOWN, "", known) if known is not None else None
