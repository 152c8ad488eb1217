"""Which provider a machine begins with: the one whose key is set."""

import pytest

from adapters.providers.keys import missing_key, provider_with_key

pytestmark = pytest.mark.spec("G6")


@pytest.mark.parametrize(
    ("env", "provider"),
    [
        ({}, "scripted"),
        ({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": " "}, "scripted"),
        ({"OPENAI_API_KEY": "k"}, "openai"),
        ({"OPENAI_BASE_URL": "http://localhost:11434/v1"}, "openai"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "anthropic"),
    ],
)
def test_the_provider_to_begin_with(env: dict[str, str], provider: str) -> None:
    assert provider_with_key(env) == provider


def test_what_is_missing_is_named() -> None:
    assert missing_key("anthropic", {}) == "ANTHROPIC_API_KEY"
    assert missing_key("anthropic", {"ANTHROPIC_API_KEY": "k"}) is None
    assert missing_key("scripted", {}) is None
