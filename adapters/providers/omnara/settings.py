"""Which agent of which Omnara project is asked, and with which key: from an agent's options, else from the environment.

The key comes from the environment alone and is never shown."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.credentials import Credentials

KEY: Final = "OMNARA_API_KEY"
BASE_URL: Final = "OMNARA_BASE_URL"
DEFAULT_URL: Final = "https://api.omnara.com/v1"
# What an option is called, the variable that stands in for it, and how an id of its kind begins.
PLACES: Final = {
    "org": ("OMNARA_ORG", "org_"),
    "project": ("OMNARA_PROJECT", "proj_"),
    "config": ("OMNARA_CONFIG", "acfg_"),
}
_ID: Final = re.compile(r"[a-z]+_[a-z0-9]{1,64}")


@dataclass(frozen=True)
class Place:
    """`config` is the agent configuration that is launched: model, instructions and tools are set in Omnara."""

    org: str
    project: str
    config: str


def credentials() -> Credentials:
    return Credentials(KEY, _read(BASE_URL).rstrip("/") or DEFAULT_URL, _read(KEY))


def check_options(options: Mapping[str, Any]) -> None:
    if unknown := set(options) - set(PLACES):
        raise _refused(f"omnara has no option {', '.join(sorted(unknown))}; it has: {', '.join(PLACES)}")
    for name, value in options.items():
        start = PLACES[name][1]
        if not is_id(value, start):
            raise _refused(f"{name}: {value!r} is no id of Omnara; it begins with {start}")


def place(options: Mapping[str, Any]) -> Place:
    found = {name: str(options.get(name) or _read(variable)) for name, (variable, _) in PLACES.items()}
    if missing := [name for name, value in found.items() if not value]:
        words = " and ".join(f"the option {name} (or {PLACES[name][0]})" for name in missing)
        raise _refused(f"omnara is not told which agent to launch: set {words}")
    check_options(found)
    return Place(**found)


def is_id(value: object, start: str) -> bool:
    """Ids go into addresses, so nothing else does."""
    return isinstance(value, str) and value.startswith(start) and _ID.fullmatch(value) is not None


def _refused(message: str) -> ProviderError:
    return ProviderError(message, ErrorClass.INVALID_REQUEST)


def _read(variable: str) -> str:
    return os.environ.get(variable, "").strip()
