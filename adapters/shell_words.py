"""The simple commands in a line of shell: what a program would be started with, wherever in the line it stands.

Pipes, lists, subshells, substitutions, quotes, here-documents and comments are read as bash reads them. What only a
running shell could know (variables, patterns) is marked, never guessed. It must neither raise nor take long, whatever
it is given: a line that is too long, too deep or not shell at all is `complete=False`.

Of the parsers that exist, one is under a licence that does not fit ours, the other takes seconds over 60 kB that mean
harm, in a process that others' sessions share."""

import re
from dataclasses import dataclass, field
from typing import Final

MOST_CHARACTERS: Final = 64_000
MOST_COMMANDS: Final = 2_000
MOST_SUMS: Final = 100  # looked at, in vain or not
DEEPEST: Final = 16
UNKNOWN: Final = "$_"  # for what a substitution prints; read again, it is as unknown

_PLAIN: Final = re.compile(r"[^\s\\'\"$`;&|()<>#*?\[{]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
_IN_DOUBLE_QUOTES: Final = re.compile(r"[^\\\"$`]+")
_IN_BRACES: Final = re.compile(r"[^\\'\"$`}]+")
_REDIRECT: Final = re.compile(r"&>>?|<<<|<<-?|<>|<&|>&|>>|>\||<|>")
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


@dataclass(frozen=True)
class Line:
    commands: tuple[Simple, ...]
    complete: bool


def read_line(text: str, depth: int = 0) -> Line:
    """All simple commands of the line, inner ones too. What is missing when not `complete` may be anything."""
    if len(text) > MOST_CHARACTERS or depth > DEEPEST:
        return Line((), complete=False)
    reader = _Reader(text, depth, [])
    reader.commands("")
    return Line(tuple(reader.found), reader.complete)


class _Reader:
    def __init__(self, text: str, depth: int, found: list[Simple]) -> None:
        self.text, self.depth, self.found = text, depth, found
        self.at = 0
        self.complete = True
        self._sums = 0
        self._now = Simple()
        self._documents: list[tuple[Simple, str, bool, bool]] = []

    def commands(self, until: str) -> None:
        """Read commands up to the closing character (or the end of the text, if that is empty)."""
        outer, self._now = self._now, Simple()
        self.depth += 1
        open_cases = 0
        while self.complete and self.at < len(self.text):
            c = self.text[self.at]
            if c in " \t\r":
                self.at += 1
            elif c == "\n":
                self.at += 1
                open_cases += self._end()
                self._read_documents()
            elif c == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif c in "<>" or (c == "&" and self._next() == ">"):
                self._redirect()
            elif c in ";&|":
                self.at += 1
                open_cases += self._end()
            elif c == "(":
                self.at += 1
                open_cases += self._end()
                start = self.at + 1
                if self._here() != "(" or not self._arithmetic():
                    self._deeper(")")
                else:  # A sum for bash; for a plain sh a subshell in a subshell.
                    self.found += read_line(self.text[start : self.at - 2], self.depth + 1).commands
            elif c == ")":
                self.at += 1
                if open_cases > 0 and len(self._now.words) == 1 and self._now.words[0].pattern:
                    self._now = Simple()  # `*)` of a case
                open_cases += self._end()
                if until == ")" and open_cases <= 0:
                    break
            else:
                self._add(self.word())
        else:
            self.complete = self.complete and not until
        self._end()
        if not until:
            self._read_documents()
        self._now = outer
        self.depth -= 1

    def word(self) -> Word:
        """One word, from where it begins."""
        parts: list[str] = []
        known, pattern, quoted = True, False, False
        while self.complete and self.at < len(self.text):
            c = self.text[self.at]
            if plain := _PLAIN.match(self.text, self.at):
                parts.append(plain[0])
                self.at = plain.end()
            elif c in " \t\r\n;&|()" or (c in "<>" and self._next() != "("):
                break
            elif c in "<>":
                self.at += 2
                self._deeper(")")
                parts.append(UNKNOWN)
                known = False
            elif c == "\\":
                if self._next() != "\n":
                    parts.append(self._next())
                    quoted = True
                self.at += 2
            elif c == "'":
                parts.append(self._single())
                quoted = True
            elif c == '"':
                self.at += 1
                known = self._double(parts, '"') and known
                quoted = True
            elif c == "$" and self._next() == "'":
                self.at += 1
                parts.append(_ANSI.sub(_ansi, self._single(escapes=True)))
                quoted = True
            elif c == "$" and self._next() == '"':
                self.at += 1
            elif c in "$`":
                known = self._expansion(parts) and known
            else:
                pattern = pattern or c in "*?[{"
                parts.append(c)
                self.at += 1
        return Word("".join(parts), known, pattern, quoted)

    def _next(self) -> str:
        return self.text[self.at + 1 : self.at + 2]

    def _here(self) -> str:
        return self.text[self.at : self.at + 1]

    def _add(self, word: Word) -> None:
        if not self._now.words and ASSIGNMENT.match(word.text):
            self._now.assignments.append(word.text)
        elif word.text or word.quoted:  # else it was but the end of a line that goes on
            self._now.words.append(word)

    def _end(self) -> int:
        """The command is over. By how many the number of open `case`s changes: in those, a `)` closes nothing."""
        ended, self._now = self._now, Simple()
        if ended:
            self.found.append(ended)
            self.complete = self.complete and len(self.found) <= MOST_COMMANDS
        plain = [word.text for word in ended.words if not word.quoted]
        return plain.count("case") - (plain[:1] == ["esac"])

    def _deeper(self, until: str) -> None:
        if self.depth > DEEPEST:
            self.complete = False
        else:
            self.commands(until)

    def _arithmetic(self) -> bool:
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
            if depth == 1 and self._here() != ")":
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

    def _double(self, parts: list[str], until: str) -> bool:
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
                if self._next() not in tuple('\n"$`\\'):
                    parts.append("\\")
                if self._next() != "\n":
                    parts.append(self._next())
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
            inner = read_line(script, self.depth + 1)
            self.found += inner.commands
            self.complete = self.complete and inner.complete and end < len(self.text)
            self.at = end + 1
            parts.append(UNKNOWN)
            return False
        if self._next() == "(":
            self.at += 2
            if self._here() != "(" or not self._arithmetic():
                self._deeper(")")
            parts.append(UNKNOWN)
            return False
        if self._next() == "{":
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
                self._double([], '"')
            else:
                self._expansion([])
        self.complete = False

    def _redirect(self) -> None:
        found = _REDIRECT.match(self.text, self.at)
        assert found is not None
        operator = found[0]
        if operator in "<>" and self._next() == "(":
            self._add(self.word())
            return
        words = self._now.words
        if words and words[-1].text.isdigit() and self.text[self.at - 1 : self.at].isdigit() and not words[-1].quoted:
            words.pop()
        self.at = found.end()
        while self._here() in (" ", "\t"):
            self.at += 1
        target = self.word()
        if operator in ("<<", "<<-"):
            self._documents.append((self._now, target.text, operator == "<<-", target.quoted))
        elif operator == "<<<":
            self._now.given.append(target.text)
        elif operator == "<":
            self._now.reads.append(target)
        elif not (operator in ("<&", ">&") and re.fullmatch(r"\d*-?", target.text)):
            self._now.writes.append(target)

    def _read_documents(self) -> None:
        """The bodies of here-documents, which begin on the line after."""
        waiting, self._documents = self._documents, []
        for command, end, tabs, literal in waiting:
            lines: list[str] = []
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line = self.text[self.at : stop]
                self.at = stop + 1
                if (line.lstrip("\t") if tabs else line) == end:
                    break
                lines.append(line)
            else:
                self.complete = False
            body = "\n".join(lines)
            command.given.append(body)
            if not literal and self.depth <= DEEPEST:
                inner = _Reader(body, self.depth + 1, self.found)
                inner._double([], "")
                self.complete = self.complete and inner.complete


def _ansi(match: re.Match[str]) -> str:
    """What an escape in $'...' stands for."""
    code = match[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return _ANSI_LETTERS.get(code, code)
