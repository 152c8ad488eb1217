"""Which provider runs a turn: the one its message names, or its task's, or the agent's own, or the next of the agent's
list when that one cannot."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapters.registry import Registry
from models.base import AnyRow
from models.series import DEFAULT_TERMS, Terms
from workers.refusals import RefusedError
from workers.settings import Settings

MAX_MODEL: Final = 200


@dataclass(frozen=True)
class Choice:
    provider: str
    model: str | None = None  # None: the provider's own default
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "Choice":
        """`openai`, or `anthropic:claude-haiku-5-5`. A group's options are for its own provider, not for these."""
        provider, _, model = text.partition(":")
        return cls(provider.strip(), model.strip() or None)

    def __str__(self) -> str:
        """As it is parsed: without the options."""
        return self.provider if self.model is None else f"{self.provider}:{self.model}"


def choices(
    session: AnyRow,
    group: AnyRow,
    settings: Settings,
    terms: Terms = DEFAULT_TERMS,
    named: Choice | None = None,
) -> tuple[Choice, ...]:
    """In the order they are asked, each provider once. `terms`: of the task that the turn is a run of. `named`: whom
    its message names; nobody else is asked then."""
    config = group.config or {}
    provider = session.provider or group.provider or settings.default_provider
    own = Choice(provider, session.model or group.model, config.get("provider_options") or {})
    for wanted in (terms, named):
        if wanted is not None and wanted.provider is not None and wanted.provider != own.provider:
            own = Choice(wanted.provider)
        if wanted is not None and wanted.model is not None:
            own = replace(own, model=wanted.model)
    if own.model is None and own.provider == settings.default_provider:
        # The default model is one of the default provider's; another vendor does not have it.
        own = replace(own, model=settings.default_model)
    if named is not None:
        return (own,)
    offered: dict[str, Choice] = {}
    for choice in [own, *(Choice.parse(str(text)) for text in config.get("fallbacks") or ())]:
        offered.setdefault(choice.provider, choice)
    return tuple(offered.values())


def check_choice(registry: Registry, provider: str | None, model: str | None) -> None:
    """Where somebody names them: what nobody can run would fail as soon as it is tried."""
    if provider is not None and provider not in registry.providers.names:
        installed = ", ".join(registry.providers.names)
        raise RefusedError(f"there is no provider {provider!r} here; installed: {installed}")
    check_model(model)


def check_model(model: str | None) -> None:
    if model is not None and not (0 < len(model) <= MAX_MODEL and model.isprintable()):
        raise RefusedError(f"a model's name has 1 to {MAX_MODEL} characters that can be seen")


def choose(offered: Sequence[Choice], tried: Collection[str], down: Collection[str]) -> Choice:
    """The first that was not given up on and is not known to be down; else the first that was not given up on; else the
    last: there is nobody else to ask."""
    left = [choice for choice in offered if choice.provider not in tried]
    return next((choice for choice in left if choice.provider not in down), left[0] if left else offered[-1])


def after(offered: Sequence[Choice], current: str, tried: Collection[str]) -> Choice | None:
    """Whom to ask when the current one has failed."""
    return next((choice for choice in offered if choice.provider not in {*tried, current}), None)
