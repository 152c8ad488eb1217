"""Whether a program may do what it says it wants to do: go on, ask a person first, or not at all.

A judgement of words, not a boundary: whoever wants to deceive it finds a way (a script in a file, a build that pushes).
What a program can do to anybody is the sandbox's business. This is for the agent that means well and would merge,
install, deploy or read keys without being asked to. It decides from the words alone and starts nothing."""

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from adapters.addresses import is_among, normal_host
from adapters.errors import WebError
from adapters.policy import Policy
from adapters.risk.files import is_manifest, is_secret, secret_in
from adapters.risk.quoting import Simple, Word
from adapters.risk.rules import Risk, found_by_rule, subcommands
from adapters.risk.shell import (
    MOST_CARRIED,
    SHELLS,
    carried,
    fed,
    hidden,
    inline,
    program_of,
    scripts,
    started,
    starts,
    starts_unknown,
)
from adapters.risk.words import Line, read_line

SUMMARY_LIMIT: Final = 200
# Lines within lines: enough for whatever anybody writes, and an end to what is made to have none.
MOST_LINES: Final = 200
MOST_READ: Final = 100_000  # characters, of all of them
_CHANGES_FILES: Final = {"tee", "mv", "cp", "rm", "truncate", "dd", "install", "ln", "patch", "sponge", "ed", "ex"}
_IN_PLACE: Final = {"sed", "gsed", "perl", "ruby", "yq", "awk", "gawk"}
_ORDER: Final = {"allow": 0, "ask": 1, "deny": 2}
_RISKS: Final = {"low": 0, "medium": 1, "high": 2}

Decision = Literal["allow", "ask", "deny"]


@dataclass(frozen=True)
class Intent:
    """What a program wants to do, as it says itself: a line of shell, files, an address. `writes` is False if it only
    wants to read the files."""

    tool: str
    command: str = ""
    paths: tuple[str, ...] = ()
    url: str = ""
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    writes: bool = True


@dataclass(frozen=True)
class Judgement:
    """`summary` is for whoever decides, `why` for whoever is refused. `category` is kept when it does not ask."""

    word: Decision
    category: str = ""
    summary: str = ""
    risk: Risk = "low"
    why: str = ""


ALLOWED: Final = Judgement("allow")


def judge(intent: Intent, policy: Policy) -> Judgement:
    """The gravest of what is found."""
    found = [ALLOWED]
    if intent.command.strip():
        found += _Shell(policy).line(intent.command, 0)
    found += (_judge_path(path, policy, writes=intent.writes) for path in intent.paths)
    if intent.url:
        found.append(_judge_address(intent.url, policy))
    return max(found, key=lambda one: (_ORDER[one.word], _RISKS[one.risk], bool(one.category)))


def judge_diff(summary: str, policy: Policy) -> Judgement:
    """Of what `git diff --shortstat` says. A change nobody can read is asked about."""
    files, lines, untracked = (
        sum(map(int, re.findall(rf"\b(\d{{1,9}}) {kind}", summary)))
        for kind in (r"files? changed", r"(?:insertion|deletion)s?\(", r"untracked")
    )
    most = policy.large_diff
    if files + untracked <= most.files and lines <= most.lines:
        return ALLOWED
    why = f"a change of more than {most.files:,} files or {most.lines:,} lines asks first (large_diff)"
    return _asked("large diff", "medium", f"keep a large change: {_shortened(summary)}", why, policy)


