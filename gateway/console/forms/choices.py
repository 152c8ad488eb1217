"""On what something can be run: the installed providers and the models each names, for a select. Whoever wants another
model writes its name."""

from adapters.registry import Registry
from workers.refusals import RefusedError


def choices(registry: Registry) -> list[tuple[str, list[str]]]:
    """Each provider that works here, with its models."""
    return [(name, list(driver.manifest.models)) for name, driver in sorted(registry.providers.working.items())]


def chosen(choice: str, other_model: str = "") -> tuple[str | None, str | None]:
    """Provider and model of a select's value; None: as before."""
    provider, _, model = choice.partition(" ")
    named = other_model.strip() or model
    if named and not provider:
        raise RefusedError("a model is one of a provider's: choose the provider too")
    return provider or None, named or None
