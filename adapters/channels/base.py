"""What a channel does where its platform can do nothing: drivers inherit it and say what is different about theirs."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from adapters.channel_port import (
    Batch,
    Button,
    ButtonPress,
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    Receipt,
    Received,
)
from adapters.errors import ChannelError, SignatureError


class PlainChannel:
    channel_type: str
    capabilities: ChannelCapabilities
    _agent: str = ""  # the folder of the one that answers in places nobody has wired; empty: nobody

    @property
    def receives(self) -> bool:
        return False

    def verify(self, request: InboundRequest) -> None:
        raise SignatureError(f"the {self.channel_type} channel takes no requests")

    def receive(self, request: InboundRequest) -> Received:
        return Received()

    def accepts(self, message: InboundMessage) -> bool:
        return True

    def registers(self, message: InboundMessage, *, known: bool) -> str | None:
        """Where somebody known speaks to the bot: in a direct chat, or by its name."""
        return self._agent or None if known and (message.is_direct or message.is_mention) else None

    def listens(self) -> str | None:
        return None

    def listen(self, cursor: Mapping[str, Any] | None) -> AsyncIterator[Batch]:
        raise ChannelError(f"the {self.channel_type} channel does not listen by itself")

    async def fetch(self, reference: str, limit: int) -> bytes:
        raise ChannelError(f"the {self.channel_type} channel keeps no attachments")

    def length(self, text: str) -> int:
        return len(text)

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        raise ChannelError(f"the {self.channel_type} channel cannot change what was sent")

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        raise ChannelError(f"the {self.channel_type} channel has no reactions")

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        """Nobody sees it there."""

    async def tell(self, press: ButtonPress, text: str) -> None:
        """There are no buttons there."""

    async def open_dm(self, user_id: str) -> str | None:
        return None

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        return None

    async def close(self) -> None:
        """Nothing is open."""
