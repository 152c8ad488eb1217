"""Words of a shell as bash reads them: quotes, escapes, and what stands for something only a running shell could know.

The commands within a word (substitutions) are the business of whoever derives from this."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final

MOST_SUMS: Final = 100  # looked at, in vain or not
DEEPEST: Final = 16
UNKNOWN: Final = "$_"  # for what a substitution prints; read again, it is as unknown
_PLAIN: Final = re.compile(r"[^\s\\'\"$`;&|()<>#*?\[{]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_IN_DOUBLE_QUOTES: Final = re.compile(r"[^\\\"$`]+")
_IN_BRACES: Final = re.compile(r"[^\\'\"$`}]+")
_ANSI: Final = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)", re.S)
_ANSI_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}


@dataclass(frozen=True)
class Word:
    """`text` is without quotes. `known`: it is all of it; otherwise it has a variable where something unknown stands.
    `pattern`: the shell may make other words of it."""

    text: str
    known: bool = True
    pattern: bool = False
    quoted: bool = False


@dataclass
class Simple:
    """A program and its words. `reads` and `writes` are files it is connected to, `given` texts for its input."""

    assignments: list[str] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    reads: list[Word] = field(default_factory=list)
    writes: list[Word] = field(default_factory=list)
    given: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.words or self.assignments or self.reads or self.writes or self.given)


class WordReader(ABC):
    """A text and the position in it. `found` are the commands so far; `complete` is False once it makes no sense."""

    def __init__(self, text: str, depth: int, found: list[Simple]) -> None:
        self.text, self.depth, self.found = text, depth, found
        self.at = 0
        self.complete = True
        self._sums = 0

    @abstractmethod
    def deeper(self, until: str) -> None:
        """Read commands up to the closing character, and step over it."""

    @abstractmethod
    def script(self, text: str) -> None:
        """Read the commands of another text."""

    def word(self) -> Word:
        """One word, from where it begins."""
        parts: list[str] = []
        known, pattern, quoted = True, False, False
        while self.complete and self.at < len(self.text):
            c = self.text[self.at]
            if plain := _PLAIN.match(self.text, self.at):
                parts.append(plain[0])
                self.at = plain.end()
            elif c in " \t\r\n;&|()" or (c in "<>" and self.next() != "("):
                break
            elif c in "<>":
                self.at += 2
                self.deeper(")")
                parts.append(UNKNOWN)
                known = False
            elif c == "\\":
                if self.next() != "\n":
                    parts.append(self.next())
                    quoted = True
                self.at += 2
            elif c == "'":
                parts.append(self._single())
                quoted = True
            elif c == '"':
                self.at += 1
                known = self.double(parts, '"') and known
                quoted = True
            elif c == "$" and self.next() == "'":
                self.at += 1
                parts.append(_ANSI.sub(_ansi, self._single(escapes=True)))
                quoted = True
            elif c == "$" and self.next() == '"':
                self.at += 1
            elif c in "$`":
                known = self._expansion(parts) and known
            else:
                pattern = pattern or c in "*?[{"
                parts.append(c)
                self.at += 1
        return Word("".join(parts), known, pattern, quoted)

    def next(self) -> str:
        return self.text[self.at + 1 : self.at + 2]

    def here(self) -> str:
        return self.text[self.at : self.at + 1]

    def arithmetic(self) -> bool:
        """At the second of two brackets. Steps over sums, where `<<` is no here-document. False, and nothing has
        happened, if it is a subshell in a subshell."""
        self._sums += 1
        if self.depth > DEEPEST or self._sums > MOST_SUMS:
            self.complete = False
            return False
        start, known_before, complete = self.at, len(self.found), self.complete
        self.at += 1
        self.depth += 1
        depth = 2
        while self.complete and self.at < len(self.text):
            c = self.text[self.at]
            if c in "$`":
                self._expansion([])
                continue
            self.at += 1
            depth += (c == "(") - (c == ")")
            if depth == 0:
                self.depth -= 1
                return True
            if depth == 1 and self.here() != ")":
                break
        self.depth -= 1
        self.at, self.complete = start, complete and self._sums <= MOST_SUMS
        del self.found[known_before:]
        return False

    def _single(self, *, escapes: bool = False) -> str:
        """What stands in single quotes; the position is at the first."""
        start = end = self.at + 1
        while True:
            end = self.text.find("'", end)
            if end < 0:
                self.complete = False
                return ""
            before = end
            while escapes and before > start and self.text[before - 1] == "\\":
                before -= 1
            if (end - before) % 2 == 0:
                break
            end += 1
        self.at = end + 1
        return self.text[start:end]

    def double(self, parts: list[str], until: str) -> bool:
        """What stands in double quotes, or in a here-document (`until` is empty). Whether all of it is known."""
        known = True
        while self.complete and self.at < len(self.text):
            c = self.text[self.at]
            if plain := _IN_DOUBLE_QUOTES.match(self.text, self.at):
                parts.append(plain[0])
                self.at = plain.end()
            elif c == '"':
                self.at += 1
                if until:
                    return known
                parts.append(c)
            elif c == "\\":
                if self.next() not in tuple('\n"$`\\'):
                    parts.append("\\")
                if self.next() != "\n":
                    parts.append(self.next())
                self.at += 2
            else:
                known = self._expansion(parts) and known
        self.complete = self.complete and not until
        return known

    def _expansion(self, parts: list[str]) -> bool:
        """At a `$` or a backtick. False unless it was but a dollar sign."""
        if self.text[self.at] == "`":
            end = self.at + 1
            while end < len(self.text) and self.text[end] != "`":
                end += 2 if self.text[end] == "\\" else 1
            script = re.sub(r"\\([\\`$])", r"\1", self.text[self.at + 1 : end])
            self.complete = self.complete and end < len(self.text)
            self.script(script)
            self.at = end + 1
            parts.append(UNKNOWN)
            return False
        if self.next() == "(":
            self.at += 2
            if self.here() != "(" or not self.arithmetic():
                self.deeper(")")
            parts.append(UNKNOWN)
            return False
        if self.next() == "{":
            start = self.at
            self.at += 2
            self._braces()
            parts.append(self.text[start : self.at])
            return False
        self.at += 1
        if name := _NAME.match(self.text, self.at):
            self.at = name.end()
            parts.append(f"${name[0]}")
            return False
        parts.append("$")
        return True

    def _braces(self) -> None:
        if self.depth > DEEPEST:
            self.complete = False
            return
        self.depth += 1
        while self.complete and self.at < len(self.text):
            c = self.text[self.at]
            if plain := _IN_BRACES.match(self.text, self.at):
                self.at = plain.end()
            elif c == "}":
                self.at += 1
                self.depth -= 1
                return
            elif c == "\\":
                self.at += 2
            elif c == "'":
                self._single()
            elif c == '"':
                self.at += 1
                self.double([], '"')
            else:
                self._expansion([])
        self.complete = False


def _ansi(match: re.Match[str]) -> str:
    """What an escape in $'...' stands for."""
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return _ANSI_LETTERS.get(code, code)
