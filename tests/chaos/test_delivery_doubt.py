"""A sender is killed between sending and writing it down, a hundred times where the platform honours keys and a hundred
times where it does not: nobody ever sees a message twice, and what is not known is called so.

Real processes, the real drivers over HTTP, PostgreSQL. The platform takes each message and keeps its answer to itself
until the sender is dead."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.registry import Registry
from models import MessageOut, MessagingGroup, Session, Wiring
from models.base import new_id, now
from models.sessions import ensure_session
from tests.support.fleet import Fleet, fleet_settings
from tests.support.piped_process import PipedProcess, open_process
from tests.support.process_group import ROOT, child_environment
from tests.support.telegram_api import PERSON, TOKEN, TelegramApi
from tests.support.webhook_server import WebhookServer

KILLS = 100
AT_ONCE = 6
SECRET = "between sending and marking"

pytestmark = pytest.mark.timeout(180)


class Holding:
    """Messages that have arrived and are not answered yet, by their text."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: dict[str, asyncio.Future[None]] = {}
        self._released: dict[str, threading.Event] = {}
        self.arrivals: Counter[str] = Counter()

    def expect(self, text: str) -> asyncio.Future[None]:
        self._released[text] = threading.Event()
        self._arrived[text] = self._loop.create_future()
        return self._arrived[text]

    def release(self, text: str) -> None:
        self._released.pop(text).set()

    def hold(self, text: str) -> None:
        """Called by the platform's threads."""
        self.arrivals[text] += 1
        if (released := self._released.get(text)) is not None:
            self._loop.call_soon_threadsafe(self._arrived[text].set_result, None)
            assert released.wait(60), "nobody killed the sender"


class HoldingWebhook(WebhookServer):
    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        super().__init__(SECRET)
        setattr(self._server, "handle_error", _say_nothing)  # noqa: B010

    def take(self, key: str, signature: str, body: bytes) -> str | None:
        reason = super().take(key, signature, body)
        self._holding.hold(json.loads(body)["content"]["text"])
        return reason


class HoldingTelegram(TelegramApi):
    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        super().__init__()
        self.chats |= {PERSON + number: ("private", set()) for number in range(KILLS + 1)}
        setattr(self._server, "handle_error", _say_nothing)  # noqa: B010

    def call(self, method: str, fields: dict[str, Any], files: dict[str, tuple[str, bytes]]) -> Any:
        answer = super().call(method, fields, files)
        self._holding.hold(fields["text"])
        return answer


def _say_nothing(*_: Any) -> None:
    """An answer to somebody who is dead fails: that is what we are here for."""


class Senders:
    """The process that forks them."""

    def __init__(self, process: PipedProcess) -> None:
        self._process = process
        self._began: dict[str, asyncio.Future[int]] = {}
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def open(cls, fleet: Fleet, first: str, log: Path, env: dict[str, str]) -> AsyncIterator["Senders"]:
        settings = fleet.runtime.settings
        where = {"database_url": settings.database_url, "redis_url": settings.redis_url, "folder": str(settings.home)}
        where["first"] = first
        with log.open("ab") as output:
            command = [sys.executable, "-m", "tests.support.delivery_worker", json.dumps(where)]
            running = open_process(command, child_environment(**env), ROOT, stderr=output.fileno())
            async with running as process:
                senders = cls(process)
                try:
                    yield senders
                finally:
                    process.kill()  # its forks die with it
                    await senders._reading

    async def start(self, message_id: str) -> int:
        self._began[message_id] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(f"{message_id}\n".encode())
        return await self._began[message_id]

    async def ended(self, pid: int) -> int:
        return await self._ended[pid]

    async def _read(self) -> None:
        while line := await self._process.stdout.readline():
            match line.decode().split():
                case "began", message_id, pid:
                    self._ended[int(pid)] = asyncio.get_running_loop().create_future()
                    self._began.pop(message_id).set_result(int(pid))
                case "ended", pid, code:
                    self._ended[int(pid)].set_result(int(code))
        for left in [*self._began.values(), *self._ended.values()]:
            if not left.done():
                left.set_exception(EOFError("the process that forks senders has ended"))
                left.exception()


@pytest.fixture
async def holding() -> Holding:
    return Holding(asyncio.get_running_loop())


