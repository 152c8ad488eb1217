"""An agent's settings as one value: what is asked to change, and what that makes of them.

Nothing here touches the database. What comes out of `Changes.applied` has been checked against the installed
providers, so a mistake is refused when it is made and not when the agent is used."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapters.errors import AdapterError
from adapters.policy import PolicyError, parse_policy
from adapters.redaction import process_redactor
from adapters.registry import Registry
from adapters.tools.mcp_pins import check_pinned
from models.base import AnyRow
from workers.refusals import RefusedError

DEFAULT: Final = "default"
NONE: Final = "none"
MAX_NAME: Final = 200  # characters, as the columns have it
HIDDEN: Final = "(set)"  # shown instead of what may be a secret
_NAMED: Final = r"(?:key|token(?!s)|secret|passw|passphrase|credential|auth(?!or)|authoriz|bearer|cookie)"
_SECRET: Final = re.compile(_NAMED, re.IGNORECASE)
# `--api-key` (what follows is one), and `--token=...` or `?key=...` within a text.
_FLAG: Final = re.compile(rf"--?[\w-]*{_NAMED}[\w-]*", re.IGNORECASE)
_ASSIGNED: Final = re.compile(rf"((?:^-|[-?&;\s])[\w-]*{_NAMED}[\w-]*=)[^&;\s]+", re.IGNORECASE)
_LEFT: Final = re.compile(rf"{_NAMED}[\w-]*={re.escape(HIDDEN)}", re.IGNORECASE)


class GroupSettingsError(RefusedError):
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
    """What was named; None: not named. `options`: a value of None removes the option."""

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
            for key, value in named.items():
                _check_known(f"option {key}", value)
            after = after.with_config(provider_options=kept | named)
        if self.policy is not None:
            _check_known("policy", self.policy)
            _check_policy(self.policy, registry)
            after = after.with_config(policy=dict(self.policy))
        if not after.name.strip():
            raise GroupSettingsError("the name is empty")
        for what, text in (("the name", after.name), ("the model", after.model or "")):
            if len(text) > MAX_NAME:
                raise GroupSettingsError(f"{what} has {len(text)} characters; at most {MAX_NAME} are taken")
        if self.provider is not None or self.options:
            _check_provider(before, after, registry, default_provider)
        if self.fallbacks is not None or self.provider is not None or self.model is not None:
            _check_fallbacks(after, registry, default_provider)
        return after


@dataclass(frozen=True)
class OptionValue:
    value: Any


def is_secret(name: str) -> bool:
    """Whether what has that name is not shown."""
    return _SECRET.search(name) is not None


def without_secrets(value: Any) -> Any:
    """Settings as they may be shown: what has the name of a secret, or looks like one, is hidden."""
    match value:
        case dict():
            return {key: HIDDEN if is_secret(str(key)) else without_secrets(item) for key, item in value.items()}
        case list():
            before = [None, *value]
            return [
                HIDDEN if _is_flag(flag) else without_secrets(item) for flag, item in zip(before, value, strict=False)
            ]
        case str():
            # Arguments and addresses; what has lines is no such thing.
            plain = value if "\n" in value else _ASSIGNED.sub(rf"\1{HIDDEN}", value)
            return process_redactor().text(plain)
        case _:
            return value


def with_secrets(typed: Any, before: Any) -> Any:
    """Settings that were shown without their secrets, changed and given back: what stands there as it was shown is what
    it was before."""
    return _restored(typed, without_secrets(before), before)


def _restored(typed: Any, shown: Any, before: Any) -> Any:
    if typed == shown:
        return before
    match typed, shown:
        case dict(), dict():
            return {k: _restored(item, shown[k], before[k]) if k in shown else item for k, item in typed.items()}
        case list(), list() if len(typed) == len(shown):
            return [_restored(*three) for three in zip(typed, shown, before, strict=True)]
        case _:
            return typed


def _is_flag(item: Any) -> bool:
    return isinstance(item, str) and _FLAG.fullmatch(item) is not None


def _check_known(what: str, value: Any) -> None:
    """GroupSettingsError: somewhere in it stands what is only shown instead of a secret."""
    match value:
        case dict():
            for name, item in value.items():
                _check_known(f"{what}.{name}", item)
        case list():
            for item in value:
                _check_known(what, item)
        case str() if value == HIDDEN or _LEFT.search(value):
            raise GroupSettingsError(f"{what}: {HIDDEN} is only what is shown instead of its value")


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
            f"{error}. Options from before are {', '.join(left)}; take one away with --option {left[0]}= (JSON: null)"
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


def parse_budget(what: str, given: str | None) -> float | None:
    """A day's dollars as they are typed, or None for `none`."""
    if given is None or given.strip().lower() == NONE:
        return None
    try:
        usd = float(given.strip().removeprefix("$"))
    except ValueError:
        raise GroupSettingsError(f"{what} {given!r} is not an amount in US dollars, nor `{NONE}`") from None
    if not math.isfinite(usd) or usd <= 0:
        raise GroupSettingsError(f"{what} must be more than 0; `{NONE}` takes the limit away")
    return usd
