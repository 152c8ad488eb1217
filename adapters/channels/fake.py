"""`fake`: a platform in memory that behaves like a real one, including badly. The twin behind the channel contract.

It keeps what it was sent by idempotency key, can be told to fail, and signs its requests like a platform would."""

import json
from typing import Any

from adapters.channels.signing import HEADER, check_signature, sign
from adapters.contracts import (
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundMessage,
    Receipt,
)
from adapters.errors import ChannelError, DeliveryError, MalformedError

SECRET = "fake-platform"  # noqa: S105 - a platform that does not exist


class FakeChannel:
    channel_type = "fake"

    def __init__(self, *, idempotent: bool = True) -> None:
        self.capabilities = ChannelCapabilities(
            idempotent=idempotent, edits=True, reactions=True, typing=True, files=True, direct_messages=True
        )
        self.shown: list[OutboundMessage] = []
        self.files: dict[str, bytes] = {}  # by name
        self.reactions: list[tuple[str, str]] = []
        self.typing: set[str] = set()
        self.failures: list[DeliveryError] = []  # each is raised once, in order
        self._receipts: dict[str, Receipt] = {}

    def request(self, **message: Any) -> InboundRequest:
        """What this platform would send for a message with these fields (id, chat, text, thread, sender)."""
        body = json.dumps(message).encode()
        return InboundRequest(headers={HEADER: sign(SECRET, body)}, body=body)

    def verify(self, request: InboundRequest) -> None:
        check_signature(SECRET, request.body, request.headers.get(HEADER))

    def receive(self, request: InboundRequest) -> list[InboundMessage]:
        try:
            body = json.loads(request.body)
            return [
                InboundMessage(
                    platform_id=str(body["chat"]),
                    platform_message_id=str(body["id"]),
                    thread_id=body.get("thread"),
                    sender_id=body.get("sender"),
                    sender_name=body.get("sender"),
                    content={"text": str(body["text"])},
                )
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedError(f"a fake message needs id, chat and text ({error!r})") from None

    def accepts(self, message: InboundMessage) -> bool:
        return message.sender_id != "bot"

    async def deliver(self, message: OutboundMessage) -> Receipt:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not failure.may_have_arrived:
            raise failure
        if message.idempotency_key not in self._receipts or not self.capabilities.idempotent:
            self.shown.append(message)
            self.files |= {file.name: file.path.read_bytes() for file in message.files}
            self._receipts[message.idempotency_key] = Receipt(platform_message_id=f"m{len(self.shown)}")
        if failure is not None:
            raise failure
        return self._receipts[message.idempotency_key]

    async def edit(self, destination: Destination, platform_message_id: str, content: dict[str, Any]) -> None:
        known = {f"m{number}": number - 1 for number in range(1, len(self.shown) + 1)}
        if platform_message_id not in known:
            raise ChannelError(f"there is no message {platform_message_id!r} to edit")
        position = known[platform_message_id]
        old = self.shown[position]
        self.shown[position] = OutboundMessage(old.destination, content, old.idempotency_key, old.kind)

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        self.reactions.append((platform_message_id, emoji))

    async def show_typing(self, destination: Destination, *, on: bool) -> None:
        (self.typing.add if on else self.typing.discard)(destination.platform_id)

    async def open_dm(self, user_id: str) -> str | None:
        return f"dm-{user_id}"

    async def find_receipt(self, idempotency_key: str) -> Receipt | None:
        return self._receipts.get(idempotency_key)

    async def close(self) -> None:
        """Nothing is open."""
