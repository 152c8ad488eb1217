"""Sending what agents said, and what the fleet itself has to say."""

from workers.delivery.doubt import settle_doubtful
from workers.delivery.sending import send

__all__ = ["send", "settle_doubtful"]
