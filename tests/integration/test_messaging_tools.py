"""What an agent says on the way: messages to other places, files, cards, edits, reactions."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from adapters.channel_port import ChannelCapabilities
from adapters.channels.fake import FakeChannel
from adapters.channels.local import LocalChannel
from adapters.errors import ChannelError, DeliveryError
from adapters.registry import Drivers, Registry
from models import MessageOut, Session, Wiring
from models.base import now
from models.groups import MessagingGroup, ensure_messaging_group
from tests.support.fleet import Fleet, MakeFleet
from workers import toolbox
from workers.actions.table import perform
from workers.delivery import sending as delivery
from workers.outbox import tidy


def scene(*acts: str) -> str:
    return "\n".join(["- play:", *(f"    - {act}" for act in acts), "    - answer: 'done: {result}'"])


@pytest.fixture
async def platform(make_fleet: MakeFleet, tmp_path: Path) -> tuple[Fleet, FakeChannel]:
    channel = FakeChannel()
    channels: dict[str, Any] = {"fake": channel, "local": LocalChannel(tmp_path)}
    fleet = await make_fleet(Registry(channels=Drivers("channel", channels)))
    return fleet, channel


async def run(fleet: Fleet, script: str, config: dict[str, Any] | None = None, **fields: Any) -> None:
    await fleet.add_group(config={"provider_options": {"script": script}} | (config or {}))
    await fleet.send("go", channel_type="fake", platform_id="room", message_id="in-1", sender_id="ann", **fields)
    await fleet.settle_down()


def texts(channel: FakeChannel) -> list[str]:
    return [message.content["text"] for message in channel.shown]


@pytest.mark.spec("T2", "D5")
async def test_a_message_has_a_number_and_can_be_changed_by_it(platform: tuple[Fleet, FakeChannel]) -> None:
    fleet, channel = platform
    await run(
        fleet,
        scene(
            "{tool: send_message, with: {text: frist}}",
            "{tool: edit_message, with: {messageId: 2, text: first}}",
            "{tool: add_reaction, with: {messageId: 1, emoji: thumbs_up}}",
        ),
    )
    assert texts(channel) == ["first", "done: reacted to message 1"]
    assert channel.reactions == [("in-1", "thumbs_up")]
    rows = await fleet.outbox()
    assert [row.status for row in rows] == ["delivered"] * 4
    assert {row.platform_id for row in rows} == {"room"}


@pytest.mark.spec("T2")
@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        ("{tool: edit_message, with: {messageId: 1, text: x}}", "no message 1 of yours"),
        ("{tool: edit_message, with: {messageId: 99, text: x}}", "no message 99 of yours"),
        ("{tool: add_reaction, with: {messageId: 99, emoji: x}}", "no message 99 here"),
        ("{tool: send_message, with: {text: x, channel: fake}}", "channel and platformId go together"),
        ("{tool: send_message, with: {text: x, to: nowhere}}", "no destination 'nowhere'"),
        ("{tool: send_message, with: {text: x, channel: fake, platformId: elsewhere}}", "not wired there"),
        ("{tool: send_message, with: {text: x, channel: agent, platformId: demo}}", "use send_to_agent"),
        ("{tool: send_message, with: {text: ''}}", "text"),
        ("{tool: send_card, with: {card: {}}}", "the card is empty"),
        ("{tool: send_file, with: {path: ../../etc/passwd}}", "workspace"),
        ("{tool: send_file, with: {path: nothing.txt}}", "nothing.txt"),
        ("{tool: send_to_agent, with: {agentGroupId: x, text: x}}", "no tool 'send_to_agent'"),
    ],
)
async def test_what_cannot_be_sent_is_told_and_the_turn_lives_on(
    platform: tuple[Fleet, FakeChannel], act: str, complaint: str
) -> None:
    fleet, channel = platform
    await run(fleet, scene(act))
    [answer] = texts(channel)
    assert complaint in answer
    assert [turn.status for turn in await fleet.turns()] == ["completed"]


@pytest.mark.spec("T2")
async def test_named_and_wired_places(platform: tuple[Fleet, FakeChannel]) -> None:
    fleet, channel = platform
    config = {"policy": {"destinations": {"alerts": {"channel_type": "fake", "platform_id": "ops"}}}}
    group = await fleet.add_group(
        config=config
        | {
            "provider_options": {
                "script": scene(
                    "{tool: send_message, with: {text: fire, to: alerts}}",
                    "{tool: send_message, with: {text: smoke, channel: fake, platformId: ops, threadId: t1}}",
                )
            }
        }
    )
    place = await fleet.db.transact(lambda conn: ensure_messaging_group(conn, "fake", "ops"))
    await fleet.insert(Wiring, {"messaging_group_id": place, "agent_group_id": group})
    await fleet.send("go", channel_type="fake", platform_id="room")
    await fleet.settle_down()
    went = [(m.content["text"], m.destination.platform_id, m.destination.thread_id) for m in channel.shown]
    assert sorted(went[:2]) == [("fire", "ops", None), ("smoke", "ops", "t1")]
    assert went[2][1] == "room"


@pytest.mark.spec("T2")
async def test_a_card_has_a_text_for_where_there_are_no_cards(platform: tuple[Fleet, FakeChannel]) -> None:
    fleet, channel = platform
    card = "{title: Deploy, children: [{text: to production}], actions: [{label: 'Yes'}]}"
    await run(fleet, scene(f"{{tool: send_card, with: {{card: {card}}}}}"))
    sent = channel.shown[0]
    assert sent.kind == "chat-sdk"
    assert sent.content["card"]["title"] == "Deploy"
    assert sent.content["text"] == "Deploy\nto production"


@pytest.mark.spec("T2")
async def test_a_file_is_copied_sent_and_cleaned_up(platform: tuple[Fleet, FakeChannel]) -> None:
    fleet, channel = platform
    workspace = await fleet.runtime.workspace("demo")
    workspace.write("out/report.pdf", b"%PDF-1.7 numbers")
    await run(fleet, scene("{tool: send_file, with: {path: out/report.pdf, text: here, filename: Q3.pdf}}"))
    assert channel.files == {"Q3.pdf": b"%PDF-1.7 numbers"}
    assert channel.shown[0].content == {"text": "here", "files": [{"name": "Q3.pdf", "size": 16}]}
    assert list(fleet.runtime.outbox.root.iterdir()) == []


@pytest.mark.spec("T2", "M12")
async def test_a_file_waits_in_the_outbox_until_it_is_delivered(platform: tuple[Fleet, FakeChannel]) -> None:
    fleet, channel = platform
    workspace = await fleet.runtime.workspace("demo")
    workspace.write("a.txt", b"first")
    channel.failures = [DeliveryError("no line", retryable=True)]
    await fleet.add_group(script=scene("{tool: send_file, with: {path: a.txt}}"))
    await fleet.send("go", channel_type="fake", platform_id="room")
    await fleet.settle_down()
    workspace.write("a.txt", b"changed meanwhile")
    assert channel.files == {}
    [folder] = fleet.runtime.outbox.root.iterdir()
    [row] = [row for row in await fleet.outbox() if row.content.get("outbox")]
    assert folder.name == row.id
    await _until_delivered(fleet, row.id)
    assert channel.files == {"a.txt": b"first"}
    assert list(fleet.runtime.outbox.root.iterdir()) == []


async def _until_delivered(fleet: Fleet, message_id: str) -> None:
    """The retry has a date a few hundredths of a second away."""
    while {row.id: row.status for row in await fleet.outbox()}[message_id] != "delivered":
        await fleet.sweep()
        await fleet.settle_down()


class PlainPlatform(FakeChannel):
    """One that can only send."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = ChannelCapabilities(idempotent=True)


