"""What is known of models, what calls cost, and which options are refused and how."""

from typing import Any

import pytest

from adapters.errors import ErrorClass, ProviderError
from adapters.providers import catalog
from adapters.providers.anthropic import AnthropicProvider
from adapters.providers.catalog import ANTHROPIC, COMPATIBLE, OPENAI, Tokens, Vendor, cost, facts
from adapters.providers.openai import OpenAIProvider

pytestmark = pytest.mark.spec("P3", "P4")


@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI])
def test_the_current_models_are_known(vendor: Vendor) -> None:
    assert vendor.default in vendor.models
    for model in vendor.models:
        known = facts(vendor, model, {})
        assert known.context_tokens >= 200_000
        assert known.input_usd
        assert known.output_usd


@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI])
def test_an_unknown_model_costs_what_the_default_does(vendor: Vendor) -> None:
    used = Tokens(input=10_000, output=1_000, cache_read=5_000)
    unknown, default = facts(vendor, "made-up-9", {}), facts(vendor, vendor.default, {})
    assert (unknown.input_usd, unknown.output_usd) == (default.input_usd, default.output_usd)
    assert unknown.context_tokens == vendor.context_tokens
    assert cost(vendor, "made-up-9", used, {}) == cost(vendor, vendor.default, used, {})


def test_of_a_compatible_server_nobody_knows_the_price() -> None:
    known = facts(COMPATIBLE, "llama5:8b", {})
    assert (known.context_tokens, known.input_usd, known.output_usd) == (32_768, None, None)
    assert cost(COMPATIBLE, "llama5:8b", Tokens(1, 1), {}) is None


@pytest.mark.parametrize("vendor", [ANTHROPIC, OPENAI, COMPATIBLE])
def test_options_overrule_what_is_known(vendor: Vendor) -> None:
    options = {"context_tokens": 5000, "price": {"input": 1, "output": 4.0}}
    known = facts(vendor, vendor.default, options)
    assert (known.context_tokens, known.input_usd, known.output_usd) == (5000, 1, 4.0)
    used = Tokens(input=100, output=1000, cache_read=200, cache_write=300)
    assert cost(vendor, vendor.default, used, options) == pytest.approx((600 * 1 + 1000 * 4) / 1e6)


def test_cached_tokens_have_their_own_price() -> None:
    model = facts(ANTHROPIC, ANTHROPIC.default, {})
    assert model.input_usd is not None
    plain = cost(ANTHROPIC, ANTHROPIC.default, Tokens(input=1_000_000), {})
    read = cost(ANTHROPIC, ANTHROPIC.default, Tokens(cache_read=1_000_000), {})
    written = cost(ANTHROPIC, ANTHROPIC.default, Tokens(cache_write=1_000_000), {})
    assert plain is not None
    assert read is not None
    assert written is not None
    assert plain == pytest.approx(model.input_usd)
    assert read < plain < written


@pytest.mark.parametrize(("value", "count"), [(7, 7), (0, 0), (-1, 0), (None, 0), ("7", 0), (True, 0), (1.5, 0)])
def test_counts_of_careless_servers(value: object, count: int) -> None:
    assert catalog.tokens(value) == count


GOOD: list[dict[str, Any]] = [
    {},
    {"thinking": "off", "max_tokens": 1, "context_tokens": 1000, "iterations": 1000},
    {"price": {"input": 0, "output": 1.5}},
]


@pytest.mark.parametrize("options", GOOD)
def test_good_options_are_taken(options: dict[str, Any]) -> None:
    AnthropicProvider().check(options)
    OpenAIProvider().check({**options, "api": "chat"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"temperature": 1}, "has no option temperature; it has:"),
        ({"thinking": "deep"}, "thinking: 'deep' is not one of off, low, medium, high"),
        ({"thinking": ["low"]}, "thinking: ['low'] is not one of"),
        ({"max_tokens": 0}, "max_tokens: 0 is not a whole number from 1 to"),
        ({"max_tokens": "9"}, "max_tokens: '9' is not a whole number"),
        ({"max_tokens": True}, "max_tokens: True is not a whole number"),
        ({"context_tokens": 1.5}, "context_tokens: 1.5 is not a whole number"),
        ({"iterations": 1001}, "iterations: 1001 is not a whole number from 1 to 1000"),
        ({"price": 3}, "price: 3 is not like"),
        ({"price": {"input": 1}}, "price: {'input': 1} is not like"),
        ({"price": {"input": -1, "output": 1}}, "is not like"),
        ({"price": {"input": float("nan"), "output": 1}}, "is not like"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], told: str) -> None:
    for provider in (AnthropicProvider(), OpenAIProvider()):
        with pytest.raises(ProviderError) as caught:
            provider.check(options)
        assert told in str(caught.value)
        assert caught.value.error_class is ErrorClass.INVALID_REQUEST


def test_only_openai_has_two_apis() -> None:
    with pytest.raises(ProviderError, match="api: 'soap' is not one of responses, chat"):
        OpenAIProvider().check({"api": "soap"})
    with pytest.raises(ProviderError, match="has no option api"):
        AnthropicProvider().check({"api": "chat"})
