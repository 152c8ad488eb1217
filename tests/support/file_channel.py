"""A platform that must be asked: a file that grows by a line per message. Also a program, so that a listener can be
killed: `python -m tests.support.file_channel DATABASE_URL REDIS_URL FILE NAME` listens, as `longshore listen` does."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from adapters.channel_port import Batch, InboundMessage, Received
from adapters.channels.fake import FakeChannel
from adapters.registry import Drivers, Registry
from tests.support.fleet import HeldBells
from workers.intake.listening import listen_to_all
from workers.intake.outpost import Outpost
from workers.runtime import Node
from workers.settings import Settings

LISTENS_TO = "feed:1"


class Feed(FakeChannel):
    channel_type = "feed"

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.failures_of_listening: list[Exception] = []  # each is raised once, in order
        self.active = False
        self.starts: list[Any] = []  # the cursors it was asked to go on from

    def listens(self) -> str | None:
        return LISTENS_TO

    async def listen(self, cursor: Mapping[str, Any] | None) -> AsyncIterator[Batch]:
        self.starts.append(cursor)
        self.active = True
        try:
            at = int(cursor["at"]) if cursor else 0
            while True:
                for line in self.file.read_text().splitlines()[at:]:
                    if self.failures_of_listening:
                        raise self.failures_of_listening.pop(0)
                    at += 1
                    message = InboundMessage("plaza", line, {"text": line}, sender_id="ada")
                    yield Batch(Received((message,)), {"at": at})
                await asyncio.sleep(0.01)
        finally:
            self.active = False


def outpost(settings: Settings, feed: Feed, name: str) -> Outpost:
    registry = Registry(channels=Drivers("channel", {"feed": feed}))
    return Outpost(settings, HeldBells(), registry, Node(name, "listen"))


async def main(database_url: str, redis_url: str, file: str, name: str) -> None:
    settings = Settings(database_url=database_url, redis_url=redis_url, default_provider="scripted", lease_seconds=1.5)
    async with outpost(settings, Feed(Path(file)), name) as house:
        await listen_to_all(house)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
