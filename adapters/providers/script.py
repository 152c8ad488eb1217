"""The language of scripts: what the `scripted` provider plays, read and checked before it is used.

A script is a plain text (the answer), or a YAML list of scenes, each with an optional `when` (a
regular expression on what was asked) and a `play` list of acts. The first scene that fits is played.
`docs/scripted.md` shows all acts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.errors import ErrorClass, ScriptError
from adapters.events import UsageReport


class _Act(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Say(_Act):
    """Text on the way: deltas, then a Message."""

    say: str


class Answer(_Act):
    """Deltas, then a Result."""

    answer: str


class Think(_Act):
    think: str


class Report(_Act):
    progress: str


class UseTool(_Act):
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")


class Wait(_Act):
    """Seconds of silence."""

    wait: float = Field(ge=0, le=86_400)


class Listen(_Act):
    """Wait for a follow-up, at most so many seconds; it becomes {text}."""

    listen: float = Field(gt=0, le=86_400)


class Touch(_Act):
    """Write a file into the working directory."""

    touch: str = Field(pattern=r"^[\w.-]+$")


class Spend(_Act):
    usage: UsageReport


class Failure(_Act):
    message: str = "the script says so"
    error_class: ErrorClass = Field(ErrorClass.INTERNAL, alias="class")
    retry_after: float | None = Field(None, ge=0)


class Fail(_Act):
    """End with an error; `until_attempt` lets later attempts pass this act."""

    fail: Failure
    until_attempt: int | None = None


class Crash(_Act):
    """Raise something nobody expects."""

    crash: Literal[True]
    until_attempt: int | None = None


class Hang(_Act):
    """Never say anything again."""

    hang: Literal[True]


class Approval(_Act):
    category: str
    summary: str
    risk: Literal["low", "medium", "high"] = "medium"


class AskApproval(_Act):
    approval: Approval


Act = Say | Answer | Think | Report | UseTool | Wait | Listen | Touch | Spend | Fail | Crash | Hang | AskApproval


@dataclass(frozen=True)
class Scene:
    play: tuple[Act, ...]
    when: str | None = None

    def fits(self, asked: str) -> bool:
        return self.when is None or re.search(self.when, asked, re.IGNORECASE) is not None


# After blank lines and comments: a list whose first item has `when` or `play`. Anything else is a text to say.
_IS_YAML = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*- +(?:when|play)[ \t]*:")
_ACTS: dict[str, type[_Act]] = {
    "say": Say,
    "answer": Answer,
    "think": Think,
    "progress": Report,
    "tool": UseTool,
    "wait": Wait,
    "listen": Listen,
    "touch": Touch,
    "usage": Spend,
    "fail": Fail,
    "crash": Crash,
    "hang": Hang,
    "approval": AskApproval,
}


@lru_cache(maxsize=64)
def parse_script(source: str) -> tuple[Scene, ...]:
    """Read a script; ScriptError says which scene and act is wrong."""
    if not _IS_YAML.match(source):
        return (Scene(play=(Answer(answer=source),)),)
    try:
        loaded = yaml.safe_load(source)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark else ""
        raise ScriptError(f"the script is not YAML{place}: {getattr(error, 'problem', None) or error}") from None
    except ValueError as error:  # a date that is none
        raise ScriptError(f"the script is not YAML: {error}") from None
    if not isinstance(loaded, list):
        raise ScriptError("a script is a text, or a list of scenes with `play:` (and `when:`)")
    return tuple(_scene(number, scene) for number, scene in enumerate(loaded, 1))


def _scene(number: int, given: Any) -> Scene:
    if not isinstance(given, Mapping) or not isinstance(given.get("play"), list):
        raise ScriptError(f"scene {number} needs a `play:` list of acts")
    if unknown := set(given) - {"when", "play"}:
        raise ScriptError(f"scene {number} has `{unknown.pop()}`, but only `when` and `play` mean something")
    when = given.get("when")
    try:
        re.compile(when or "")
    except (re.error, TypeError) as error:
        raise ScriptError(f"scene {number}: `when: {when}` is not a regular expression ({error})") from None
    acts = [_act(f"scene {number}, act {position}", act) for position, act in enumerate(given["play"], 1)]
    return Scene(when=when, play=tuple(acts))


def _act(place: str, given: Any) -> Any:
    names = [name for name in _ACTS if isinstance(given, Mapping) and name in given]
    if len(names) != 1:
        raise ScriptError(f"{place} ({given!r}) is not one of: {', '.join(sorted(_ACTS))}")
    try:
        return _ACTS[names[0]].model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ScriptError(f"{place}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def choose_scene(scenes: tuple[Scene, ...], asked: str) -> Scene | None:
    return next((scene for scene in scenes if scene.fits(asked)), None)
