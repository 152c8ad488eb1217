"""Changing an agent's settings: only what is named changes, and what cannot work is refused with a reason."""

from typing import Any

import pytest

from adapters.errors import AdapterError
from adapters.registry import Registry
from gateway.cli.group_settings import described, parse_options
from workers.operations.group_settings import (
    HIDDEN,
    Changes,
    GroupSettings,
    GroupSettingsError,
    OptionValue,
    parse_budget,
    without_secrets,
)

pytestmark = pytest.mark.spec("G4", "P20", "P21")

BEFORE = GroupSettings(
    "Helper",
    "anthropic",
    "claude-haiku-5-5",
    {
        "provider_options": {"thinking": "low", "max_tokens": 100},
        "fallbacks": ["openai"],
        "budget": {"daily_usd": 5.0, "user_daily_usd": 1.0},
        "somebody_elses": {"kept": True},
    },
)


def apply(changes: Changes, before: GroupSettings = BEFORE) -> GroupSettings:
    return changes.applied(before, Registry(), "scripted")


def test_nothing_named_changes_nothing() -> None:
    assert not Changes().anything
    assert apply(Changes()) == BEFORE


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        (Changes(fallbacks=()), "fallbacks", None),
        (Changes(fallbacks=("scripted", "openai:gpt-6-sol")), "fallbacks", ["scripted", "openai:gpt-6-sol"]),
        (Changes(budget={"daily_usd": None}), "budget", {"user_daily_usd": 1.0}),
        (Changes(budget={"daily_usd": 7.5}), "budget", {"daily_usd": 7.5, "user_daily_usd": 1.0}),
        (Changes(budget={"daily_usd": None, "user_daily_usd": None}), "budget", None),
        (Changes(options={"max_tokens": None}), "provider_options", {"thinking": "low"}),
        (
            Changes(options={"max_tokens": OptionValue(7)}),
            "provider_options",
            {"thinking": "low", "max_tokens": 7},
        ),
    ],
)
def test_one_part_changes_and_the_rest_stays(changes: Changes, key: str, value: Any) -> None:
    after = apply(changes)
    assert after.config.get(key) == value
    assert {k: v for k, v in after.config.items() if k != key} == {k: v for k, v in BEFORE.config.items() if k != key}
    assert (after.name, after.provider, after.model) == ("Helper", "anthropic", "claude-haiku-5-5")


def test_default_goes_back_to_the_fleets() -> None:
    after = apply(Changes(provider="default", model="default", options={"thinking": None, "max_tokens": None}))
    assert (after.provider, after.model) == (None, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (Changes(name=" "), "the name is empty"),
        (Changes(provider="gpt"), "there is no provider 'gpt' here; installed: acp, anthropic"),
        (Changes(fallbacks=("gpt",)), "there is no provider 'gpt' here"),
        (Changes(fallbacks=("openai", "openai")), "fallback 'openai' names a provider twice"),
        (Changes(fallbacks=("anthropic",)), "fallback 'anthropic' is the agent's own provider"),
        (Changes(fallbacks=("anthropic:claude-haiku-5-5",)), "is the agent's own provider"),
        (Changes(fallbacks=("openai:",)), "names no model after the colon"),
        (Changes(provider="openai", model="default"), "fallback 'openai' is the agent's own provider"),
        (Changes(provider="scripted"), "take one away with --option max_tokens="),
        (Changes(options={"max_tokens": OptionValue("many")}), "max_tokens: 'many'"),
        (Changes(options={"api_key": OptionValue(HIDDEN)}), "is only what is shown instead of its value"),
    ],
)
def test_what_cannot_work_is_refused(changes: Changes, reason: str) -> None:
    with pytest.raises((GroupSettingsError, AdapterError), match=reason.replace("(", r"\(")):
        apply(changes)


def test_a_group_on_a_provider_that_is_gone_can_be_renamed_and_moved() -> None:
    lost = GroupSettings("x", "gone")
    assert apply(Changes(name="y"), lost).name == "y"
    assert apply(Changes(provider="scripted"), lost).provider == "scripted"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("n=3", "n", 3),
        ("n=1e3", "n", 1000.0),
        ("on=true", "on", True),
        ("effort=high", "effort", "high"),
        ('price={"input": 3, "output": 15}', "price", {"input": 3, "output": 15}),
        ("price={input: 3, output: 15}", "price", {"input": 3, "output": 15}),
        ("url=http://localhost:1234/v1?a=b", "url", "http://localhost:1234/v1?a=b"),
        ("day=2026-01-31", "day", "2026-01-31"),
        ("n=.inf", "n", ".inf"),
        ("n=NaN", "n", "NaN"),
        ("empty=null", "empty", None),
    ],
)
def test_options_are_json_or_yaml(text: str, key: str, value: Any) -> None:
    assert parse_options([text]) == {key: OptionValue(value)}


def test_an_option_without_a_value_is_removed() -> None:
    assert parse_options(["a=", "b= "]) == {"a": None, "b": None}


@pytest.mark.parametrize("text", ["novalue", "=3", " =3", "a=[1", "a=*x", "a={"])
def test_an_option_that_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(GroupSettingsError, match="--option"):
        parse_options([text])


@pytest.mark.parametrize(
    ("text", "usd"), [(None, None), ("none", None), ("None", None), ("5", 5.0), ("$0.25", 0.25), ("1e-3", 0.001)]
)
def test_budgets(text: str | None, usd: float | None) -> None:
    assert parse_budget("--daily-budget", text) == usd


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "much", ""])
def test_a_budget_must_be_an_amount_above_zero(text: str) -> None:
    with pytest.raises(GroupSettingsError, match="--daily-budget"):
        parse_budget("--daily-budget", text)


def test_the_words_for_it_hide_what_may_be_secret() -> None:
    group = GroupSettings("H", None, None, {"provider_options": {"api_key": "hunter2", "script": "a\nb", "n": 1}})
    words = dict(described(group, "openai", "gpt"))
    assert words["provider"] == "openai (the default)"
    assert words["model"] == "gpt (the default)"
    assert words["options"] == "api_key=(set), n=1, script=(2 lines)"
    assert (words["fallbacks"], words["budget"]) == ("none", "none")
    assert dict(described(BEFORE, "x", None))["budget"] == "$5.00 a day, $1.00 a day for each person"


def test_what_is_shown_of_settings_has_no_secrets_in_it() -> None:
    config = {
        "max_tokens": 5,
        "headers": [{"X-Api-Key": "hunter2"}],
        "db_password": {"a": 1},
        "url": "sk-ant-" + "a1" * 30,
    }
    shown = without_secrets(config)
    assert shown["max_tokens"] == 5
    assert (shown["headers"], shown["db_password"]) == ([{"X-Api-Key": HIDDEN}], HIDDEN)
    assert "a1a1" not in shown["url"]