class StubbornPlatform(FakeChannel):
    async def edit(self, *_: Any) -> None:
        raise ChannelError("too old to edit")


@pytest.mark.spec("T2")
async def test_where_the_platform_cannot_it_is_said_in_words(make_fleet: MakeFleet) -> None:
    channel = PlainPlatform()
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": channel})))
    workspace = await fleet.runtime.workspace("demo")
    workspace.write("a.txt", b"a")
    await run(
        fleet,
        scene(
            "{tool: send_message, with: {text: one}}",
            "{tool: edit_message, with: {messageId: 2, text: two}}",
            "{tool: add_reaction, with: {messageId: 1, emoji: wave}}",
            "{tool: send_file, with: {path: a.txt, text: look}}",
        ),
    )
    assert texts(channel)[:3] == ["one", "two", "look\n[a.txt: files cannot be sent here]"]
    assert channel.files == {}
    assert list(fleet.runtime.outbox.root.iterdir()) == []


@pytest.mark.spec("T2", "M12")
async def test_an_edit_the_platform_refuses_is_told_to_the_agent(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": StubbornPlatform()})))
    await run(
        fleet,
        scene("{tool: send_message, with: {text: a}}", "{tool: edit_message, with: {messageId: 2, text: b}}"),
    )
    edit = next(row for row in await fleet.outbox() if row.content.get("operation") == "edit")
    assert (edit.status, edit.error) == ("failed", "too old to edit")
    assert any(row.kind == "system" and row.content["status"] == "failed" for row in await fleet.inbox())


async def test_the_local_channel_keeps_files_where_people_find_them(
    platform: tuple[Fleet, FakeChannel], tmp_path: Path
) -> None:
    fleet, _ = platform
    (await fleet.runtime.workspace("demo")).write("a.txt", b"for you")
    await fleet.add_group(script=scene("{tool: send_file, with: {path: a.txt}}"))
    await fleet.send("go")
    await fleet.settle_down()
    row = next(row for row in await fleet.outbox() if row.content.get("outbox"))
    [path] = row.receipt["files"]
    assert Path(path).read_bytes() == b"for you"
    assert Path(path).is_relative_to(tmp_path / "received")


async def test_places_are_not_made_by_asking_for_them(platform: tuple[Fleet, FakeChannel]) -> None:
    fleet, _ = platform
    await run(fleet, scene("{tool: send_message, with: {text: x, channel: fake, platformId: secret-room}}"))
    found = await fleet.db.read(lambda conn: conn.execute(select(MessagingGroup.platform_id)))
    assert set(found.scalars()) == {"room"}


@pytest.mark.spec("T2", "M7")
async def test_a_file_whose_worker_died_after_copying_it_is_sent_whole_and_once(
    platform: tuple[Fleet, FakeChannel], make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, channel = platform
    (await fleet.runtime.workspace("demo")).write("a.txt", b"whole")
    await fleet.add_group(script=scene("{tool: send_file, with: {path: a.txt}}"))
    await fleet.send("go", channel_type="fake", platform_id="room")

    async def dies(*_: Any) -> Any:
        raise asyncio.CancelledError

    monkeypatch.setattr(toolbox, "perform", dies)
    assert await fleet.answer_wakes() == ["lost"]
    [left] = fleet.runtime.outbox.root.iterdir()
    (left / "a.txt").write_bytes(b"ha")
    monkeypatch.setattr(toolbox, "perform", perform)
    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))
    await fleet.sweep()
    await fleet.settle_down()
    assert channel.files == {"a.txt": b"whole"}
    assert len([message for message in channel.shown if message.files]) == 1


