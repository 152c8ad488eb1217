"""Mends a fault of kombu 5.7's Redis transport: a worker that loses its broker while a message is unacknowledged.

It then tries to give the message back over the connection that is gone, fails on it, and ends the whole worker. The
message is safe without that: it stays in Redis' own list of unacknowledged ones and comes back by its time-out."""

from typing import Any

from kombu.transport import redis


class _QoS(redis.QoS):
    def restore_unacked(self, client: Any = None) -> None:
        if self.channel.connection.client is not None:
            super().restore_unacked(client)  # type: ignore[no-untyped-call]


def mend_broker() -> None:
    """Make the transport's channels use the mended class."""
    redis.Channel.QoS = _QoS
