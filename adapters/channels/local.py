"""`local`: people at the terminal. Nothing leaves the machine: the stored row is the delivery, and the command line
reads it from there. So it cannot fail, and sending twice shows one message."""

from typing import Any

from adapters.contracts import (
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundMessage,
    Receipt,
)
from adapters.errors import SignatureError


class LocalChannel:
    channel_type = "local"
    capabilities = ChannelCapabilities(
        idempotent=True, edits=True, reactions=True, typing=True, direct_messages=True, max_text=1_000_000
    )

    def verify(self, request: InboundRequest) -> None:
        raise SignatureError("the local channel takes messages from the command line only")

    def receive(self, request: InboundRequest) -> list[InboundMessage]:
        return []

    def accepts(self, message: InboundMessage) -> bool:
        return True

    async def deliver(self, message: OutboundMessage) -> Receipt:
        return Receipt(platform_message_id=message.idempotency_key)

    async def edit(self, destination: Destination, platform_message_id: str, content: dict[str, Any]) -> None:
        """The changed row is the edit."""

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        """The row is the reaction."""

    async def show_typing(self, destination: Destination, *, on: bool) -> None:
        """The event stream shows what goes on."""

    async def open_dm(self, user_id: str) -> str | None:
        return user_id

    async def find_receipt(self, idempotency_key: str) -> Receipt | None:
        return Receipt(platform_message_id=idempotency_key)

    async def close(self) -> None:
        """Nothing is open."""
