"""The models that the stand-in says it has. It answers for any other name as well."""

from typing import Any, Literal

_CREATED = 1_780_000_000
_CLAUDE = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
_GPT = ("gpt-6-astra", "gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-luna", "gpt-5.4-mini")


def models(vendor: Literal["anthropic", "openai"]) -> dict[str, Any]:
    if vendor == "openai":
        made = [{"id": name, "object": "model", "created": _CREATED, "owned_by": "stand-in"} for name in _GPT]
        return {"object": "list", "data": made}
    return {
        "data": [_claude(name) for name in _CLAUDE],
        "has_more": False,
        "first_id": _CLAUDE[0],
        "last_id": _CLAUDE[-1],
    }


def _claude(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "type": "model",
        "display_name": name.replace("-", " ").title(),
        "created_at": "2026-06-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 1_000_000,
        "max_tokens": 64_000,
    }
