"""`openai`: see provider.py."""

from adapters.providers.openai.provider import OpenAIProvider

__all__ = ["OpenAIProvider"]
