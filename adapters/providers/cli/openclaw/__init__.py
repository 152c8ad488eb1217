from adapters.providers.cli.openclaw.provider import OpenclawProvider

__all__ = ["OpenclawProvider"]
