"""`fake`: a platform in memory that behaves like a real one, including badly. The twin behind the channel contract.

It keeps what it was sent by idempotency key, can be told to fail, and signs its requests like a platform would."""

import json
from dataclasses import replace
from typing import Any

from adapters.channel_port import (
    Button,
    ButtonPress,
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundMessage,
    Receipt,
    Received,
)
from adapters.channels.base import PlainChannel
from adapters.channels.signing import HEADER, check_signature, sign
from adapters.errors import ChannelError, DeliveryError, MalformedError

SECRET = "fake-platform"  # noqa: S105 - a platform that does not exist


class FakeChannel(PlainChannel):
    channel_type = "fake"

    def __init__(self, *, idempotent: bool = True, receives: bool = False) -> None:
        # Not where it is installed: its secret can be read above.
        self._receives = receives
        self.capabilities = ChannelCapabilities(
            idempotent=idempotent,
            edits=True,
            reactions=True,
            typing=True,
            files=True,
            buttons=True,
            direct_messages=True,
        )
        self.shown: list[OutboundMessage] = []
        self.files: dict[str, bytes] = {}  # by name
        self.reactions: list[tuple[str, str]] = []
        self.typing: dict[str, str | None] = {}  # by chat: what is being done there
        self.told: list[tuple[str, str]] = []  # who pressed a button, and what they were told
        self.failures: list[DeliveryError] = []  # each is raised once, in order
        self._receipts: dict[str, Receipt] = {}

    def request(self, **message: Any) -> InboundRequest:
        """What this platform would send for a message with these fields (id, chat, text, thread, sender)."""
        body = json.dumps(message).encode()
        return InboundRequest(headers={HEADER: sign(SECRET, body)}, body=body)

    @property
    def receives(self) -> bool:
        return self._receives

    def verify(self, request: InboundRequest) -> None:
        check_signature(SECRET, request.body, request.headers.get(HEADER))

    def receive(self, request: InboundRequest) -> Received:
        try:
            body = json.loads(request.body)
            if "press" in body:
                pressed = {"platform_id": str(body["chat"]), "sender_id": str(body["sender"])}
                return Received(presses=(ButtonPress(str(body["press"]), **pressed),))
            message = InboundMessage(
                platform_id=str(body["chat"]),
                platform_message_id=str(body["id"]),
                thread_id=body.get("thread"),
                sender_id=body.get("sender"),
                sender_name=body.get("sender"),
                content={"text": str(body["text"])},
                is_mention=bool(body.get("mention")),
                is_direct=str(body["chat"]).startswith("dm-"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedError(f"a fake message needs id, chat and text ({error!r})") from None
        return Received((message,))

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

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        known = {f"m{number}": number - 1 for number in range(1, len(self.shown) + 1)}
        if platform_message_id not in known:
            raise ChannelError(f"there is no message {platform_message_id!r} to edit")
        position = known[platform_message_id]
        old = self.shown[position]
        self.shown[position] = replace(old, content=content, buttons=buttons)

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        self.reactions.append((platform_message_id, emoji))

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        if on:
            self.typing[destination.platform_id] = doing
        else:
            self.typing.pop(destination.platform_id, None)

    async def tell(self, press: ButtonPress, text: str) -> None:
        self.told.append((press.sender_id, text))

    async def open_dm(self, user_id: str) -> str | None:
        return f"dm-{user_id}"

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        return self._receipts.get(idempotency_key)