@pytest.mark.spec("T2")
async def test_what_a_crash_left_in_the_outbox_is_tidied_up(platform: tuple[Fleet, FakeChannel]) -> None:
    fleet, channel = platform
    (await fleet.runtime.workspace("demo")).write("a.txt", b"a")
    channel.failures = [DeliveryError("gone", retryable=False)]
    await run(fleet, scene("{tool: send_file, with: {path: a.txt}}"))
    outbox = fleet.runtime.outbox
    [kept] = outbox.root.iterdir()  # of a message that failed: somebody may send it again
    answer = (await fleet.outbox())[-1]
    for name in (answer.id, "of-a-turn-that-was-never-written"):
        (outbox.root / name).mkdir()
    fresh = outbox.root / "fresh"
    fresh.mkdir()
    for folder in (kept, outbox.root / answer.id, outbox.root / "of-a-turn-that-was-never-written"):
        os.utime(folder, (1, 1))
    await tidy(fleet.db, outbox)
    assert set(outbox.root.iterdir()) == {kept, fresh}


@pytest.mark.spec("T2", "M12")
async def test_a_local_file_whose_sender_died_is_still_received(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """The row was claimed, nothing was copied yet: the message must not count as delivered without its file."""
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"local": LocalChannel(tmp_path)})))
    (await fleet.runtime.workspace("demo")).write("a.txt", b"for you")
    await fleet.add_group(script=scene("{tool: send_file, with: {path: a.txt}}"))
    await fleet.send("go")
    await fleet.answer_wakes()
    row = next(row for row in await fleet.outbox() if row.content.get("outbox"))
    assert await delivery._claim(fleet.runtime, row.id) is not None
    await fleet.execute(update(MessageOut).values(claim_expires_at=now(-1), rung_at=now(-60)))
    fleet.bells.deliveries.clear()
    await fleet.sweep()
    await fleet.settle_down()
    assert [path.read_bytes() for path in (tmp_path / "received").rglob("a.txt")] == [b"for you"]
