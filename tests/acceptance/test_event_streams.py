"""Hundreds of readers at a real gateway process, which is killed while they read: every one ends with the same list."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest
import redis

from gateway.http.api.streams import STREAMS
from models import Database
from models.tokens import new_token
from tests.support.event_source import event_source
from tests.support.processes import Operator
from tests.support.producer import ingest, status
from tests.support.servers import free_port
from workers.events import ALL
from workers.operations.tokens import add_token

SUBSCRIBERS = 200
SCRIPT = """
- play:
    - think: hm
    - tool: clock
    - say: a few words on the way
    - wait: 0.3
    - tool: clock
    - progress: nearly there
    - answer: done, and here is what came of it
"""


class Subscriber:
    """Comes back after every end, with the last id it has seen, until it is told not to."""

    def __init__(self, port: int, path: str, token: str) -> None:
        self._port, self._path, self._token = port, path, token
        self.numbers: list[int] = []
        self.opened = 0
        self.texts = 0
        self.ended = False
        self.come_back = True

    async def run(self) -> None:
        while self.come_back:
            try:
                await self._once()
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)

    async def _once(self) -> None:
        last = {"last_event_id": str(self.numbers[-1])} if self.numbers else {}
        async with event_source(self._port, self._path, self._token, **last) as source:
            assert source.status == 200
            self.opened += 1
            async for sent in source:
                self.texts += sent.name == "text_delta"
                if sent.id is not None:
                    assert sent.envelope["seq"] == int(sent.id)
                    self.numbers.append(int(sent.id))
            self.ended = source.ended


async def _tokens(operator: Operator) -> list[str]:
    """As many as the subscribers need, each of another person."""
    tokens = [new_token() for _ in range(-(-SUBSCRIBERS // STREAMS))]
    db = Database(operator.database_url)
    for number, token in enumerate(tokens):
        name = f"ada{number}"
        await db.transact(lambda conn, one=token, of=name: add_token(conn, "cli", of, one, "demo", "admin"))  # type: ignore[misc]
    await db.close()
    return tokens


async def _until(operator: Operator, condition: Callable[[], Any], what: str) -> None:
    await asyncio.to_thread(operator.wait_for, condition, what, 60)


@pytest.mark.spec("G2")
def test_two_hundred_readers_of_a_gateway_that_is_killed_all_get_the_same_complete_list(operator: Operator) -> None:
    operator.add_group(script=SCRIPT)
    port = free_port()
    command = f"longshore gateway --port {port}"
    gateway = operator.start(command, "gateway")
    operator.worker("messages,delivery,agent.scripted")

    async def answered(message_id: str) -> None:
        await _until(operator, lambda: status(operator, message_id) == "completed", "the turn")

    async def everything(subscribers: list[Subscriber]) -> int:
        last = int(operator.value("SELECT max(seq) FROM events"))
        await _until(operator, lambda: all(one.numbers[-1] >= last for one in subscribers), "everybody to have all")
        return last

    async def crowd() -> list[Subscriber]:
        await answered(ingest(operator))
        path = f"/v1/sessions/{operator.value('SELECT id FROM sessions')}/events"
        tokens = await _tokens(operator)
        subscribers = [Subscriber(port, path, tokens[number // STREAMS]) for number in range(SUBSCRIBERS)]
        async with asyncio.TaskGroup() as running:
            for subscriber in subscribers:
                running.create_task(subscriber.run())
            await _until(operator, lambda: all(one.numbers for one in subscribers), "everybody to be there")
            with redis.Redis.from_url(operator.broker.url) as client:
                assert client.pubsub_numsub(ALL) == [(ALL.encode(), 1)], "one subscription for all"
            before = subscribers[0].numbers[-1]
            second = ingest(operator)
            await _until(operator, lambda: all(one.numbers[-1] > before for one in subscribers), "a turn under way")
            operator.end(gateway, signal.SIGKILL)
            await answered(second)
            await answered(ingest(operator))  # nobody is there to tell
            again = await asyncio.to_thread(operator.start, command, "gateway")
            await everything(subscribers)
            for subscriber in subscribers:
                subscriber.texts = 0
            await answered(ingest(operator))
            last = await everything(subscribers)
            for subscriber in subscribers:
                subscriber.come_back = False
            assert await asyncio.to_thread(operator.end, again) == 0
        assert subscribers[0].numbers == list(range(1, last + 1))
        return subscribers

    first, *others = asyncio.run(crowd())
    assert all(other.numbers == first.numbers for other in others)
    assert {one.opened for one in (first, *others)} == {2}, "cut off once, by the kill"
    assert all(one.ended for one in (first, *others)), "a gateway that stops makes an end of each"
    assert any(one.texts for one in (first, *others)), "and is live again"
    assert "Traceback" not in (operator.folder / "gateway.log").read_text()
