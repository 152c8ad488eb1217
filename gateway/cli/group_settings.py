"""What is typed about an agent's settings, and the words in which they are shown. What they may be is decided by
`workers/operations/group_settings.py`."""

import json
from collections.abc import Sequence
from typing import Any

import yaml

from gateway.figures import budget_words
from workers.operations.group_settings import NONE, GroupSettings, GroupSettingsError, OptionValue, without_secrets

_SHOWN_CHARACTERS = 60


def parse_options(given: Sequence[str]) -> dict[str, OptionValue | None]:
    """KEY=VALUE, with VALUE in JSON or YAML; KEY= removes the option."""
    options: dict[str, OptionValue | None] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise GroupSettingsError(f"--option {text!r} is not KEY=VALUE")
        options[key.strip()] = OptionValue(_parse_value(text, value)) if value.strip() else None
    return options


def parse_policy_file(text: str) -> dict[str, Any]:
    """The policy in a YAML or JSON file; what it says is checked when it is applied."""
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise GroupSettingsError(f"--policy: the file does not read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(loaded, dict):
        raise GroupSettingsError("--policy: the file must hold a mapping, for example `commands: [git, python3]`")
    return loaded


def described(settings: GroupSettings, default_provider: str, default_model: str | None) -> list[tuple[str, str]]:
    """The settings in words, a line each. Without markup, and without secrets; texts in it are from outside."""
    provider = settings.provider or f"{default_provider} (the default)"
    model = settings.model or (f"{default_model} (the default)" if default_model else "the provider's own")
    lines = [("name", settings.name), ("provider", provider), ("model", model)]
    lines.append(("fallbacks", ", then ".join(settings.fallbacks) or NONE))
    lines.append(("budget", budget_words(settings.budget) or NONE))
    options, policy = without_secrets(settings.options), without_secrets(settings.policy)
    lines.append(("options", ", ".join(f"{key}={_value_words(options[key])}" for key in sorted(options)) or NONE))
    return [*lines, *(("policy", f"{key}: {_value_words(value)}") for key, value in policy.items())]


def _parse_value(option: str, text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=lambda _: text)
    except ValueError:
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise GroupSettingsError(f"--option {option!r}: the value is neither JSON nor YAML") from None
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):  # a date, or an infinity: text to a provider
        return text
    return value


def _value_words(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" in text:
        return f"({len(text.splitlines())} lines)"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
