"""An agent's settings as one value: what is asked to change, what that makes of them, and the words for it.

Nothing here touches the database. What comes out of `Changes.applied` has been checked against the installed
providers, so a mistake is refused when it is made and not when the agent is used."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from adapters.errors import AdapterError
from adapters.policy import PolicyError, parse_policy
from adapters.redaction import process_redactor
from adapters.registry import Registry
from adapters.tools.mcp_pins import check_pinned
from gateway.cli.figures import money
from models.base import AnyRow

DEFAULT = "default"
NONE = "none"
_SECRET = re.compile(r"key|token|secret|password", re.IGNORECASE)
_SHOWN_CHARACTERS = 60


class GroupSettingsError(Exception):
    """A setting of an agent cannot be what was asked for. The text says why."""


@dataclass(frozen=True)
class GroupSettings:
    """`provider` and `model`: None is the fleet's default. Budgets are US dollars per day (UTC)."""

    name: str
    provider: str | None = None
    model: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: AnyRow) -> "GroupSettings":
        return cls(row.name, row.provider, row.model, row.config or {})

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.config.get("provider_options") or {})

    @property
    def fallbacks(self) -> list[str]:
        return list(self.config.get("fallbacks") or [])

    @property
    def budget(self) -> dict[str, float]:
        return dict(self.config.get("budget") or {})

    @property
    def policy(self) -> dict[str, Any]:
        return dict(self.config.get("policy") or {})

    def columns(self) -> dict[str, Any]:
        return {"name": self.name, "provider": self.provider, "model": self.model, "config": dict(self.config)}

    def with_config(self, **parts: Any) -> "GroupSettings":
        """What is empty is left out; what is not ours stays as it is."""
        merged = dict(self.config) | parts
        return replace(self, config={key: value for key, value in merged.items() if value or key not in parts})


@dataclass(frozen=True)
class Changes:
    """What was named on the command line; None: not named. `options`: a value of None removes the option."""

    name: str | None = None
    provider: str | None = None
    model: str | None = None
    fallbacks: tuple[str, ...] | None = None
    budget: Mapping[str, float | None] = field(default_factory=dict)
    options: Mapping[str, "OptionValue | None"] = field(default_factory=dict)
    policy: Mapping[str, Any] | None = None  # empty: back to the default

    @property
    def anything(self) -> bool:
        return self != Changes()

    def applied(self, before: GroupSettings, registry: Registry, default_provider: str) -> GroupSettings:
        """The settings after these changes, checked as far as the changes reach."""
        after = replace(
            before,
            name=self.name if self.name is not None else before.name,
            provider=_unless_default(self.provider, before.provider),
            model=_unless_default(self.model, before.model),
        )
        if self.fallbacks is not None:
            after = after.with_config(fallbacks=list(self.fallbacks))
        if self.budget:
            merged = before.budget | dict(self.budget)
            after = after.with_config(budget={key: usd for key, usd in merged.items() if usd is not None})
        if self.options:
            kept = {key: value for key, value in before.options.items() if key not in self.options}
            named = {key: option.value for key, option in self.options.items() if option is not None}
            after = after.with_config(provider_options=kept | named)
        if self.policy is not None:
            _check_policy(self.policy, registry)
            after = after.with_config(policy=dict(self.policy))
        if not after.name.strip():
            raise GroupSettingsError("--name is empty")
        if self.provider is not None or self.options:
            _check_provider(before, after, registry, default_provider)
        if self.fallbacks is not None or self.provider is not None or self.model is not None:
            _check_fallbacks(after, registry, default_provider)
        return after


@dataclass(frozen=True)
class OptionValue:
    value: Any


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


def parse_budget(option: str, given: str | None) -> float | None:
    """A day's dollars, or None for `none`."""
    if given is None or given.strip().lower() == NONE:
        return None
    try:
        usd = float(given.strip().removeprefix("$"))
    except ValueError:
        raise GroupSettingsError(f"{option} {given!r} is not an amount in US dollars, nor `{NONE}`") from None
    if not math.isfinite(usd) or usd <= 0:
        raise GroupSettingsError(f"{option} must be more than 0; `{NONE}` takes the limit away")
    return usd


