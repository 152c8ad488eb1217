from adapters.channels.github.channel import GithubChannel

__all__ = ["GithubChannel"]
