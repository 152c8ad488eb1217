"""The refusal that every door knows: a message, a decision or an answer cannot be taken as it is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.bells import Bells


class RefusedError(Exception):
    """It cannot be accepted as it is; the text says what is wrong and what to do. `deliveries`: what the sender is told
    besides, to be rung for."""

    def __init__(self, reason: str, deliveries: Sequence[str] = ()) -> None:
        super().__init__(reason, tuple(deliveries))
        self.reason = reason
        self.deliveries = tuple(deliveries)

    def __str__(self) -> str:
        return self.reason

    def ring(self, bells: "Bells") -> None:
        for message_out_id in self.deliveries:
            bells.deliver(message_out_id)
