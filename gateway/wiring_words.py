"""To what an agent listens in a place, in words: for the lists of the command line and the console."""

from typing import Final

from models.base import AnyRow

_AT_WORK: Final = {
    "interrupt": "is interrupted by more",
    "separate": "takes more one by one",
    "reject": "refuses more while at work",
}


def wiring_words(row: AnyRow) -> str:
    """Patterns and names in it are from outside."""
    rules, triggered = row.trigger_rules or {}, row.response_scope == "triggered"
    words = [f"what matches {rules['pattern']!r}"] if rules.get("pattern") else []
    words += ["mentions"] if rules.get("mentionOnly") else []
    words += [f"only {', '.join(map(str, rules['includeSenders']))}"] if rules.get("includeSenders") else []
    words = words or ["mentions" if triggered else "everything"]
    words += [f"not {', '.join(map(str, rules['excludeSenders']))}"] if rules.get("excludeSenders") else []
    words += ["follows threads"] if rules.get("sticky") else []
    words += ["overhears the rest"] if triggered else []
    words += [_AT_WORK[row.follow_up]] if row.follow_up in _AT_WORK else []
    return "; ".join(words)
