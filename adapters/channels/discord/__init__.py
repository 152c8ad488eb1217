from adapters.channels.discord.channel import DiscordChannel

__all__ = ["DiscordChannel"]
