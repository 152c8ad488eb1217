"""The refusal that every door knows: a message, a decision or an answer cannot be taken as it is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from workers.bells import Bells

# What it is about: how the message is made, nobody who would take it, a stranger, talk among others, a busy agent.
RefusalKind = Literal["form", "nobody", "stranger", "chatter", "busy"]


class RefusedError(Exception):
    """It cannot be accepted as it is; the text says what is wrong and what to do. `deliveries`: what the sender is told
    besides, to be rung for. `kind`: of which sort the reason is, for those who count them."""

    def __init__(self, reason: str, deliveries: Sequence[str] = (), kind: RefusalKind = "form") -> None:
        super().__init__(reason, tuple(deliveries), kind)
        self.reason = reason
        self.deliveries = tuple(deliveries)
        self.kind: Final = kind

    def __str__(self) -> str:
        return self.reason

    def ring(self, bells: "Bells") -> None:
        for message_out_id in self.deliveries:
            bells.deliver(message_out_id)
