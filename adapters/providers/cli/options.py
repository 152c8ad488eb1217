"""A group's options for a CLI agent, refused in words."""

from collections.abc import Mapping
from typing import Any

from adapters.errors import ErrorClass, ProviderError


def check_none(provider: str, options: Mapping[str, Any]) -> None:
    if options:
        raise refusal(f"the {provider} provider has no option {', '.join(sorted(map(str, options)))}; it has none")


def refusal(reason: str) -> ProviderError:
    return ProviderError(reason, ErrorClass.INVALID_REQUEST)
