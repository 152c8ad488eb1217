"""`anthropic`: see provider.py."""

from adapters.providers.anthropic.provider import AnthropicProvider

__all__ = ["AnthropicProvider"]
