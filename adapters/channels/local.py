"""`local`: people at the terminal. Nothing leaves the machine: the stored row is the delivery, and the command line
reads it from there. So it cannot fail, and sending twice shows one message. Files are put where people find them."""

import asyncio
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, Final

from adapters.channel_port import Button, ChannelCapabilities, Destination, OutboundMessage, Receipt
from adapters.channels.base import PlainChannel
from adapters.errors import DeliveryError

RECEIVED: Final = "received"


class LocalChannel(PlainChannel):
    channel_type = "local"
    capabilities = ChannelCapabilities(
        idempotent=True, edits=True, reactions=True, typing=True, files=True, direct_messages=True, max_text=1_000_000
    )

    def __init__(self, home: Path | None = None) -> None:
        self._received = (home or Path(os.environ.get("LONGSHORE_HOME") or ".longshore")) / RECEIVED

    async def deliver(self, message: OutboundMessage) -> Receipt:
        details = {"files": await asyncio.to_thread(self._receive_files, message)} if message.files else {}
        return Receipt(platform_message_id=message.idempotency_key, details=details)

    def _receive_files(self, message: OutboundMessage) -> list[str]:
        """The same message again puts the same files in the same place."""
        folder = self._received / hashlib.sha256(message.idempotency_key.encode()).hexdigest()[:12]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return [str(shutil.copyfile(file.path, folder / file.name)) for file in message.files]
        except OSError as error:
            raise DeliveryError(f"the file could not be kept: {error.strerror}", retryable=True) from error

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        """The changed row is the edit."""

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        """The row is the reaction."""

    async def open_dm(self, user_id: str) -> str | None:
        return user_id
