"""Long Markdown in parts that each stand for themselves: a code block or table that goes on is begun anew there."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from markdown_it.token import Token
from wcwidth import grapheme_boundary_before

from adapters.markup.document import blocks, lines_of

# Where to break, best first. A break that leaves more of the room empty is not taken while there is a lesser one.
_BREAKS: Final = (
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])[ \t]+|(?<=[。！？])"),
    re.compile(r"[ \t]+"),
)
_MOST_EMPTY: Final = 0.5
# This part of a room need not be filled.
_SPARE: Final = 32
_EMPTY_LINES: Final = re.compile(r"(?:[ \t]*\n)*")
_SPACE: Final = re.compile(r"[ \t]*")
# At the beginning of a line this would be markup; where it stands it is not.
_WOULD_BE_MARKUP: Final = re.compile(r"(?:[-+*]|#{1,6}|\d{1,9}[.)])(?:\s|\Z)|>|```|~~~|([-*_])(?:[ \t]*\1){2}")
# What is ugly in two halves: links, code, what is bold or struck out.
_WHOLES: Final = re.compile(
    r"!?\[[^\[\]\n]{0,500}\]\([^()\s]{0,2000}\)|(?<!`)(`{1,9}+)[^`\n]{1,500}+\1(?!`)|(\*\*|__|~~)(?=\S)[^\n]{1,500}?\2|\\[!-/:-@\[-`{-~]"
)


@dataclass(frozen=True)
class _Block:
    """What is ended and begun anew when it is broken, by positions in the text."""

    head: int  # its first line: not to be parted from what follows
    start: int  # what can be broken: code inside its fence, rows below their heading
    end: int
    after: int  # behind its last line
    opening: str
    closing: str


def split(markdown: str, limit: int, length: Callable[[str], int] = len) -> list[str]:
    """Parts of at most `limit` as `length` counts. Nothing that can be read is lost, only space where it was broken."""
    if length(markdown) <= limit:
        return [markdown]
    return list(_Splitting(markdown, limit, length).parts())


class _Splitting:
    def __init__(self, markdown: str, limit: int, length: Callable[[str], int]) -> None:
        lines = lines_of(markdown)
        self._text = "\n".join(lines)
        self._limit = limit
        self._length = length
        # What leaves no room for its contents is broken like any text.
        found = _blocks(blocks(markdown), lines)
        self._blocks = [block for block in found if length(f"{block.opening}x{block.closing}") <= limit * 3 // 4]
        self._heads = [block.head for block in self._blocks]
        self._wholes = [match.span() for match in _WHOLES.finditer(self._text)]
        self._begins = [begin for begin, _ in self._wholes]

    def parts(self) -> Iterator[str]:
        position = _skip(_EMPTY_LINES, self._text, 0)
        while position < len(self._text):
            end = self._end(position)
            part = self._part(position, end)
            if part.strip():
                yield part
            position = self._next(end)

    def _part(self, start: int, end: int) -> str:
        first, last = self._inside(start), self._inside(end)
        text = self._text[start:end]
        return (first.opening if first else "") + (text + last.closing if last else text.rstrip())

    def _end(self, start: int) -> int:
        """Where the part that begins at `start` ends."""
        room = self._room(start)
        while room > start + 1 and room < len(self._text):
            end = self._break(start, room)
            if self._fits(start, end):
                return end
            # Half a construct can be longer than the whole.
            room = max(start + 1, min(end - 1, start + (end - start) * 9 // 10))
        return room

    def _room(self, start: int) -> int:
        """The farthest that fits, as far as one can tell; of a large room some may stay empty, since measuring takes
        most of the time of all this."""
        spare, size = self._limit // _SPARE, self._limit
        fitting, shorter = start + 1, 0
        while True:
            too_far = min(start + size, len(self._text))
            longer = self._measured(start, too_far)
            if longer > self._limit:
                break
            if too_far == len(self._text) or self._limit - longer < spare:
                return too_far
            fitting, shorter, size = too_far, longer, size * 2
        guesses = 0
        while too_far - fitting > max(1, spare):
            guesses += 1
            middle = (fitting + too_far) // 2
            if guesses % 2:  # most texts are as long as they look, and the others are halved
                share = (self._limit - shorter) / max(1, longer - shorter)
                middle = min(max(fitting + int((too_far - fitting) * share), fitting + 1), too_far - 1)
            measured = self._measured(start, middle)
            if measured > self._limit:
                too_far, longer = middle, measured
            elif self._limit - measured < spare:
                return middle
            else:
                fitting, shorter = middle, measured
        return fitting

    def _fits(self, start: int, end: int) -> bool:
        return self._measured(start, end) <= self._limit

    def _measured(self, start: int, end: int) -> int:
        return self._length(self._part(start, end))

    def _break(self, start: int, room: int) -> int:
        """The best place to break between `start` and `room`."""
        half = start + max(1, int((room - start) * (1 - _MOST_EMPTY)))
        for number, pattern in enumerate(_BREAKS):
            least = half if number < len(_BREAKS) - 1 else start + 1  # a word is broken only if it must be
            at_line_end = number < 2
            found = list(pattern.finditer(self._text, least, min(room + 2, len(self._text))))
            for match in reversed(found):
                place = match.start()
                if place <= room and not at_line_end and self._inside(place) is not None:
                    # Behind the space: it counts there, and before it, a long run would be broken one by one.
                    place = min(match.end(), room)
                if place <= room and self._may_break(place, at_line_end=at_line_end):
                    return place
        for begin in (self._whole_around(room), self._head_around(room)):
            if begin is not None and begin > start:
                return begin
        return _between_characters(self._text, start, room)

    def _may_break(self, place: int, *, at_line_end: bool) -> bool:
        if self._head_around(place) is not None:
            return False
        block = self._inside(place)
        if block is None and self._whole_around(place) is not None:
            return False
        return at_line_end or not _WOULD_BE_MARKUP.match(self._text, _skip(_SPACE, self._text, place))

    def _next(self, end: int) -> int:
        """Where it goes on, without the space around the break; inside a line of code every space counts."""
        place = _skip(_EMPTY_LINES, self._text, end)
        block = self._inside(end)
        if block is not None:
            return place if place < block.end else self._next(block.after)
        return place if place > end else _skip(_SPACE, self._text, end)

    def _block_at(self, place: int) -> _Block | None:
        position = bisect_right(self._heads, place) - 1
        return self._blocks[position] if position >= 0 and place < self._blocks[position].after else None

    def _inside(self, place: int) -> _Block | None:
        """The block that is broken at this place."""
        block = self._block_at(place)
        return block if block is not None and block.start <= place < block.after else None

    def _head_around(self, place: int) -> int | None:
        block = self._block_at(place)
        return block.head if block is not None and block.head < place < block.start + 1 else None

    def _whole_around(self, place: int) -> int | None:
        position = bisect_right(self._begins, place) - 1
        if position < 0:
            return None
        begin, end = self._wholes[position]
        return begin if begin < place < end else None


def _blocks(tokens: list[Token], lines: list[str]) -> list[_Block]:
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    blocks = []
    for token in tokens:
        if token.map is None or token.type not in ("fence", "table_open"):
            continue
        first, last = token.map[0], token.map[1] - 1
        end = starts[last] + len(lines[last])
        if token.type == "fence":
            prefix = re.sub(r"[^>\s]", " ", lines[first][: lines[first].index(token.markup)])
            opening, closing = f"{prefix}{token.markup}{token.info}\n", f"\n{prefix}{token.markup}"
            closed = last > first and set(lines[last].strip(" \t>")) == {token.markup[0]}
            body, end_of_body = first + 1, starts[last] - 1 if closed else end
        else:
            opening, closing = f"{lines[first]}\n{lines[first + 1]}\n", ""
            body, end_of_body = first + 2, end
        if body <= last and starts[body] < end_of_body:
            blocks.append(_Block(starts[first], starts[body], end_of_body, end, opening, closing))
    return blocks


def _skip(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place


def _between_characters(text: str, start: int, room: int) -> int:
    """Not inside what is one character to a reader, if there is any other place."""
    if room >= len(text):
        return room
    place: int = grapheme_boundary_before(text, room + 1)
    if "\udc00" <= text[place] <= "\udfff" and "\ud800" <= text[place - 1] <= "\udbff":
        place -= 1
    return place if place > start else room
