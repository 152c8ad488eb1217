from adapters.providers.cli.claude.provider import ClaudeCodeProvider

__all__ = ["ClaudeCodeProvider"]
