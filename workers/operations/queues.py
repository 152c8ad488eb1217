"""Messages that a producer left where nobody reads them: to bring them home."""

from redis.asyncio import Redis

from models.audit import note
from workers import queues
from workers.house import House
from workers.queues import Rescued, queue_names


async def rescue(house: House, by: str, client: Redis, name: str) -> Rescued:
    """Move them from the stray list `name` to our queue. The broker knows no transaction of ours: it is noted after, so
    one that is killed halfway is noted when it is done again."""
    done = await queues.rescue(client, name, queue_names(house.registry))
    if done.moved:
        await house.db.transact(lambda conn: note(conn, by, "queue.rescue", name, moved=done.moved, left=done.left))
    return done
