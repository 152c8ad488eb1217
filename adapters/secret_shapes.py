"""The shapes of secrets that nobody told us about: keys of vendors, tokens, private keys, passwords in addresses.

Each is a pattern for a whole secret and one for a beginning of it that more text could complete, so that a stream knows
when to wait. A new kind of secret is one line in `SHAPES`."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final


@dataclass(frozen=True)
class Shape:
    """What a kind of secret looks like: patterns for all of it (`full`) and for a beginning of it that reaches the end
    of what is known of a text (`partial`). They are compiled when a text first needs them: together that takes longer
    than most texts do, and few texts have a place where a secret may begin."""

    start: str = ""
    full: str = r"\Z"
    partial: str = r"\Z"
    boundary: str = ""  # before a strict one
    run: str | None = None  # goes on as long as this fits
    until: str | None = None  # goes on to the end of this, or of the text
    closed: bool = False  # has an end of its own; group 1 is shown

    @cached_property
    def loose(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        return re.compile(self.full), re.compile(self.partial)

    @cached_property
    def strict(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Not in the middle of a word."""
        return re.compile(self.boundary + self.full), re.compile(self.boundary + self.partial)

    @cached_property
    def _goes_on(self) -> re.Pattern[str]:
        return re.compile(self.until or self.run or "")

    def end(self, text: str, begin: int, at: int) -> int | None:
        if self.until is not None:
            found = self._goes_on.search(text, begin)
            return found.end() if found is not None else None
        if self.run is None:
            return at
        run = self._goes_on.match(text, at)
        end = run.end() if run is not None else at
        return end if end < len(text) else None


_Part = tuple[str, int, int | None]  # a class of characters, at least and at most so many

_WORD: Final = r"[A-Za-z0-9_-]"
_ALNUM: Final = r"[A-Za-z0-9]"
_WIDE: Final = r"[A-Za-z0-9._~+/=-]"
# Not after a letter, a digit or a hyphen, unless that is the end of an escaped character.
_BOUNDARY: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_SEEN_ENOUGH: Final = 64  # a digit comes within so many characters of a secret, or it is a long word


def _literal(word: str) -> list[_Part]:
    return [(re.escape(letter), 1, 1) for letter in word]


def _counted(part: _Part) -> str:
    kind, least, most = part
    return kind if least == most == 1 else f"{kind}{{{least},{'' if most is None else most}}}"


def _beginning(parts: list[_Part]) -> str:
    """A pattern for every beginning of `parts` that reaches the end of the text."""
    pattern = r"\Z"
    for part in reversed(parts):
        kind, least, most = part
        early = "" if least == most == 1 else rf"|{_counted((kind, 0, most))}\Z"
        pattern = rf"(?:{_counted(part)}{pattern}|\Z{early})"
    return pattern


def _shape(start: str, *parts: _Part, boundary: str = "", digit: bool = False, until: str = "") -> Shape:
    """A secret that begins with `start` and goes on as its last part does, or up to `until`. `digit`: without one it
    is a word."""
    all_parts = [*_literal(start), *parts]
    kind, least, _ = parts[-1]
    digit_soon = f"(?={kind.replace('0-9', '')}{{0,{_SEEN_ENOUGH - 1}}}[0-9])" if digit else ""
    full = "".join(map(_counted, all_parts[:-1])) + digit_soon + _counted(parts[-1])
    partial = _beginning([*all_parts[:-1], (kind, least, _SEEN_ENOUGH) if digit else parts[-1]])
    return Shape(start, full, partial, boundary, run=None if until else f"{kind}*", until=until or None)


_CODE: Final[tuple[_Part, ...]] = (
    ("[0-9A-Za-z]", 4, 4),
    *_literal("-"),
    ("[0-9A-Za-z]", 4, 4),
    *_literal("-"),
    ("[0-9A-Za-z]", 4, None),
)


def _url() -> Shape:
    """`://user:password@`. The password reaches to the last @ before the host ends."""
    user: _Part = (r"[^\s/?#:@\[\]{}<>\"'`\\|^,]", 0, 256)
    password: _Part = (r"[^\s/?#\[\]{}<>\"'`\\|^]", 0, 512)
    full = f"(://{_counted(user)}:){_counted(password)}(?=@)"
    partial = _beginning([*_literal("://"), user, (":", 1, 1), password, ("@", 1, 1)])
    return Shape("://", full, partial, closed=True)


SHAPES: Final = (
    _shape("sk-ant-", (_WORD, 16, None)),
    _shape("sk-proj-", (_WORD, 16, None)),
    _shape("sk-", (_WORD, 20, None), boundary=_BOUNDARY, digit=True),
    *(_shape(f"gh{kind}_", (r"[A-Za-z0-9_]", 20, None)) for kind in "pousr"),
    _shape("github_pat_", (r"[A-Za-z0-9_]", 20, None)),
    *(_shape(f"xox{kind}-", (_WORD, 10, None)) for kind in "abeoprs"),
    _shape("AKIA", (r"[A-Z0-9]", 16, None), boundary=_BOUNDARY),
    _shape("ASIA", (r"[A-Z0-9]", 16, None), boundary=_BOUNDARY, digit=True),
    _shape("AIza", (_WORD, 35, None), boundary=_BOUNDARY),
    _shape("glpat-", (_WORD, 16, None)),
    _shape("npm_", (_ALNUM, 36, None)),
    _shape("lst_", (_WORD, 40, None), boundary=_BOUNDARY),  # our own: a token of the gateway, and below a one-time code
    _shape("LS-", *_CODE, boundary=_BOUNDARY),
    _shape("hf_", (_ALNUM, 30, None), boundary=_BOUNDARY),
    _shape("eyJ", (_WORD, 8, 1000), *_literal(".eyJ"), (r"[A-Za-z0-9._-]", 8, None), boundary=_BOUNDARY),
    *(_shape(f"{word} ", (_WIDE, 16, None), digit=True) for word in ("Bearer", "bearer", "BEARER", "Basic")),
    _shape("hooks.slack.com/", ("[a-z]", 4, 12), ("/", 1, 1), (r"[A-Za-z0-9/_-]", 16, None)),
    _shape(
        "-----BEGIN ",
        (r"[A-Z0-9 ]", 0, 40),
        *_literal("PRIVATE KEY"),
        until=r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
    ),
    _url(),
)
# A bot's number, and the key that Telegram gave it.
_TELEGRAM: Final = _shape("", ("[0-9]", 6, 12), *_literal(":AA"), (_WORD, 33, None), boundary=r"(?<![0-9])")
SHAPES_BY_FIRST: Final[dict[str, list[Shape]]] = {digit: [_TELEGRAM] for digit in "0123456789"}
for _known_shape in SHAPES:
    SHAPES_BY_FIRST.setdefault(_known_shape.start[0], []).append(_known_shape)
