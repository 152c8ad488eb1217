from adapters.channels.slack.channel import SlackChannel

__all__ = ["SlackChannel"]
