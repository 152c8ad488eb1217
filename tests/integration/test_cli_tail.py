"""`longshore tail` and `send`: whose events are shown, in what form, through what it goes on, and how it ends."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from adapters.events import AnyEvent, FilesTouched, Message, TextDelta
from gateway.cli import messages
from models import Event
from models.errors import DatabaseDownError
from tests.support.fleet import MakeFleet
from tests.support.piped_process import open_process
from tests.support.servers import Valkey
from workers.events import channel_of, envelope

pytestmark = pytest.mark.spec("G4", "G2")

BIN = Path(sys.executable).parent
SCRIPT = '- play:\n    - answer: "You said: {texts}"\n'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(broker: Valkey) -> str:
    """One of our own, to be killed."""
    return broker.url


@pytest.mark.parametrize("database_kind", ["postgresql"])  # SQLite has no connections to lose
async def test_it_goes_on_when_services_restart_and_ends_when_interrupted(
    make_fleet: MakeFleet, broker: Valkey, database_url: str, tmp_path: Path
) -> None:
    fleet = await make_fleet()
    for folder in ("demo", "other"):
        await fleet.add_group(folder, SCRIPT)
    command = ["longshore", "tail", "--agent", "demo", "--json"]
    async with open_process(command, _env(database_url, broker, tmp_path), tmp_path) as watching:
        with redis.Redis(port=broker.port) as client:
            async with asyncio.timeout(30):
                while client.pubsub_numsub("events:all") != [(b"events:all", 1)]:
                    await asyncio.sleep(0.05)
        shown: list[dict[str, object]] = []
        for text in ("before", "\x9b31mafter"):
            mine, _ = await fleet.send(text), await fleet.send(text, agent_group="other")
            await fleet.settle_down()
            while not shown or shown[-1]["event"]["type"] != "turn_ended":  # type: ignore[index]
                line = await asyncio.wait_for(watching.stdout.readline(), 30)
                assert line.decode().strip().isprintable()
                shown.append(json.loads(line))
            assert {item["session"] for item in shown} == {mine.session_id}
            assert f"You said: {text}" in [item["event"].get("text") for item in shown]  # type: ignore[attr-defined]
            shown.clear()
            broker.stop(signal.SIGKILL)
            _end_connections(database_url)
            broker.start()
        watching.send_signal(signal.SIGINT)
        _, wrong = await asyncio.wait_for(watching.communicate(), 30)
    assert (watching.returncode, wrong.decode()) == (130, "")


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_reader_who_fell_behind_has_every_text_to_its_end(
    make_fleet: MakeFleet, broker: Valkey, database_url: str, tmp_path: Path
) -> None:
    """The last piece of a text comes after the reader has read the whole text from the table."""
    fleet = await make_fleet()
    await fleet.add_group("demo", SCRIPT)
    session_id = (await fleet.send("hello")).session_id
    await fleet.settle_down()
    stored, [turn] = await fleet.events(), await fleet.turns()
    seen = len(stored)
    env = _env(database_url, broker, tmp_path) | {"PYTHONUNBUFFERED": "1"}
    async with open_process(["longshore", "tail", session_id], env, tmp_path) as watching:
        await asyncio.wait_for(watching.stdout.readuntil("■ done".encode()), 30)
        with redis.Redis(port=broker.port) as client:

            def publish(event: AnyEvent, **place: int) -> None:
                client.publish(channel_of(session_id), envelope(session_id, event, turn_id=turn.id, **place).to_json())

            publish(TextDelta(text="13 ", offset=0), after=seen)
            await asyncio.wait_for(watching.stdout.readuntil("│ 13 ".encode()), 30)
            touched = FilesTouched(paths=("a.txt",))
            lasting: tuple[AnyEvent, ...] = (Message(text="13 tide.txt"), touched)
            for number, event in enumerate(lasting, seen + 1):
                row = {"session_id": session_id, "seq": number, "turn_id": turn.id, "type": event.type}
                await fleet.insert(Event, row | {"payload": event.model_dump(mode="json")})
            publish(touched, seq=seen + 2)
            publish(TextDelta(text="tide.txt", offset=3), after=seen)
        shown = await asyncio.wait_for(watching.stdout.readuntil("✎ a.txt".encode()), 30)
        watching.send_signal(signal.SIGINT)
        rest, _ = await asyncio.wait_for(watching.communicate(), 30)
    assert shown.decode() == "tide.txt\n✎ a.txt"
    assert "tide" not in rest.decode()


def _env(database_url: str, broker: Valkey, folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
        "DATABASE_URL": database_url,
        "REDIS_URL": broker.url,
        "DEFAULT_PROVIDER": "scripted",
        "LONGSHORE_HOME": str(folder / "home"),
    }


def _end_connections(url: str) -> None:
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(query, (conn.info.backend_pid,))


async def test_a_database_that_was_away_for_long_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(messages, "AGAIN_SECONDS", 0)

    class Follower:
        tries = 0

        async def events(self) -> AsyncIterator[str]:
            self.tries += 1
            yield f"event {self.tries}"
            raise DatabaseDownError("the database does not answer")

    seen: list[object] = []
    async for item in messages._without_end(Follower()):  # type: ignore[arg-type]
        seen.append(item)
        if len(seen) == 3:
            break
    assert seen == ["event 1", "event 2", "event 3"]
    assert capsys.readouterr().err.count("the database does not answer: watching goes on") == 2


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_whoever_stops_waiting_is_told_that_the_message_stays(
    make_fleet: MakeFleet, broker: Valkey, database_url: str, tmp_path: Path
) -> None:
    fleet = await make_fleet()
    await fleet.add_group("demo", SCRIPT)
    command, env = ["longshore", "send", "demo", "hello"], _env(database_url, broker, tmp_path)
    async with open_process(command, env, tmp_path) as sending:
        waits = await asyncio.wait_for(sending.stderr.readuntil(b"it is answered as soon as one starts"), 30)
        assert b"no worker listens" in waits
        sending.send_signal(signal.SIGINT)
        _, told = await asyncio.wait_for(sending.communicate(), 30)
    assert sending.returncode == 130
    [session] = await fleet.sessions()
    assert f"it is answered all the same: longshore tail {session.id[-8:]}" in told.decode()
    assert [row.status for row in await fleet.inbox()] == ["pending"]
