"""How other people's words stand within ours: on one line, in code marks they cannot leave, with nothing invisible in
them. What an agent wrote must never look like something the fleet says."""

import json
import re
import unicodedata
from typing import Any, Final

NAME_LIMIT: Final = 60
# Without what could be markup, an address or a mention to some platform: a dot only ends a word.
_PLAIN: Final = re.compile(r"(?:[^\W_]|[ ,'-]|\.(?= |$))+")
# Letters and signs that look like nothing at all.
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_LONG_RUNS: Final = re.compile(r" {41,}|`{11,}|\n(?: *+\n){11,}")


def visible(text: str) -> str:
    """Marks that change how a text is shown (directions, joiners, controls) as their numbers; line breaks stay. Long
    runs of nothing, which push what follows out of sight, and of backticks, in which marks around them would get lost,
    are said in words."""
    return _LONG_RUNS.sub(_in_words, "".join(char if _shows(char) else _number(char) for char in text))


def _shows(char: str) -> bool:
    return char in " \n" or (unicodedata.category(char)[0] not in "CZ" and char not in _BLANK)


def _number(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _in_words(run: re.Match[str]) -> str:
    if run[0].startswith("\n"):
        return f"\n⟨{len(run[0].splitlines()) - 1:,} empty lines⟩\n"
    return f"⟨{len(run[0]):,} {'spaces' if run[0].startswith(' ') else 'backticks'}⟩"


def one_line(text: str, limit: int) -> str:
    """As much of it as fits: what somebody said must not look like a line of somebody else's."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def quoted(text: str) -> str:
    """On one line, as Markdown code."""
    line = visible(" ".join(text.split())) or " "
    marks = "`" * (_longest_run(line) + 1)
    space = " " if "`" in line else ""
    return f"{marks}{space}{line}{space}{marks}"


def named(name: str) -> str:
    """What people call themselves: as it is if it is only a name."""
    line = one_line(name, NAME_LIMIT)
    return line if _PLAIN.fullmatch(line.rstrip("…")) else quoted(line)


def fenced_json(value: Any) -> str:
    """The whole of it, for people to read."""
    return fenced(json.dumps(value, indent=2, ensure_ascii=False), "json")


def fenced(text: str, language: str = "") -> str:
    """Line by line, as a block of code that nothing in it can end."""
    text = visible(text)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