class _Shell:
    """A line of shell, with all the lines in it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lines, self._characters = MOST_LINES, MOST_READ

    def line(self, text: str, depth: int) -> Iterator[Judgement]:
        self._lines -= 1
        self._characters -= len(text)
        enough = self._lines < 0 or self._characters < 0
        line = Line((), complete=False) if enough else read_line(text, depth)
        if not line.complete:
            why = "the command could not be read to its end"
            yield _asked("opaque", "medium", f"run {_shortened(text)}", why, self._policy)
        for command in line.commands:
            yield from self._command(command, depth)

    def _command(self, command: Simple, depth: int) -> Iterator[Judgement]:
        words = started(command)
        shown = f"run {_shortened(' '.join([*command.assignments, *(word.text for word in words)]))}"
        yield from _judge_files(command, words, shown, self._policy)
        if not words:
            return
        if starts_unknown(words):
            why = "what it would start is not known before it runs"
            yield _asked("opaque", "medium", shown, why, self._policy)
        if denied := _denied(words, self._policy):
            why = f"the policy denies {denied!r} (shell_deny)"
            yield Judgement("deny", "denied", shown, "high", why)
        for at in starts(words):
            program, rest = program_of(words[at : at + MOST_CARRIED] if at else words)
            handed_on = list(scripts(program, rest, command))
            code = inline(program, rest, command.given)
            rest += fed(words[:at])
            texts = [word.text for word in rest]
            if why := hidden(program, rest, handed_on, code):
                yield _asked("opaque", "medium", shown, why, self._policy)
            for name in filter(None, map(secret_in, code)):
                yield _asked("secrets", "high", shown, f"{_shortened(name)} usually holds secrets", self._policy)
            if rule := found_by_rule(program, texts):
                yield _asked(*rule, shown, f"it is of the kind that asks first: {rule[0]}", self._policy)
            inner = bool(handed_on) and program in SHELLS
            if at == 0 and not inner and not _is_allowed(program, texts, command, self._policy):
                why = "it is none of the commands that the policy allows (shell_allow)"
                yield Judgement("ask", "not allowed", shown, "medium", why)
            for script in handed_on[:MOST_LINES]:
                yield from self.line(script, depth + 1)


def _denied(words: Sequence[Word], policy: Policy) -> str:
    """The pattern that fits it, or whatever it may start, as it is or without the options before its subcommand."""
    if not policy.shell_deny:
        return ""
    for start in sorted({*starts(words), *carried(words)}):
        program, rest = program_of(words[start : start + MOST_CARRIED] if start else words)
        if start and (" " in program or program.startswith("-")):  # If it is a line of shell, it is read as one.
            continue
        texts = [word.text for word in rest]
        forms = [
            " ".join([program, *texts]),
            *(" ".join([program, *texts[at : at + MOST_CARRIED]]) for at in subcommands(texts)),
        ]
        for pattern in policy.shell_deny:
            if any(fnmatch.fnmatchcase(form, pattern) for form in forms):
                return pattern
    return ""


def _is_allowed(program: str, words: Sequence[str], command: Simple, policy: Policy) -> bool:
    """Not with variables set for it, which can make any program do anything."""
    if not policy.shell_allow:
        return True
    line = " ".join([program, *words])
    return not command.assignments and any(fnmatch.fnmatchcase(line, one) for one in policy.shell_allow)


def _judge_files(command: Simple, words: Sequence[Word], shown: str, policy: Policy) -> Iterator[Judgement]:
    """Names of files among the words, and where output goes."""
    for word in (*words[1:], *command.reads, *command.writes):
        for part in (word.text, *re.split(r"[=@:,]", word.text)[:20]):
            if is_secret(part, pattern=word.pattern):
                yield _asked("secrets", "high", shown, f"{_shortened(part)} usually holds secrets", policy)
    changed = list(command.writes)
    program = program_of(words)[0] if words else ""
    if program in _CHANGES_FILES or (
        program in _IN_PLACE and any(re.match(r"-p?i|--in-?place", w.text) for w in words)
    ):
        changed += words[1:]
    for word in changed:
        if is_manifest(word.text.removeprefix("of=")):
            why = f"{_shortened(word.text)} says what the project depends on"
            yield _asked("dependency", "medium", shown, why, policy)


def _judge_path(path: str, policy: Policy, *, writes: bool) -> Judgement:
    shown = f"{'write' if writes else 'read'} {_shortened(path)}"
    # What is searched may be given as patterns, and several.
    if any(is_secret(part, pattern=True) for part in (path, *re.split(r"[\s,]+", path)[:20])):
        return _asked("secrets", "high", shown, f"{_shortened(path)} usually holds secrets", policy)
    if writes and is_manifest(path):
        return _asked("dependency", "medium", shown, f"{_shortened(path)} says what the project depends on", policy)
    return ALLOWED


def _judge_address(url: str, policy: Policy) -> Judgement:
    shown = f"ask {_shortened(url)}"
    try:
        parts = urlsplit(url)
        host = normal_host(parts.hostname) if parts.hostname else ""
    except (ValueError, WebError):
        return _asked("opaque", "medium", shown, "the address could not be read", policy)
    if parts.scheme == "file":
        return _judge_path(unquote(parts.path), policy, writes=False)
    if is_among(host, (*policy.fetch, *policy.hosts)):
        return ALLOWED
    why = f"the policy does not name the host {_shortened(host)!r} (fetch, hosts)"
    return Judgement("deny", "denied", shown, "medium", why)


def _asked(category: str, risk: Risk, summary: str, why: str, policy: Policy) -> Judgement:
    word: Decision = "ask" if category in policy.approve_for else "allow"
    return Judgement(word, category, summary, risk, why)


def _shortened(text: str) -> str:
    text = " ".join(text[: SUMMARY_LIMIT * 4].split())
    return text if len(text) <= SUMMARY_LIMIT else text[: SUMMARY_LIMIT - 1] + "…"
