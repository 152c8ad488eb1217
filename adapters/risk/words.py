"""The simple commands in a line of shell: what a program would be started with, wherever in the line it stands.

Pipes, lists, subshells, substitutions, quotes, here-documents and comments are read as bash reads them. What only a
running shell could know (variables, patterns) is marked, never guessed. It must neither raise nor take long, whatever
it is given: a line that is too long, too deep or not shell at all is `complete=False`.

Of the parsers that exist, one is under a licence that does not fit ours, the other takes seconds over 60 kB that mean
harm, in a process that others' sessions share."""

import re
from dataclasses import dataclass
from typing import Final

from adapters.risk.quoting import DEEPEST, Simple, Word, WordReader

MOST_CHARACTERS: Final = 32_000
MOST_COMMANDS: Final = 2_000

ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
_REDIRECT: Final = re.compile(r"&>>?|<<<|<<-?|<>|<&|>&|>>|>\||<|>")


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


class _Reader(WordReader):
    def __init__(self, text: str, depth: int, found: list[Simple]) -> None:
        super().__init__(text, depth, found)
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
            elif c in "<>" or (c == "&" and self.next() == ">"):
                self._redirect()
            elif c in ";&|":
                self.at += 1
                open_cases += self._end()
            elif c == "(":
                self.at += 1
                open_cases += self._end()
                start = self.at + 1
                if self.here() != "(" or not self.arithmetic():
                    self.deeper(")")
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

    def deeper(self, until: str) -> None:
        if self.depth > DEEPEST:
            self.complete = False
        else:
            self.commands(until)

    def script(self, text: str) -> None:
        inner = read_line(text, self.depth + 1)
        self.found += inner.commands
        self.complete = self.complete and inner.complete

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

    def _redirect(self) -> None:
        found = _REDIRECT.match(self.text, self.at)
        assert found is not None
        operator = found[0]
        if operator in "<>" and self.next() == "(":
            self._add(self.word())
            return
        words = self._now.words
        if words and words[-1].text.isdigit() and self.text[self.at - 1 : self.at].isdigit() and not words[-1].quoted:
            words.pop()
        self.at = found.end()
        while self.here() in (" ", "\t"):
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
                inner.double([], "")
                self.complete = self.complete and inner.complete
