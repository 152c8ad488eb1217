"""What the stand-in answers: rules tried in order, each with the replies of one turn.

A script is data. Tests write it in Python (`script(rule("weather", reply(Call("forecast")), "It is {result}"))`), by
hand it comes from a YAML or JSON file of the same shape."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import yaml
from pydantic import BeforeValidator, ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from tests.support.model_api.conversation import Conversation
from tests.support.model_api.faults import Fault

Stop = Literal["end", "tool", "length", "refusal", "filter", "pause"]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class Think:
    """Reasoning: a signed thinking block, an encrypted reasoning item with a summary, or `reasoning_content`."""

    think: str


@dataclass(frozen=True, config=_STRICT)
class Text:
    text: str


@dataclass(frozen=True, config=_STRICT)
class Call:
    """A tool call. Arguments that are a string are sent as they are: models do write broken JSON.

    The name after a ~ is a pattern for the tools that the request offers, as programs add prefixes of their own to the
    names of tools: `Call("~probe$")`. When none fits, the answer says so."""

    call: str
    arguments: dict[str, Any] | str = ""
    id: str | None = None


@dataclass(frozen=True, config=_STRICT)
class Usage:
    """Tokens to report instead of the estimate. `input` is what no cache had a part in, on every wire."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


def _as_part(value: Any) -> Any:
    return Text(value) if isinstance(value, str) else value


def _as_reply(value: Any) -> Any:
    if isinstance(value, str | list):
        return {"parts": [value] if isinstance(value, str) else value}
    return value


Part = Think | Text | Call
_Part = Annotated[Part, BeforeValidator(_as_part)]


@dataclass(frozen=True, config=_STRICT)
class Reply:
    """In texts and string arguments, {text} is the last user text and {result} the last tool result.

    `stop` None is what fits the parts. `model` is echoed from the request unless given. `faults` befall the first
    uses of this reply, one after the other."""

    parts: tuple[_Part, ...]
    stop: Stop | None = None
    usage: Usage = Usage()
    model: str | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, config=_STRICT)
class Rule:
    """`when` is searched in the last user text. Reply k answers the request with k tool rounds behind it.

    After the last reply the script is at an end, which the answer says; with `repeat` it is given for ever."""

    when: str | None = None
    replies: tuple[Annotated[Reply, BeforeValidator(_as_reply)], ...] = ()
    repeat: bool = False
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, config=_STRICT)
class Script:
    rules: tuple[Rule, ...] = ()

    def choose(self, conversation: Conversation) -> tuple[int, Rule, Reply]:
        """The rule's number, the rule and the reply for this request."""
        for number, rule in enumerate((*self.rules, ECHO)):
            if rule.when is None or re.search(rule.when, conversation.text):
                return number, rule, _reply_number(rule, conversation.rounds)
        raise AssertionError("the echo fits everything")


class ReplyOptions(TypedDict, total=False):
    stop: Stop | None
    usage: Usage
    model: str | None
    faults: tuple[Fault, ...]


def reply(*parts: Part | str, **options: Unpack[ReplyOptions]) -> Reply:
    return Reply(parts=tuple(Text(part) if isinstance(part, str) else part for part in parts), **options)


def rule(when: str | None, *replies: Reply | str, repeat: bool = False, faults: Iterable[Fault] = ()) -> Rule:
    made = tuple(reply(one) if isinstance(one, str) else one for one in replies)
    return Rule(when, made, repeat=repeat, faults=tuple(faults))


def script(*rules: Rule) -> Script:
    return Script(rules)


def load_script(path: Path) -> Script:
    """From YAML, of which JSON is a part. A key that means nothing is an error, not ignored."""
    return TypeAdapter(Script).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))


ECHO = rule(None, "You said: {text}", repeat=True)


def _reply_number(rule: Rule, number: int) -> Reply:
    if number < len(rule.replies):
        return rule.replies[number]
    return rule.replies[-1] if rule.repeat else reply(f"The script has no reply {number} for this.")
