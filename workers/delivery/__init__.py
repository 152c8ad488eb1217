"""Sending what agents said."""

from workers.delivery.doubt import settle_doubtful
from workers.delivery.sending import send

__all__ = ["send", "settle_doubtful"]
