"""A group's options for a CLI agent, refused in words.

`price` is what a model costs on a server of one's own: without it, nobody knows what such a turn costs."""

from collections.abc import Mapping
from typing import Any

from adapters.errors import ErrorClass, ProviderError
from adapters.providers import catalog


def check_known(provider: str, options: Mapping[str, Any], *have: str) -> None:
    """Refuse what it does not have, and wrong values of those that API providers have as well (`price`)."""
    if unknown := sorted(set(map(str, options)) - set(have)):
        they = ", ".join(have)
        raise refusal(
            f"the {provider} provider has no option {', '.join(unknown)}; it has{f': {they}' if they else ' none'}"
        )
    check_shared(provider, options)


def check_shared(provider: str, options: Mapping[str, Any]) -> None:
    catalog.check_options(provider, {name: options[name] for name in catalog.OPTIONS if name in options})


def check_none(provider: str, options: Mapping[str, Any]) -> None:
    check_known(provider, options)


def refusal(reason: str) -> ProviderError:
    return ProviderError(reason, ErrorClass.INVALID_REQUEST)
