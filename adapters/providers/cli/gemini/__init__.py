from adapters.providers.cli.gemini.provider import GeminiProvider

__all__ = ["GeminiProvider"]
