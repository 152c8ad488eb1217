"""Which variables hold the keys of model providers, whether they are set, and so which provider to begin with.

Only whether: no part of a key is ever read out."""

import os
from collections.abc import Mapping

_KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
# A server of one's own that speaks the protocol may need no key.
_ADDRESSES = {"openai": "OPENAI_BASE_URL"}
NO_KEY_NEEDED = "scripted"


def missing_key(provider: str, env: Mapping[str, str] = os.environ) -> str | None:
    """The variable a provider needs and does not have here; None: nothing is missing, as far as we know."""
    if provider not in _KEYS or _is_set(env, _KEYS[provider]) or _is_set(env, _ADDRESSES.get(provider, "")):
        return None
    return _KEYS[provider]


def provider_with_key(env: Mapping[str, str] = os.environ) -> str:
    """The first provider whose key is set; else the one that plays scripts."""
    return next((provider for provider in _KEYS if missing_key(provider, env) is None), NO_KEY_NEEDED)


def _is_set(env: Mapping[str, str], variable: str) -> bool:
    return bool(env.get(variable, "").strip())
