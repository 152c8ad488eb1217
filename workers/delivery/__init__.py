"""Sending what agents said."""

from workers.delivery.sending import send, settle_doubtful

__all__ = ["send", "settle_doubtful"]
