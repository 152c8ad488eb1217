from adapters.providers.cli.codex.provider import CodexProvider

__all__ = ["CodexProvider"]
