"""Nothing leaves a replay, and nothing of it becomes real: what an agent says, asks, schedules, makes or writes in one
stays in it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.channel_port import Destination
from adapters.channels.fake import FakeChannel
from adapters.registry import Drivers, Registry
from models import AgentGroup, Approval, MessageIn, MessageOut, PendingQuestion, TranscriptItem, User, UserRole, Wiring
from models.groups import ensure_messaging_group
from tests.support.api_fleet import model_api
from tests.support.database_contents import grow_older
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import Usage as Used
from tests.support.model_api import reply, rule, script
from tests.support.servers import private_folder
from workers import scratch
from workers.consent.approvals import decide
from workers.consent.questions import give_answer
from workers.house import ring_for
from workers.operations import sessions
from workers.operations.replays import Replay, compare, replay
from workers.outbox import tidy
from workers.refusals import RefusedError
from workers.retention import prune_round

pytestmark = pytest.mark.spec("M15")


class Watched(FakeChannel):
    """Remembers that a sign was shown, also when it was taken away again."""

    def __init__(self) -> None:
        super().__init__()
        self.signs: list[bool] = []

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        self.signs.append(on)
        await super().show_typing(destination, on=on, doing=doing)


@pytest.fixture
async def platform(make_fleet: MakeFleet) -> tuple[Fleet, Watched]:
    channel = Watched()
    return await make_fleet(Registry(channels=Drivers("channel", {"fake": channel}))), channel


def scene(*acts: str) -> str:
    return "\n".join(["- play:", *(f"    - {act}" for act in acts), "    - answer: 'done: {result}'"])


async def _replayed(fleet: Fleet, channel: Watched, *acts: str, **wish: Any) -> Replay:
    """An innocent conversation, said again to an agent that does these things now."""
    config: dict[str, Any] = {"provider_options": {"script": "Hello."}, "policy": {"agents": ["*"]}}
    group = await fleet.add_group(config=config)
    await fleet.add_group("other", script="I hear.")
    place = await fleet.db.transact(lambda conn: ensure_messaging_group(conn, "fake", "elsewhere"))
    await fleet.insert(Wiring, {"messaging_group_id": place, "agent_group_id": group})
    said = {"channel_type": "fake", "platform_id": "room", "sender_id": "ann", "message_id": "m"}
    original = (await fleet.send("go", **said)).session_id
    await fleet.settle_down()
    channel.shown.clear()
    channel.signs.clear()
    config["provider_options"] = {"script": scene(*acts)}
    await fleet.execute(update(AgentGroup).where(AgentGroup.id == group).values(config=config))
    made = await replay(fleet.runtime, "cli", original, **wish)
    await fleet.settle_down()
    return made


async def _result(fleet: Fleet, made: Replay) -> str:
    [pair] = await fleet.db.read(lambda conn: compare(conn, made.session_id))
    assert pair.replayed.status == "completed", pair.replayed.error
    return str(pair.replayed.answers[-1]["text"])


async def test_what_it_says_stays_in_it(platform: tuple[Fleet, Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, channel = platform
    folder = fleet.runtime.settings.workspace_root / "demo"
    folder.mkdir(parents=True)
    (folder / "report.txt").write_text("figures")
    made = await _replayed(
        fleet,
        channel,
        "{tool: send_message, with: {text: here}}",
        "{tool: send_message, with: {text: there, channel: fake, platformId: elsewhere}}",
        "{tool: send_file, with: {path: report.txt}}",
        "{tool: send_card, with: {card: {title: Choose, actions: [{label: One}]}}}",
        "{tool: edit_message, with: {messageId: 2, text: changed}}",
        "{tool: add_reaction, with: {messageId: 1, emoji: thumbs_up}}",
        "{tool: send_to_agent, with: {agentGroupId: other, text: psst}}",
    )
    assert "sent to other" in await _result(fleet, made)
    assert (channel.shown, channel.files, channel.reactions, channel.signs) == ([], {}, [], [])
    rows = [row for row in await fleet.outbox() if row.session_id == made.session_id]
    assert len(rows) == 8
    assert {(row.status, row.error) for row in rows} == {("cancelled", "replay: not delivered")}
    assert {row.session_id for row in await fleet.inbox()} == {made.session_id, made.replay_of}, "no other agent heard"
    # Whoever looks later finds nothing to send, and the copied file goes as that of any cancelled message.
    found = await fleet.sweep()
    assert (found.deliveries, found.doubtful) == ([], [])
    outbox = fleet.runtime.outbox
    monkeypatch.setattr(outbox, "waiting", lambda _: [path.name for path in outbox.root.iterdir()])
    await tidy(fleet.db, outbox)
    assert list(outbox.root.iterdir()) == []


@pytest.mark.parametrize(
    "act",
    [
        "{tool: schedule_task, with: {prompt: later, processAfter: '2100-01-01T00:00:00Z'}}",
        "{tool: send_message, with: {text: later, deliverAfter: '2100-01-01T00:00:00Z'}}",
        "{tool: send_message, with: {text: later, recurrence: '@daily'}}",
        "{tool: reset_session, with: {}}",
    ],
    ids=["task", "reminder", "recurring", "reset"],
)
@pytest.mark.parametrize("delivery", [False, True])
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_what_would_last_is_refused(platform: tuple[Fleet, Watched], act: str, delivery: bool) -> None:
    fleet, channel = platform
    made = await _replayed(fleet, channel, act, delivery=delivery)
    text = await _result(fleet, made)
    assert "this is a replay" in text, text
    assert len([row for row in await fleet.inbox() if row.session_id == made.session_id]) == 1
    assert [row for row in await fleet.outbox() if row.scheduled_for is not None] == []
    assert {row.status for row in await fleet.sessions()} == {"active"}


async def test_an_agent_that_it_wants_to_make_is_not_made_even_if_somebody_approves(
    platform: tuple[Fleet, Watched],
) -> None:
    fleet, channel = platform
    await fleet.insert(User, {"id": "fake:ann", "kind": "fake"})
    await fleet.insert(UserRole, {"user_id": "fake:ann", "role": "owner"})
    wants = "{tool: register_agent_group, with: {name: X, folder: x, platformId: p, channelType: fake}}"
    made = await _replayed(fleet, channel, wants)
    [approval] = await fleet.rows(Approval)
    assert (approval.status, approval.session_id, channel.shown) == ("pending", made.session_id, [])
    decided = await decide(fleet.db, approval.id, approve=True)
    ring_for(fleet.runtime, decided.wakes, decided.deliveries)
    await fleet.settle_down()
    assert "this is a replay" in await _result(fleet, made)
    assert channel.shown == []
    assert {row.folder for row in await fleet.rows(AgentGroup)} == {"demo", "other"}


async def test_a_question_is_asked_inside_and_answered_inside(platform: tuple[Fleet, Watched]) -> None:
    fleet, channel = platform
    ask = "{tool: ask_user_question, with: {title: Tea, question: 'When?', options: [Now, Later], timeout: 900}}"
    made = await _replayed(fleet, channel, ask)
    [question] = await fleet.rows(PendingQuestion)
    assert (question.status, question.session_id, channel.shown) == ("pending", made.session_id, [])
    answered = await give_answer(fleet.db, question.id, "Now", "cli")
    fleet.bells.wake(answered.session_id, answered.provider or "scripted")
    fleet.bells.deliveries += answered.deliveries
    await fleet.settle_down()
    assert await _result(fleet, made) == "done: Now"
    assert channel.shown == []


async def test_a_failed_turn_tells_nobody(platform: tuple[Fleet, Watched]) -> None:
    fleet, channel = platform
    made = await _replayed(fleet, channel, "fail: {class: auth, message: no}")
    [pair] = await fleet.db.read(lambda conn: compare(conn, made.session_id))
    assert (pair.replayed.status, channel.shown) == ("failed", [])
    assert {row.status for row in await fleet.outbox() if row.session_id == made.session_id} == {"cancelled"}


async def test_it_works_on_a_copy_of_the_folder_that_goes_with_it(platform: tuple[Fleet, Watched]) -> None:
    fleet, channel = platform
    root: Path = fleet.runtime.settings.workspace_root
    (root / "demo" / "notes").mkdir(parents=True)
    (root / "demo" / "notes" / "a.txt").write_text("as it was")
    (root / "demo" / "out").symlink_to("/etc")
    made = await _replayed(
        fleet,
        channel,
        "touch: touched.txt",
        "{tool: write_file, with: {path: notes/b.txt, content: new}}",
        "{tool: read_file, with: {path: notes/a.txt}}",
    )
    assert "as it was" in await _result(fleet, made)
    copy = root / scratch.FOLDER / made.session_id
    assert (copy / "touched.txt").read_text() == "go"
    assert (copy / "notes" / "b.txt").read_text() == "new"
    assert (copy / "out").is_symlink()
    assert sorted(path.name for path in (root / "demo").rglob("*")) == ["a.txt", "notes", "out"]
    await sessions.close(fleet.runtime, "cli", made.session_id)
    assert not copy.exists()
    assert (root / "demo" / "notes" / "a.txt").exists()


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_command_of_a_replay_changes_the_copy(make_fleet: MakeFleet) -> None:
    folder = private_folder()
    try:
        fleet = await make_fleet(workspace_root=folder / "workspaces")
        makes = scene("{tool: run_command, with: {argv: [touch, made.txt]}}")
        config = {"provider_options": {"script": makes}, "policy": {"commands": ["touch"]}}
        await fleet.add_group(config=config)
        original = (await fleet.send("go")).session_id
        await fleet.settle_down()
        own = folder / "workspaces" / "demo" / "made.txt"
        assert own.exists(), [row.content for row in await fleet.outbox()]
        own.unlink()
        made = await replay(fleet.runtime, "cli", original)
        await fleet.settle_down()
        copy = folder / "workspaces" / scratch.FOLDER / made.session_id
        assert (copy / "made.txt").exists(), await _result(fleet, made)
        assert not own.exists()
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_folder_that_is_too_large_is_refused_before_anything_is_made(
    platform: tuple[Fleet, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, channel = platform
    made = await _replayed(fleet, channel, "think: hm")
    folder = fleet.runtime.settings.workspace_root / "demo"
    for number in range(4):
        (folder / f"{number}.txt").write_text("x" * 10)
    count = len(await fleet.sessions())
    for limits in ({"files": 3}, {"bytes": 39}):
        monkeypatch.setattr(scratch, "_Left", lambda limits=limits: _left(**limits))
        with pytest.raises(RefusedError, match="too large to copy"):
            await replay(fleet.runtime, "cli", made.replay_of)
    assert len(await fleet.sessions()) == count
    # It may have grown since: then its worker says so, and nothing of it is run.
    monkeypatch.setattr("workers.operations.replays.check_size", lambda *_: None)
    again = await replay(fleet.runtime, "cli", made.replay_of)
    await fleet.settle_down()
    [pair] = await fleet.db.read(lambda conn: compare(conn, again.session_id))
    assert pair.replayed.status == "failed"
    assert "too large to copy" in (pair.replayed.error or "")
    assert [path.name for path in (fleet.runtime.settings.workspace_root / scratch.FOLDER).iterdir()] == [
        made.session_id
    ]


_LEFT = scratch._Left


def _left(**limits: int) -> Any:
    return _LEFT(**limits)


async def test_a_replay_asks_nobody_for_money(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others would wait for the answer to a question that nobody heard."""
    price = {"price": {"input": 1.0, "output": 100.0}, "max_tokens": 1000}
    dear = reply("Hello.", usage=Used(input=1_000_000, output=0, cache_read=0, cache_write=0))
    async with model_api(monkeypatch, script(rule(".", dear, repeat=True))):
        config = {"provider_options": price, "budget": {"daily_usd": 1.0}}
        await fleet.add_group(provider="anthropic", model="claude-haiku-5-5", config=config)
        original = (await fleet.send("hello")).session_id
        await fleet.settle_down()
        made = await replay(fleet.runtime, "cli", original)
        await fleet.settle_down()
    [pair] = await fleet.db.read(lambda conn: compare(conn, made.session_id))
    assert pair.replayed.status == "failed"
    assert "a replay does not ask for more" in (pair.replayed.error or "")
    assert await fleet.rows(Approval) == []


