"""Channels whose stored row is the delivery (`local`, `web`), with a reader: the rows of the database, as people are
shown them. Nobody sends them requests."""

from collections.abc import Sequence
from typing import Any, Final

from adapters.channel_port import Button, Destination, InboundMessage, InboundRequest, OutboundMessage, Receipt
from adapters.channels.conformance import Fault, Forgery
from adapters.channels.local import LocalChannel
from adapters.channels.web import WebChannel

APPLYING: Final = {
    "opens_a_direct_chat",
    "refuses_every_request",
    "says_whether_it_takes_requests",
    "takes_a_text_as_long_as_it_says",
    "delivers_and_gives_a_receipt",
    "keeps_the_order",
    "shows_one_message_per_key",
    "edits_or_refuses",
    "reacts_or_refuses",
    "shows_typing_or_nothing",
    "has_consistent_capabilities",
    "closes_twice",
}


class RowHarness:
    """`channel` is watched: what it takes without complaint is in the rows."""

    receives = False
    forgeries: Sequence[Forgery] = ()
    threads: Sequence[str | None] = ()
    faults: Sequence[Fault] = ()
    knows_its_keys = False

    def __init__(self, channel: LocalChannel | WebChannel, place: str) -> None:
        self.destination = Destination(place)
        self.rows: dict[str, str] = {}
        self.channel = channel
        deliver, edit = channel.deliver, channel.edit

        async def delivered(message: OutboundMessage) -> Receipt:
            self.rows[message.idempotency_key] = str(message.content["text"])
            return await deliver(message)

        async def edited(
            where: Destination, sent: str, content: dict[str, Any], buttons: tuple[Button, ...] = ()
        ) -> None:
            self.rows[sent] = str(content["text"])
            await edit(where, sent, content, buttons)

        channel.deliver, channel.edit = delivered, edited  # type: ignore[method-assign, assignment]

    def named(self, ours: str) -> str:
        return ours

    def press(self, label: str, sender: str) -> InboundRequest:
        raise NotImplementedError("nobody sends it requests")

    def buttons(self) -> list[str]:
        return []

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        raise NotImplementedError("nobody sends it requests")

    def forged(self, forgery: Forgery) -> InboundRequest:
        raise NotImplementedError("nobody sends it requests")

    def unreadable(self) -> Sequence[InboundRequest]:
        return ()

    def unwanted(self) -> InboundMessage | None:
        return None

    def shown(self) -> list[str]:
        return list(self.rows.values())

    def fail_next(self, fault: Fault) -> None:
        raise NotImplementedError("a row cannot fail to be written twice")
