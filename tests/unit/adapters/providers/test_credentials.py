"""Keys are read when they are used, told apart by a fingerprint, and shown to nobody."""

import subprocess
import sys

import pytest

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.credentials import (
    ANTHROPIC_URL,
    OPENAI_URL,
    PLACEHOLDER,
    Credentials,
    anthropic_credentials,
    is_openai,
    openai_credentials,
)

pytestmark = pytest.mark.spec("P3", "P4")
KEY = "sk-secret-123456"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)


def test_nothing_shows_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", f" {KEY}\n")
    mine = anthropic_credentials()
    assert mine.key == KEY
    assert mine.base_url == ANTHROPIC_URL
    assert KEY not in f"{mine!r} {mine} {mine.state} {mine.account}"
    assert mine.scrub(f"<{KEY}>") == "<[key]>"


def test_an_account_is_an_address_and_a_key() -> None:
    accounts = {Credentials("X", url, key).account for url in ("http://a", "http://b") for key in ("k1", "k2", "")}
    assert len(accounts) == 6
    assert all(len(account) == 8 and int(account, 16) >= 0 for account in accounts)


def test_without_a_key_texts_stay_as_they_are() -> None:
    assert Credentials("X", "http://a", "").scrub("text") == "text"
    assert Credentials("X", "http://a", "").told("x" * 400) == "x" * 299 + "…"


def test_openai_needs_a_key_and_its_likes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert openai_credentials().base_url == OPENAI_URL
    with pytest.raises(ProviderError, match="set OPENAI_API_KEY") as caught:
        openai_credentials().require()
    assert caught.value.error_class is ErrorClass.AUTH
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1/")
    mine = openai_credentials()
    mine.require()
    assert (mine.base_url, mine.key) == ("http://127.0.0.1:11434/v1", PLACEHOLDER)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert openai_credentials().key == KEY


@pytest.mark.parametrize(
    ("url", "is_it"),
    [
        (OPENAI_URL, True),
        ("https://API.openai.com:443/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("http://localhost:11434/v1", False),
        ("https://api.openai.com.example.org/v1", False),
        ("https://api.openai.com@example.org/v1", False),
        ("nonsense", False),
    ],
)
def test_who_is_openai(url: str, is_it: bool) -> None:
    assert is_openai(url) is is_it


def test_listing_providers_imports_no_sdk() -> None:
    code = (
        "import sys\n"
        "from adapters.providers.anthropic import AnthropicProvider\n"
        "from adapters.providers.openai import OpenAIProvider\n"
        "for provider in (AnthropicProvider(), OpenAIProvider()):\n"
        "    provider.check({'thinking': 'low'}); provider.manifest; provider.account\n"
        "print([name for name in ('anthropic', 'openai', 'genai_prices', 'aiohttp', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