async def test_old_replays_are_closed_and_pruned_with_their_folders(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(keep_days=7)
    await fleet.add_group(script="You said: {texts}")
    original = (await fleet.send("one")).session_id
    await fleet.settle_down()
    old = await replay(fleet.runtime, "cli", original)
    await fleet.settle_down()
    await grow_older(fleet.db, 8)
    await fleet.send("two")
    await fleet.settle_down()
    young = await replay(fleet.runtime, "cli", original, turns=[2])
    await fleet.settle_down()
    root = fleet.runtime.settings.workspace_root / scratch.FOLDER
    assert {path.name for path in root.iterdir()} == {old.session_id, young.session_id}
    await prune_round(fleet.db, fleet.runtime.settings)
    states = {row.id: row.status for row in await fleet.sessions()}
    assert states == {original: "active", old.session_id: "closed", young.session_id: "active"}
    assert {path.name for path in root.iterdir()} == {young.session_id}
    assert {row.session_id for row in await fleet.rows(MessageIn)} == {original, young.session_id}
    assert {row.session_id for row in await fleet.rows(MessageOut)} == {original, young.session_id}
    assert old.session_id not in {row.session_id for row in await fleet.rows(TranscriptItem)}
    [pair] = await fleet.db.read(lambda conn: compare(conn, young.session_id))
    assert (pair.original.status, pair.replayed.status) == ("completed", "completed")
    assert await fleet.db.read(lambda conn: compare(conn, old.session_id)) == []
