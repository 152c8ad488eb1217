"""Which variables hold the keys of model providers, whether they are set, and so which provider to begin with.

Only whether: no part of a key is ever read out."""

import os
from collections.abc import Mapping

_KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
_PROGRAM_KEYS = {
    "claude-code": "ANTHROPIC_API_KEY",
    "codex": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openclaw": "OPENAI_API_KEY",
    "opencode": "OPENAI_API_KEY",
}
# A server of one's own that speaks the protocol may need no key.
_ADDRESSES = {"OPENAI_API_KEY": "OPENAI_BASE_URL"}
NO_KEY_NEEDED = "scripted"


def missing_key(provider: str, env: Mapping[str, str] = os.environ) -> str | None:
    """The variable a provider needs and does not have here; None: nothing is missing, as far as we know."""
    variable = _KEYS.get(provider) or _PROGRAM_KEYS.get(provider, "")
    if not variable or _is_set(env, variable) or _is_set(env, _ADDRESSES.get(variable, "")):
        return None
    return variable


def provider_with_key(env: Mapping[str, str] = os.environ) -> str:
    """The first provider whose key is set; else the one that plays scripts."""
    return next((provider for provider in _KEYS if missing_key(provider, env) is None), NO_KEY_NEEDED)


def _is_set(env: Mapping[str, str], variable: str) -> bool:
    return bool(env.get(variable, "").strip())
