"""On what terms a task is run: what is allowed, and how it is said."""

import math
from dataclasses import replace
from typing import Any, Final

from adapters.registry import Registry
from adapters.task_limits import MAX_JITTER, MAX_PAUSE_AFTER, MAX_SCRIPT, MAX_USD, MIN_USD
from models.base import storable
from models.series import CATCH_UPS, DEFAULT_TERMS, OVERLAPS, Terms
from scheduler.words import duration
from workers.refusals import RefusedError

MAX_NAME: Final = 100
_MISSED: Final = {"skip": "none is made up for", "one": "one run makes up for all", "all": "each is made up for"}
_OVERLAPPING: Final = {"skip": "passed over", "queue": "run afterwards"}


def changed_terms(terms: Terms, **changes: Any) -> Terms:
    """With those changes, checked. An empty script is none."""
    if "script" in changes:
        script = changes["script"] or ""
        changes["script"] = script if script.strip() else None
    terms = replace(terms, **changes)
    check_terms(terms)
    return terms


def check_terms(terms: Terms) -> None:
    _check(terms.catch_up in CATCH_UPS, f"catch-up is one of {', '.join(CATCH_UPS)}")
    _check(terms.overlap in OVERLAPS, f"overlap is one of {', '.join(OVERLAPS)}")
    _check(0 <= terms.jitter_seconds <= MAX_JITTER, f"jitter is from 0 to {MAX_JITTER} seconds (a day)")
    _check(0 <= terms.pause_after <= MAX_PAUSE_AFTER, f"pause-after is from 0 (never) to {MAX_PAUSE_AFTER} failures")
    usd = terms.daily_usd
    _check(usd is None or MIN_USD <= usd <= MAX_USD, f"daily USD is from {MIN_USD} to {MAX_USD:,}")
    script = terms.script or ""
    _check(len(script) <= MAX_SCRIPT, f"the script has {len(script)} characters; at most {MAX_SCRIPT} are taken")
    _check(storable(script) == script, "the script has characters in it that are no text")
    for name in (terms.provider, terms.model):
        _check(name is None or (0 < len(name) <= MAX_NAME and name.isprintable()), f"{name!r} is no name")


def is_looser(terms: Terms, than: Terms) -> bool:
    """Whether it may cost more in a day, or fail more often before it pauses."""
    return (terms.daily_usd or math.inf) > (than.daily_usd or math.inf) or (
        (terms.pause_after or math.inf) > (than.pause_after or math.inf)
    )


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RefusedError(otherwise)


def check_provider(registry: Registry, terms: Terms) -> None:
    """Where it is set: a task for a provider that nobody has would fail at each of its dates."""
    if terms.provider is not None and terms.provider not in registry.providers.names:
        installed = ", ".join(registry.providers.names)
        raise RefusedError(f"there is no provider {terms.provider!r} here; installed: {installed}")


def conditions(terms: Terms) -> list[str]:
    """What is not as usual, a few words each."""
    usual = DEFAULT_TERMS
    said = {
        f"missed dates: {_MISSED[terms.catch_up]}": terms.catch_up != usual.catch_up,
        f"dates that come while it runs: {_OVERLAPPING[terms.overlap]}": terms.overlap != usual.overlap,
        f"begins up to {duration(terms.jitter_seconds)} later": terms.jitter_seconds > 0,
        "never pauses by itself": terms.pause_after == 0,
        f"pauses after {terms.pause_after} failures in a row": terms.pause_after not in (0, usual.pause_after),
        f"at most {terms.daily_usd or 0:g} USD a day": terms.daily_usd is not None,
        f"provider {terms.provider}": terms.provider is not None,
        f"model {terms.model}": terms.model is not None,
        "a script is run first": terms.script is not None,
    }
    return [words for words, applies in said.items() if applies]
