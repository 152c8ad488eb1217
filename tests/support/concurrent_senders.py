"""A crowd that says its first words to one chat at the same moment. Also a program, so that several processes can do
it together: `python -m tests.support.concurrent_senders DATABASE_URL FIRST COUNT` waits for a line, then prints what it
was told."""

import asyncio
import json
import sys
from dataclasses import asdict

from adapters.registry import Registry
from models.database import Database
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.settings import Settings

GROUP, CHAT = "demo", "plaza"


async def speak(db: Database, database_url: str, first: int, count: int) -> list[Accepted]:
    registry = Registry()
    settings = Settings(database_url=database_url, default_provider="scripted")

    async def say(number: int) -> Accepted:
        fields = {"agent_group": GROUP, "platform_id": CHAT, "message_id": f"first-{number}", "sender_id": "crowd"}
        return await accept(db, registry, settings, parse_incoming(fields | {"text": f"hello {number}"}))

    return list(await asyncio.gather(*(say(number) for number in range(first, first + count))))


async def main(database_url: str, first: int, count: int) -> None:
    db = Database(database_url)
    try:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps([asdict(accepted) for accepted in await speak(db, database_url, first, count)]))
    finally:
        await db.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
