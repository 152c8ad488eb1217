"""What the descriptions of ACP programs have in common: finding the program, and refusing options in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.cli.installation import Inspection, find, inspect


def check_none(provider: str, options: Mapping[str, Any]) -> None:
    if options:
        raise refusal(f"the {provider} provider has no option {', '.join(sorted(map(str, options)))}; it has none")


def refusal(reason: str) -> ProviderError:
    return ProviderError(reason, ErrorClass.INVALID_REQUEST)


async def inspected(program: str, help_of: Sequence[str] = ()) -> Inspection:
    installation = find(program)
    if installation is None:
        raise refusal(f"there is no program `{program}`: run `make clis`, or install it on the PATH")
    try:
        return await inspect(installation, help_of)
    except OSError as error:
        raise ProviderError(f"{program} does not run: {error}", ErrorClass.INTERNAL) from error
