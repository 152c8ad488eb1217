"""The options of the `terminal` provider: which program, in a terminal of which size, and when it counts as done."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from adapters.errors import ErrorClass, ProviderError
from adapters.sandbox.terminal import MOST_COLUMNS, MOST_ROWS

MOST_SECONDS: Final = 3600.0


@dataclass(frozen=True)
class Options:
    """`command` is the program and its arguments. `idle_seconds` without a change count as its answer. `prompt_keys`
    are typed after a prompt: Enter, unless the program wants something else."""

    command: tuple[str, ...] = ()
    rows: int = 40
    columns: int = 120
    idle_seconds: float = 5.0
    prompt_keys: str = "\r"

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> "Options":
        """Raises ProviderError, by name, for what is unknown or wrong."""
        have = [field.name for field in fields(cls)]
        if unknown := set(options) - set(have):
            raise _refusal(
                f"the terminal provider has no option {', '.join(sorted(unknown))}; it has: {', '.join(have)}"
            )
        command = options.get("command", [])
        if not isinstance(command, list | tuple) or not all(isinstance(word, str) and word for word in command):
            raise _refusal(f"command: {command!r} is not a list of a program and its arguments, like [bash, -i]")
        for name, most in {"rows": MOST_ROWS, "columns": MOST_COLUMNS}.items():
            value = options.get(name, 2)
            if type(value) is not int or not 2 <= value <= most:
                raise _refusal(f"{name}: {value!r} is not a whole number from 2 to {most}")
        seconds = options.get("idle_seconds", 1)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.1 <= seconds <= MOST_SECONDS:
            raise _refusal(f"idle_seconds: {seconds!r} is not a number from 0.1 to {MOST_SECONDS:g}")
        if not isinstance(options.get("prompt_keys", ""), str):
            raise _refusal(f'prompt_keys: {options["prompt_keys"]!r} is not a text of keys, like "\\r" for Enter')
        return cls(**{**options, "command": tuple(command)})


def _refusal(text: str) -> ProviderError:
    return ProviderError(text, ErrorClass.INVALID_REQUEST)
