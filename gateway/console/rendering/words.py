"""How the console says things: spans of time, money, ids, and states in words. Filters of its templates."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from gateway.console.rendering.markdown import markdown
from gateway.console.rendering.texts import brief, exactly, marked, spoken
from gateway.figures import money, span, tokens
from gateway.session_words import doing
from models.lookup import short

# How good or bad a state is, for its colour; what is not named here is quiet.
_TONES: Final = {
    "ok": {"completed", "delivered", "ok", "approved", "answered", "finished", "active", "ready"},
    "busy": {"running", "processing", "sending", "started"},
    "warn": {"waiting", "parked", "paused", "limited", "unknown", "expired", "pending"},
    "bad": {"failed", "down", "denied", "dead", "missing"},
}
_TONE_OF: Final = {state: tone for tone, states in _TONES.items() for state in states}


def tone(state: str | None) -> str:
    return _TONE_OF.get(state or "", "quiet")


def ago(moment: datetime | None) -> str:
    """How long ago, or how soon."""
    if moment is None:
        return "never"
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if abs(seconds) < 1.5:
        return "just now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def duration(seconds: float | None) -> str:
    """Short ones with a digit after the point."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


def since(moment: datetime | None) -> str:
    return "–" if moment is None else span((datetime.now(UTC) - moment).total_seconds())


def apart(moment: datetime) -> str:
    """How long ago, or how far ahead, for words around it that say which."""
    return span(abs((datetime.now(UTC) - moment).total_seconds()))


def until(moment: datetime | None) -> str:
    """How long from now; nothing is left of what is past."""
    return "–" if moment is None else span(max((moment - datetime.now(UTC)).total_seconds(), 0.0))


def instant(moment: datetime | None) -> str:
    """Whole, for the `title` of a shorter word."""
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def usd(amount: float | None) -> str:
    """None: nobody knows the price."""
    return "–" if amount is None else money(amount)


def sentence(text: str) -> str:
    """As the beginning of one."""
    return text[:1].upper() + text[1:]


def pretty(value: Any) -> str:
    """What a tool was given or gave back. It is escaped like any text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def plainly(value: Any) -> str:
    """A detail of something done, without the signs of JSON: `yes`, `a, b`, `sticky: yes`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(plainly(one) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{name}: {plainly(one)}" for name, one in value.items())
    return str(value)


def in_shell(name: str) -> str:
    """One word of a command that somebody copies, whatever is in it; always in quotes."""
    return "'" + name.replace("'", "'\"'\"'") + "'"


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "ago": ago,
    "apart": apart,
    "brief": brief,
    "doing": doing,
    "duration": duration,
    "exactly": exactly,
    "in_shell": in_shell,
    "instant": instant,
    "markdown": markdown,
    "marked": marked,
    "money": usd,
    "plainly": plainly,
    "pretty": pretty,
    "sentence": sentence,
    "short": short,
    "since": since,
    "spoken": spoken,
    "tokens": tokens,
    "tone": tone,
    "until": until,
}
