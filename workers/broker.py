"""Mends a fault of kombu 5.7's Redis transport: a worker that loses its broker while messages are unacknowledged.

It then acknowledges them, or gives them back, over the connection that is gone; that fails with an error nobody
expects and ends the whole worker. The messages are safe without it: they stay in Redis' own list of unacknowledged ones
and come again by their time-out, and a message that comes twice is taken once."""

from typing import Any

from kombu.transport import redis


class _QoS(redis.QoS):
    def ack(self, delivery_tag: str) -> None:
        if self._is_connected():
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if self._is_connected():
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]

    def restore_unacked(self, client: Any = None) -> None:
        if self._is_connected():
            super().restore_unacked(client)  # type: ignore[no-untyped-call]

    def _is_connected(self) -> bool:
        connection = self.channel.connection
        return connection is not None and connection.client is not None


def mend_broker() -> None:
    """Make the transport's channels use the mended class."""
    redis.Channel.QoS = _QoS
