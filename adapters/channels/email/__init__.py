from adapters.channels.email.channel import EmailChannel

__all__ = ["EmailChannel"]
