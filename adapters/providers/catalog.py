"""What is known of models: the defaults, the current ones, how much they read and what they cost; and the options every
API provider has. Prices come from genai-prices; a group's options overrule all of it. Knows no SDK and no network."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from adapters.errors import ErrorClass, ProviderError
from adapters.events import UsageReport
from adapters.model_port import ModelFacts

MAX_ITERATIONS: Final = 1000
MAX_TOKENS: Final = 10_000_000  # more than any model reads or writes: whoever gives more has mistyped
MAX_COUNT: Final = 2**53
MAX_PRICE: Final = 100_000.0  # US dollars per million tokens
THINKING: Final = ("off", "low", "medium", "high")
OPTIONS: Final = ("thinking", "max_tokens", "context_tokens", "price", "iterations")


@dataclass(frozen=True)
class Vendor:
    """`priced_as` is its name in genai-prices; without one, nobody knows what a call costs. A model nobody knows costs
    what `default` does, and reads `context_tokens`."""

    default: str
    models: tuple[str, ...]
    context_tokens: int
    priced_as: str | None


ANTHROPIC: Final = Vendor(
    default="claude-sonnet-5-5",
    models=("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"),
    context_tokens=200_000,
    priced_as="anthropic",
)
OPENAI: Final = Vendor(
    default="gpt-6.1-terra",
    models=("gpt-6-astra", "gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-sol", "gpt-6-luna", "gpt-5.4-mini"),
    context_tokens=128_000,
    priced_as="openai",
)
COMPATIBLE: Final = Vendor(default=OPENAI.default, models=OPENAI.models, context_tokens=32_768, priced_as=None)


@dataclass(frozen=True)
class Tokens:
    """What a call used. `input` is what no cache took part in."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


def facts(vendor: Vendor, model: str, options: Mapping[str, Any]) -> ModelFacts:
    known = _known(vendor.priced_as, model)
    usual = known or _known(vendor.priced_as, vendor.default) or ModelFacts(0)
    price = options.get("price") or {"input": usual.input_usd, "output": usual.output_usd}
    return ModelFacts(
        context_tokens=options.get("context_tokens") or (known.context_tokens if known else 0) or vendor.context_tokens,
        input_usd=price["input"],
        output_usd=price["output"],
    )


def cost(vendor: Vendor, model: str, used: Tokens, options: Mapping[str, Any]) -> float | None:
    """US dollars. With the option `price`, cached tokens count as input: too much rather than too little."""
    everything_read = used.input + used.cache_read + used.cache_write
    if price := options.get("price"):
        return (everything_read * float(price["input"]) + used.output * float(price["output"])) / 1_000_000
    if vendor.priced_as is None:
        return None
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=everything_read,
        output_tokens=used.output,
        cache_read_tokens=used.cache_read,
        cache_write_tokens=used.cache_write,
    )
    for name in (model, vendor.default):
        try:
            return float(calc_price(usage, name, provider_id=vendor.priced_as).total_price)
        except (LookupError, ValueError):  # not a model it knows, or not one with a price for this
            continue
    return None


def usage_report(vendor: Vendor, model: str, used: Tokens, options: Mapping[str, Any]) -> UsageReport:
    return UsageReport(
        model=model,
        input_tokens=used.input,
        output_tokens=used.output,
        cache_read_tokens=used.cache_read,
        cache_write_tokens=used.cache_write,
        cost_usd=cost(vendor, model, used, options),
    )


def tokens(value: object) -> int:
    """A count as a vendor reported it: a server that leaves one out or writes nonsense costs nobody an answer."""
    return min(value, MAX_COUNT) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


@lru_cache(maxsize=256)
def _known(priced_as: str | None, model: str) -> ModelFacts | None:
    if priced_as is None:
        return None
    # Slow to import, and the command line needs none of it.
    from genai_prices import Usage, calc_price

    try:
        # Asked for a thousand tokens: for a million, prices in steps would give the highest one.
        found = calc_price(Usage(input_tokens=1000, output_tokens=1000), model, provider_id=priced_as)
    except (LookupError, ValueError):
        return None
    return ModelFacts(
        context_tokens=found.model.context_window or 0,
        input_usd=float(found.input_price * 1000),
        output_usd=float(found.output_price * 1000),
    )


def check_options(provider: str, options: Mapping[str, Any], **choices: tuple[str, ...]) -> None:
    """Refuse what is unknown or wrong, by name. `choices` are the provider's own options and what they may be."""
    have = sorted({*OPTIONS, *choices})
    if unknown := set(options) - set(have):
        raise _refusal(f"the {provider} provider has no option {', '.join(sorted(unknown))}; it has: {', '.join(have)}")
    for name, allowed in {"thinking": THINKING, **choices}.items():
        if name in options and options[name] not in allowed:
            raise _refusal(f"{name}: {options[name]!r} is not one of {', '.join(allowed)}")
    for name, most in {"max_tokens": MAX_TOKENS, "context_tokens": MAX_TOKENS, "iterations": MAX_ITERATIONS}.items():
        if name in options and not (type(options[name]) is int and 1 <= options[name] <= most):
            raise _refusal(f"{name}: {options[name]!r} is not a whole number from 1 to {most}")
    if "price" in options and not _is_price(options["price"]):
        example = "{'input': 3.0, 'output': 15.0}, in US dollars per million tokens"
        raise _refusal(f"price: {options['price']!r} is not like {example}")


def _is_price(given: object) -> bool:
    return (
        isinstance(given, Mapping)
        and set(given) == {"input", "output"}
        and all(type(usd) in (int, float) and 0 <= usd <= MAX_PRICE for usd in given.values())
    )


def _refusal(reason: str) -> ProviderError:
    return ProviderError(reason, ErrorClass.INVALID_REQUEST)