@pytest.fixture
async def fleet(postgres_database: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Whoever finds what the dead have left. Its drivers are read from the environment when they are first used."""
    fleet = Fleet(fleet_settings(postgres_database, redis_url, tmp_path), Registry())
    yield fleet
    await fleet.close()


async def put(fleet: Fleet, channel_type: str, places: list[tuple[str, str | None]]) -> dict[str, str]:
    """A message to each place, chat and thread; their texts by their ids."""
    group = await fleet.add_group()
    chats = {chat: new_id() for chat, _ in places}
    await fleet.insert(
        MessagingGroup,
        *({"id": id, "channel_type": channel_type, "platform_id": chat} for chat, id in chats.items()),
    )
    await fleet.insert(Wiring, *({"messaging_group_id": id, "agent_group_id": group} for id in chats.values()))
    first = next(iter(chats.values()))
    await fleet.db.transact(lambda conn: ensure_session(conn, group, first, ""))
    [session] = await fleet.sessions()
    rows = [
        {
            "id": new_id(), "session_id": session.id, "seq": number, "kind": "chat", "idempotency_key": f"key-{number}",
            "channel_type": channel_type, "platform_id": chat, "thread_id": thread, "content": {"text": f"#{number}"},
        }
        for number, (chat, thread) in enumerate(places, 1)
    ]  # fmt: skip
    await fleet.insert(MessageOut, *rows)
    await fleet.execute(update(Session).values(message_seq=len(rows)))
    return {row["id"]: row["content"]["text"] for row in rows}


async def kill_senders(fleet: Fleet, holding: Holding, texts: dict[str, str], log: Path, env: dict[str, str]) -> None:
    """Of all messages but the first, which arrives in peace."""
    hands = asyncio.Semaphore(AT_ONCE)
    first, *others = texts

    async def kill(senders: Senders, message_id: str, text: str) -> None:
        async with hands:
            arrived = holding.expect(text)
            pid = await senders.start(message_id)
            ended = asyncio.ensure_future(senders.ended(pid))
            either: list[asyncio.Future[Any]] = [arrived, ended]
            await asyncio.wait(either, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            assert arrived.done(), f"{text} did not arrive: {log.read_text()[-4000:]}"
            os.kill(pid, signal.SIGKILL)
            assert await ended == -signal.SIGKILL
            holding.release(text)

    async with Senders.open(fleet, first, log, env) as senders:
        await asyncio.gather(*(kill(senders, message_id, texts[message_id]) for message_id in others))
    delivered, *left = await fleet.outbox()
    assert delivered.status == "delivered"
    assert {(row.status, row.attempts) for row in left} == {("sending", 1)}
    assert all(row.receipt in (None, {"begun": True}) for row in left)


async def find_what_is_left(fleet: Fleet) -> None:
    """Their claims have run out."""
    await fleet.execute(update(MessageOut).values(claim_expires_at=now(-1), rung_at=now(-60)))
    await fleet.sweep()
    await fleet.settle_down()


@pytest.mark.spec("M12", "S6")
async def test_with_keys_every_message_arrives_once(
    fleet: Fleet, holding: Holding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = HoldingWebhook(holding)
    env = {"LONGSHORE_WEBHOOKS": json.dumps({"crm": {"url": platform.url, "secret": SECRET}})}
    try:
        texts = await put(fleet, "webhook", [("crm", f"thread {number}") for number in range(KILLS + 1)])
        await kill_senders(fleet, holding, texts, tmp_path / "senders.log", env)
        monkeypatch.setenv("LONGSHORE_WEBHOOKS", env["LONGSHORE_WEBHOOKS"])
        await find_what_is_left(fleet)
    finally:
        platform.close()
    assert Counter(holding.arrivals.values()) == {1: 1, 2: KILLS}, "each came twice, but for the first"
    assert Counter(shown["content"]["text"] for shown in platform.shown.values()) == Counter(texts.values())
    assert platform.refused == []
    assert Counter(row.status for row in await fleet.outbox()) == {"delivered": KILLS + 1}


@pytest.mark.spec("M12", "S6")
async def test_without_keys_it_is_unknown_and_nothing_is_shown_twice(
    fleet: Fleet, holding: Holding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = HoldingTelegram(holding)
    env = {"LONGSHORE_TELEGRAM_TOKEN": TOKEN, "LONGSHORE_TELEGRAM_API": platform.url}
    try:
        texts = await put(fleet, "telegram", [(str(PERSON + number), None) for number in range(KILLS + 1)])
        await kill_senders(fleet, holding, texts, tmp_path / "senders.log", env)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        await find_what_is_left(fleet)
    finally:
        platform.close()
    assert Counter(message.text for message in platform.messages) == Counter(texts.values()), "each is shown once"
    assert set(holding.arrivals.values()) == {1}
    assert platform.problems == []
    assert Counter(row.status for row in await fleet.outbox()) == {"delivered": 1, "unknown": KILLS}
    told = [row.content["status"] for row in await fleet.inbox() if row.kind == "system"]
    assert told == ["unknown"] * KILLS
