"""A platform that outlives the workers: what it was sent, by key, is in a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters.channel_port import Destination, OutboundMessage, Receipt
from adapters.channels.fake import FakeChannel
from tests.support.boundaries.marks import AFTER_DELIVERY, BEFORE_DELIVERY, Case, Marks, read_lines


class LastingChannel(FakeChannel):
    """`asked`: it can also say what it was sent; else whoever is in doubt has to send again."""

    def __init__(self, path: Path, mark: Callable[[str], None] | None = None, *, asked: bool = True) -> None:
        super().__init__()
        self._path = path
        self._mark = mark or (lambda _: None)
        self._asked = asked

    @classmethod
    def of(cls, case: Case, mark: Marks) -> "LastingChannel":
        """Each database has one of the two kinds of platform."""
        return cls(case.shown, mark, asked=not case.database_url.startswith("sqlite"))

    async def deliver(self, message: OutboundMessage) -> Receipt:
        what = str(message.content["text"])[:12]
        self._mark(BEFORE_DELIVERY + what)
        sent = {
            "key": message.idempotency_key,
            "place": message.destination.platform_id,
            "text": message.content["text"],
            "files": {file.name: file.path.read_text() for file in message.files},
        }
        if message.idempotency_key not in self._keys():
            with self._path.open("a") as file:
                file.write(json.dumps(sent) + "\n")
        self._mark(AFTER_DELIVERY + what)
        return Receipt(message.idempotency_key)

    async def edit(self, *_: Any) -> None:
        """A card that is over: nothing of it is counted."""

    async def find_receipt(self, destination: Destination, idempotency_key: str) -> Receipt | None:
        return Receipt(idempotency_key) if self._asked and idempotency_key in self._keys() else None

    def _keys(self) -> set[str]:
        return {json.loads(line)["key"] for line in read_lines(self._path)}
