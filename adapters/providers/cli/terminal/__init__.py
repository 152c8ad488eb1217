from adapters.providers.cli.terminal.provider import TerminalProvider

__all__ = ["TerminalProvider"]