def described(settings: GroupSettings, default_provider: str, default_model: str | None) -> list[tuple[str, str]]:
    """The settings in words, a line each. Without markup; texts in it are from outside."""
    provider = settings.provider or f"{default_provider} (the default)"
    model = settings.model or (f"{default_model} (the default)" if default_model else "the provider's own")
    lines = [("name", settings.name), ("provider", provider), ("model", model)]
    lines.append(("fallbacks", ", then ".join(settings.fallbacks) or NONE))
    lines.append(("budget", budget_words(settings.budget) or NONE))
    options = ", ".join(f"{key}={_value_words(key, value)}" for key, value in sorted(settings.options.items()))
    lines.append(("options", options or NONE))
    return [*lines, *(("policy", f"{key}: {_value_words(key, value)}") for key, value in settings.policy.items())]


def budget_words(budget: Mapping[str, float]) -> str:
    parts = []
    if usd := budget.get("daily_usd"):
        parts.append(f"{money(usd)} a day")
    if usd := budget.get("user_daily_usd"):
        parts.append(f"{money(usd)} a day for each person")
    return ", ".join(parts)


def _unless_default(asked: str | None, before: str | None) -> str | None:
    if asked is None:
        return before
    return None if asked == DEFAULT else asked


def _check_provider(before: GroupSettings, after: GroupSettings, registry: Registry, default_provider: str) -> None:
    provider = registry.providers.get(after.provider or default_provider)
    try:
        provider.check(after.options)
    except AdapterError as error:
        left = sorted(set(after.options) & set(before.options))
        if after.provider == before.provider or not left:
            raise
        raise GroupSettingsError(
            f"{error}. Options from before are {', '.join(left)}; take one away with --option {left[0]}="
        ) from error


def _check_fallbacks(after: GroupSettings, registry: Registry, default_provider: str) -> None:
    own = after.provider or default_provider
    seen = {own}
    for fallback in after.fallbacks:
        provider, colon, model = fallback.partition(":")
        registry.providers.get(provider)
        if colon and not model:
            raise GroupSettingsError(f"fallback {fallback!r} names no model after the colon")
        if provider in seen:
            reason = "is the agent's own provider" if provider == own else "names a provider twice"
            raise GroupSettingsError(f"fallback {fallback!r} {reason}: a fallback is another provider")
        seen.add(provider)


def _check_policy(policy: Mapping[str, Any], registry: Registry) -> None:
    try:
        checked = parse_policy({"policy": policy})
        for name, server in checked.mcp_servers.items():
            check_pinned(name, server)
    except PolicyError as error:
        raise GroupSettingsError(str(error)) from None
    for name, server in checked.mcp_servers.items():
        for variable, value in server.env.items():
            if process_redactor().text(value) != value:
                raise GroupSettingsError(
                    f"policy.mcp_servers.{name}.env.{variable} looks like a secret, and policies are kept in rows: set "
                    "LONGSHORE_SECRET_... where the workers run, and write its name here with a $"
                )
    unknown = sorted({*checked.approve, *checked.without} - set(registry.tools.names))
    external = [name for name in unknown if name.partition("__")[0] in checked.mcp_servers]
    if wrong := [name for name in unknown if name not in external]:
        raise GroupSettingsError(f"policy: there is no tool {wrong[0]!r}; see: longshore tools")
    for name, destination in checked.destinations.items():
        if destination.channel_type not in registry.channels.names:
            raise GroupSettingsError(f"policy.destinations.{name}: there is no channel {destination.channel_type!r}")


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


def _value_words(key: str, value: Any) -> str:
    if _SECRET.search(key):
        return "(set)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" in text:
        return f"({len(text.splitlines())} lines)"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
