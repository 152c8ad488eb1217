"""Provider `omnara`."""

from adapters.providers.omnara.provider import OmnaraProvider

__all__ = ["OmnaraProvider"]
