from adapters.channels.telegram.channel import TelegramChannel

__all__ = ["TelegramChannel"]
