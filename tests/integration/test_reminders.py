"""Messages with a date: said then, once, without the agent; again and again if they recur; never early."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import Channel
from adapters.channels.fake import FakeChannel
from adapters.channels.local import LocalChannel
from adapters.channels.web import WebChannel
from adapters.errors import DeliveryError
from adapters.registry import Drivers, Registry
from gateway.cli.chat_log import recent_messages, sent_on_the_way
from models import AgentGroup, MessageOut, MessagingGroup, Session, Turn, Usage, User, UserDm, UserRole, Wiring
from models.base import new_id, now
from models.dead_letters import resend
from models.fates import fate_of
from models.groups import ensure_messaging_group
from models.lookup import short
from models.outbox import claim_delivery
from models.overview import counts
from models.reminders import cancel_reminder, find_reminders, reminders_of
from models.web_chats import said_in_room
from scheduler.reminders import MAX_FAILURES, repeat_reminders
from tests.support.database_locks import wait_for_blocked_query
from tests.support.fleet import Fleet, MakeFleet
from tests.support.forgetful_provider import ForgetfulProvider
from workers.actions.reminders import MAX_REMINDERS
from workers.delivery import sending
from workers.toolbox import JournaledToolBox

pytestmark = pytest.mark.both_databases

TOMORROW = (datetime.now(UTC) + timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
WATER: dict[str, Any] = {"text": "water the plants", "deliverAfter": TOMORROW.isoformat()}
# So seldom that no test runs over the moment it comes due.
YEARLY: dict[str, Any] = WATER | {"recurrence": "@yearly", "timezone": "Europe/Vienna"}
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, channel: FakeChannel, tmp_path: Path) -> Fleet:
    fleet = await make_fleet(registry(channel, tmp_path), max_tries=1)
    await fleet.add_group()
    return fleet


def registry(channel: FakeChannel, folder: Path, **more: Any) -> Registry:
    made: dict[str, Channel] = {"fake": channel, "local": LocalChannel(folder), "web": WebChannel()}
    return Registry(channels=Drivers("channel", made=made), **more)


async def teach(fleet: Fleet, *acts: dict[str, Any]) -> None:
    """What the agent does from now on, whatever it is asked."""
    script = yaml.safe_dump([{"play": [*acts, {"answer": "{result}" if acts else "done"}]}])
    await fleet.execute(update(AgentGroup).values(config={"provider_options": {"script": script}}))


def act(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "with": arguments}


async def ask(fleet: Fleet, tool: str = "send_message", place: str = "room", **arguments: Any) -> str:
    """Somebody says something, and the agent makes this call. Returns what it came to; all that is due is said."""
    await teach(fleet, act(tool, **arguments))
    accepted = await fleet.send("go", channel_type="fake", platform_id=place)
    assert await fleet.answer_wakes() == ["completed"]
    [answer] = [row for row in await fleet.outbox() if row.in_reply_to == accepted.message_id and row.kind == "chat"]
    await fleet.settle_down()
    return str(answer.content["text"])


async def reminders(fleet: Fleet) -> list[Any]:
    rows = await fleet.rows(MessageOut, MessageOut.scheduled_for, MessageOut.id)
    return [row for row in rows if row.scheduled_for is not None]


async def come_due(fleet: Fleet, seconds_ago: float = 60) -> None:
    """What waits has its date so long ago."""
    waiting = (MessageOut.scheduled_for.is_not(None), MessageOut.status == "pending")
    # Its key names the date it had, which may come again.
    moved = {"scheduled_for": now(-seconds_ago), "deliver_after": now(-seconds_ago), "idempotency_key": MessageOut.id}
    await fleet.execute(update(MessageOut).where(*waiting).values(moved))


async def try_again(fleet: Fleet) -> None:
    """What could not be sent is due."""
    again = {"deliver_after": now(-1), "rung_at": now(-60)}
    await fleet.execute(update(MessageOut).where(MessageOut.status == "pending").values(again))
    await look(fleet)


async def look(fleet: Fleet) -> None:
    """One sweep, and all it rings for."""
    await fleet.sweep()
    await fleet.settle_down()


async def add_owner(fleet: Fleet) -> None:
    place = new_id()
    await fleet.insert(User, {"id": "fake:boss", "kind": "fake"})
    await fleet.insert(MessagingGroup, {"id": place, "channel_type": "fake", "platform_id": "dm-boss"})
    await fleet.insert(UserRole, {"user_id": "fake:boss", "role": "owner"})
    await fleet.insert(UserDm, {"user_id": "fake:boss", "channel_type": "fake", "messaging_group_id": place})


def reminded(channel: FakeChannel) -> list[str]:
    return [m.content["text"] for m in channel.shown if m.content["text"] in ("water the plants", "feed the cat")]


# --- Once --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("S1", "T2")
async def test_a_reminder_is_said_at_its_date_without_the_agent(fleet: Fleet, channel: FakeChannel) -> None:
    said = await ask(fleet, **WATER)
    [row] = await reminders(fleet)
    assert said.startswith(f"noted as reminder {short(row.id)}, to be sent as it is, without you; cancel_task takes it")
    assert f": {TOMORROW:%a} {TOMORROW.day} {TOMORROW:%b %Y, %H:%M} UTC, in 2" in said
    assert (row.status, row.deliver_after, row.scheduled_for) == ("pending", TOMORROW, TOMORROW)
    assert (row.series_id, row.recurrence, row.recurred) == (None, None, False)
    assert (row.channel_type, row.platform_id, row.content) == ("fake", "room", {"text": "water the plants"})
    await look(fleet)
    assert reminded(channel) == []
    assert (await fleet.db.read(counts))["unsent"] == 0

    await come_due(fleet)
    turns, spent = await fleet.turns(), await fleet.rows(Usage)
    await look(fleet)
    await look(fleet)
    assert reminded(channel) == ["water the plants"]
    [row] = await reminders(fleet)
    assert row.status == "delivered"
    assert (await fleet.turns(), await fleet.rows(Usage)) == (turns, spent), "it costs no model call"


@pytest.mark.spec("S1", "S6")
async def test_it_is_rung_for_as_soon_as_it_is_due(make_fleet: MakeFleet, channel: FakeChannel, tmp_path: Path) -> None:
    """Not only when the sweep would think that somebody's ring was lost."""
    fleet = await make_fleet(registry(channel, tmp_path), repeat_seconds=3600.0)
    await fleet.add_group()
    await ask(fleet, **WATER)
    await come_due(fleet)
    await look(fleet)
    assert reminded(channel) == ["water the plants"]


@pytest.mark.spec("S1")
async def test_whoever_rings_too_soon_rings_in_vain(fleet: Fleet, channel: FakeChannel) -> None:
    await ask(fleet, **WATER)
    [row] = await reminders(fleet)
    await sending.send(fleet.runtime, row.id)
    assert await fleet.db.transact(lambda conn: claim_delivery(conn, row.id, 60)) is None
    assert ((await reminders(fleet))[0].attempts, reminded(channel)) == (0, [])


@pytest.mark.spec("S1", "T2")
async def test_a_date_just_passed_is_now(fleet: Fleet, channel: FakeChannel) -> None:
    said = await ask(fleet, **WATER | {"deliverAfter": (datetime.now(UTC) - timedelta(minutes=2)).isoformat()})
    assert said.startswith("noted as reminder")
    assert reminded(channel) == ["water the plants"], "nobody has to wait for the sweep"


@pytest.mark.spec("T2", "D5")
async def test_a_reminder_to_another_place_is_checked_then_and_there(fleet: Fleet, channel: FakeChannel) -> None:
    elsewhere = WATER | {"channel": "fake", "platformId": "ops"}
    assert "not wired there" in await ask(fleet, **elsewhere)
    assert await reminders(fleet) == []
    [group] = await fleet.rows(AgentGroup)
    place = await fleet.db.transact(lambda conn: ensure_messaging_group(conn, "fake", "ops"))
    wiring = {"id": new_id(), "messaging_group_id": place, "agent_group_id": group.id}
    await fleet.insert(Wiring, wiring)
    assert "noted as reminder" in await ask(fleet, **elsewhere)
    await fleet.execute(Wiring.__table__.delete())  # type: ignore[attr-defined]
    await come_due(fleet)
    await look(fleet)
    [row] = await reminders(fleet)
    assert (row.status, row.error, reminded(channel)) == ("failed", "this agent may not send to fake 'ops'", [])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"deliverAfter": "2031-01-31T09:00:00"}, "deliverAfter: '2031-01-31T09:00:00' does not say in which zone"),
    ({"deliverAfter": "tomorrow"}, "deliverAfter: 'tomorrow' is not an ISO 8601 timestamp"),
    ({"deliverAfter": "2020-01-31T09:00:00Z"}, "2020-01-31T09:00:00+00:00 has passed: it is 20"),
    ({"deliverAfter": "9999-01-31T09:00:00Z"}, "deliverAfter must lie between the years"),
    ({"recurrence": "now and then"}, "is not a cron expression"),
    ({"recurrence": "* * * * * *"}, "at most once a minute"),
    ({"recurrence": "0 0 30 2 *"}, "is not a cron expression"),
    ({"timezone": "Mars/Olympus"}, "is not a time zone"),
    ({"text": ""}, "send_message: text: "),
    ({"channel": "agent", "platformId": "demo"}, "use send_to_agent"),
]


@ONE_DATABASE  # no row is looked at
@pytest.mark.spec("T2")
async def test_what_cannot_be_noted_is_refused_with_a_reason(fleet: Fleet, channel: FakeChannel) -> None:
    for arguments, complaint in REFUSED:
        assert complaint in await ask(fleet, **WATER | arguments)
    assert (await reminders(fleet), reminded(channel)) == ([], [])


@pytest.mark.spec("T2")
async def test_there_is_an_end_to_how_many(fleet: Fleet) -> None:
    await ask(fleet, **WATER)
    [row] = await reminders(fleet)
    copy = dict(row._mapping)
    texts = ({"id": f"copy-{n}", "idempotency_key": f"{n}", "content": {"text": f"{n}"}} for n in range(99))
    await fleet.insert(MessageOut, *(copy | one | {"seq": 1000 + n} for n, one in enumerate(texts)))
    assert f"{MAX_REMINDERS} reminders wait in this conversation already" in await ask(fleet, **YEARLY)
    assert "noted as reminder" in await ask(fleet, place="another room", **YEARLY)


@pytest.mark.spec("T2")
async def test_an_agent_that_asked_is_not_reminded(fleet: Fleet) -> None:
    """It would be work at somebody's cost, for ever, and nobody's to cancel."""
    await teach(fleet, act("send_to_agent", agentGroupId="other", text="remind me"))
    [group] = await fleet.rows(AgentGroup)
    await fleet.execute(update(AgentGroup).values(config=group.config | {"policy": {"agents": ["other"]}}))
    other = yaml.safe_dump([{"play": [act("send_message", **YEARLY), {"answer": "{result}"}]}])
    await fleet.add_group("other", script=other)
    await fleet.send("go", channel_type="fake", platform_id="room")
    await fleet.answer_wakes()
    deliveries, fleet.bells.deliveries = fleet.bells.deliveries, []
    for message_out_id in deliveries:
        await sending.send(fleet.runtime, message_out_id)
    assert await fleet.answer_wakes() == ["completed"]
    assert await reminders(fleet) == []
    [told] = [row for row in await fleet.outbox() if "a reminder is for people" in row.content["text"]]
    assert told.channel_type == "agent"


# --- Among what is said otherwise --------------------------------------------------------------------------------


@pytest.mark.spec("S1", "M12")
async def test_a_reminder_holds_no_answer_up_before_it_is_being_sent(fleet: Fleet, channel: FakeChannel) -> None:
    await ask(fleet, **WATER)
    await ask(fleet, **WATER | {"text": "feed the cat"})
    await come_due(fleet)
    await teach(fleet)
    await fleet.send("hello", channel_type="fake", platform_id="room")
    await fleet.settle_down()
    assert channel.shown[-1].content["text"] == "done", "nobody has rung for the reminder yet, and nobody waits for it"
    assert reminded(channel) == []

    water, cat = sorted(await reminders(fleet), key=lambda row: row.seq)
    await sending.send(fleet.runtime, cat.id)
    assert reminded(channel) == [], "those of one date keep their order"
    assert await fleet.db.transact(lambda conn: claim_delivery(conn, water.id, 60)) is not None
    await fleet.send("hello", channel_type="fake", platform_id="room")
    await fleet.settle_down()
    [waiting] = [row for row in await fleet.outbox() if row.status == "pending" and row.scheduled_for is None]
    assert waiting.content["text"] == "done", "one that is being sent is waited for"
    await fleet.execute(update(MessageOut).where(MessageOut.id == water.id).values(status="pending", claim_token=0))
    await look(fleet)
    assert [message.content["text"] for message in channel.shown[-3:]] == ["water the plants", "feed the cat", "done"]


@pytest.mark.spec("S1", "M12")
async def test_a_platform_that_asks_for_patience_gets_it_counted_from_the_date(
    make_fleet: MakeFleet, channel: FakeChannel, tmp_path: Path
) -> None:
    """Not from when it was noted, a year ago: that would use up its tries at once."""
    fleet = await make_fleet(registry(channel, tmp_path), max_tries=1, limit_seconds=300)
    await fleet.add_group()
    await ask(fleet, **WATER)
    await come_due(fleet)
    await fleet.execute(update(MessageOut).values(created_at=now(-365 * 86400)))
    channel.failures = [DeliveryError("429", retryable=True, retry_after=0.0)]
    await look(fleet)
    [row] = await reminders(fleet)
    assert (row.status, row.attempts) == ("pending", 0)
    await try_again(fleet)
    assert reminded(channel) == ["water the plants"]


@pytest.mark.spec("S1", "T2")
async def test_whoever_waits_for_the_answer_is_not_given_the_reminder(fleet: Fleet) -> None:
    await teach(fleet, act("send_message", **WATER))
    accepted = await fleet.send("go", channel_type="fake", platform_id="room")
    await fleet.settle_down()
    fate = await fleet.db.read(lambda conn: fate_of(conn, accepted.message_id))
    assert [row.content["text"][:17] for row in fate.said] == ["noted as reminder"]


@pytest.mark.parametrize("place", ["web", "local"])
@pytest.mark.spec("S1")
async def test_where_the_row_is_what_people_see_it_is_not_seen_before_its_date(fleet: Fleet, place: str) -> None:
    await teach(fleet, act("send_message", **WATER))
    accepted = await fleet.send("go", channel_type=place, platform_id="ann")
    await fleet.settle_down()

    async def seen() -> list[str]:
        if place == "web":
            rows = await fleet.db.read(lambda conn: said_in_room(conn, "ann", None, None))
            return [row.content["text"] for row in rows]
        said = await fleet.db.read(lambda conn: recent_messages(conn, accepted.session_id, 10))
        [turn] = await fleet.turns()
        on_the_way = await fleet.db.read(lambda conn: sent_on_the_way(conn, turn.id, 0))
        assert len(on_the_way) == 1, "the answer"
        return [one.text for one in said if one.sender is None]

    before = await seen()
    assert [text[:17] for text in before] == ["noted as reminder"]
    await come_due(fleet)
    assert await seen() == before, "nor while nobody has said it"
    await look(fleet)
    assert sorted(await seen()) == sorted([*before, "water the plants"])


# --- Noted once --------------------------------------------------------------------------------------------------

NOTES_THEN_FAILS: list[dict[str, Any]] = [
    act("send_message", **WATER),
    {"fail": {"class": "transport"}, "until_attempt": 2},
]


@pytest.mark.parametrize("said_meanwhile", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.spec("T2", "M9", "M10")
async def test_an_attempt_that_begins_anew_notes_nothing_twice(
    make_fleet: MakeFleet, channel: FakeChannel, tmp_path: Path, remembers: bool, said_meanwhile: bool
) -> None:
    """With its journal, because the call is found finished. Without it, because the same reminder is there already,
    or was: a turn that noted something has said nothing yet, and is run again."""
    providers = {} if remembers else {"providers": Drivers("provider", made={"scripted": ForgetfulProvider()})}
    fleet = await make_fleet(registry(channel, tmp_path, **providers))
    await fleet.add_group()
    await teach(fleet, *NOTES_THEN_FAILS)
    await fleet.send("go", channel_type="fake", platform_id="room")
    assert await fleet.answer_wakes() == ["waiting"]
    await fleet.execute(update(Session).values(resume_after=now(3600)))
    if said_meanwhile:
        [row] = await reminders(fleet)
        await fleet.execute(update(MessageOut).where(MessageOut.id == row.id).values(deliver_after=now(-1)))
        await look(fleet)
    await fleet.execute(update(Session).values(resume_after=now(-1)))
    [session] = await fleet.sessions()
    assert await fleet.wake(session.id) == "completed"
    fleet.bells.deliveries += [row.id for row in await fleet.outbox() if row.scheduled_for is None]
    await fleet.settle_down()
    [row] = await reminders(fleet)
    assert reminded(channel) == (["water the plants"] if said_meanwhile else [])
    said = channel.shown[-1].content["text"]
    assert said.startswith("noted as reminder" if remembers else f"that is noted already, as reminder {short(row.id)}")


@pytest.mark.parametrize(
    ("hours", "minutes", "noted"),
    [(0, 1.5, 1), (0, -1.5, 1), (0, 6, 2), (2, 120, 1), (2, 0, 1), (2, 60, 2)],
    ids=["slower", "rounded", "another", "in as many hours again", "at the same hour", "between"],
)
@pytest.mark.spec("T2", "M9", "M10")
async def test_an_attempt_that_computes_its_date_anew_notes_nothing_twice(
    make_fleet: MakeFleet, channel: FakeChannel, tmp_path: Path, hours: int, minutes: float, noted: int
) -> None:
    """`in 20 minutes` is another date the second time, so many `hours` later."""
    providers = Drivers("provider", made={"scripted": ForgetfulProvider()})
    fleet = await make_fleet(registry(channel, tmp_path, providers=providers))
    await fleet.add_group()
    await teach(fleet, *NOTES_THEN_FAILS)
    accepted = await fleet.send("go", channel_type="fake", platform_id="room")
    assert await fleet.answer_wakes() == ["waiting"]
    await teach(fleet, act("send_message", **WATER | {"deliverAfter": str(TOMORROW + timedelta(minutes=minutes))}))
    if hours:
        await go_back(fleet, timedelta(hours=hours))
    await fleet.execute(update(Session).values(resume_after=now(-1)))
    assert await fleet.wake(accepted.session_id) == "completed"
    assert len(await reminders(fleet)) == noted


async def go_back(fleet: Fleet, time: timedelta) -> None:
    """The attempt so far was so long ago; what it noted keeps its date."""
    [turn], [noted] = await fleet.turns(), await reminders(fleet)
    await fleet.execute(update(Turn).values(started_at=turn.started_at - time))
    await fleet.execute(update(MessageOut).where(MessageOut.id == noted.id).values(created_at=noted.created_at - time))


@pytest.mark.spec("T2")
async def test_one_attempt_may_note_the_same_for_several_dates(fleet: Fleet) -> None:
    soon = WATER | {"deliverAfter": (TOMORROW + timedelta(minutes=1)).isoformat()}
    await teach(fleet, act("send_message", **WATER), act("send_message", **soon))
    await fleet.send("go", channel_type="fake", platform_id="room")
    assert await fleet.answer_wakes() == ["completed"]
    assert len(await reminders(fleet)) == 2


@pytest.mark.spec("T2", "M10")
async def test_what_is_said_at_once_is_said_by_the_turn(
    make_fleet: MakeFleet, channel: FakeChannel, tmp_path: Path
) -> None:
    """A date that has just passed: whoever would say it again, in other words, is not run again."""
    providers = Drivers("provider", made={"scripted": ForgetfulProvider()})
    fleet = await make_fleet(registry(channel, tmp_path, providers=providers))
    await fleet.add_group()
    just_now = WATER | {"deliverAfter": (datetime.now(UTC) - timedelta(minutes=2)).isoformat()}
    await teach(fleet, act("send_message", **just_now), {"fail": {"class": "transport"}})
    await fleet.send("go", channel_type="fake", platform_id="room")
    assert await fleet.answer_wakes() == ["failed"]
    [row] = await reminders(fleet)
    [turn] = await fleet.turns()
    assert (row.turn_id, turn.error_class) == (turn.id, "output_sent")


@pytest.mark.spec("T2", "M7")
async def test_a_call_that_lost_its_worker_is_made_by_the_next(
    make_fleet: MakeFleet, fleet: Fleet, channel: FakeChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its result was written, and killed after it: one reminder."""

    async def dies(*_: Any) -> Any:
        raise RuntimeError("the worker dies here")

    real = JournaledToolBox._finish

    async def dies_afterwards(*given: Any) -> Any:
        await real(*given)
        raise RuntimeError("the worker dies here")

    await teach(fleet, act("send_message", **WATER))
    accepted = await fleet.send("go", channel_type="fake", platform_id="room")
    found: list[int] = []
    for death in (dies, dies_afterwards):
        worker = await make_fleet(registry(channel, tmp_path))
        with monkeypatch.context() as patched:
            patched.setattr(JournaledToolBox, "_finish", death)
            assert await worker.wake(accepted.session_id) == "waiting"
        await fleet.execute(update(Session).values(resume_after=now(-1)))
        found.append(len(await reminders(fleet)))
    assert await fleet.wake(accepted.session_id) == "completed"
    assert (found, len(await reminders(fleet))) == ([0, 1], 1)


@pytest.mark.spec("T2")
async def test_the_same_again_is_the_same_and_something_else_is_not(fleet: Fleet) -> None:
    first = await ask(fleet, **WATER)
    assert (await ask(fleet, **WATER)).startswith(f"that is noted already, as {first[9:26]}")
    hourly = {"text": "feed the cat", "recurrence": "@hourly"}
    first = await ask(fleet, **hourly)
    await come_due(fleet)
    await look(fleet)
    assert (await ask(fleet, **hourly)).startswith(f"that is noted already, as {first[9:26]}"), (
        "also by its second date"
    )
    later = (TOMORROW + timedelta(days=1)).isoformat()
    for other in ({"deliverAfter": later}, {"text": "feed the dog"}, {"recurrence": "@daily"}, {"threadId": "t"}):
        if "threadId" in other:
            other |= {"channel": "fake", "platformId": "room"}
        assert (await ask(fleet, **WATER | other)).startswith("noted as reminder"), other


# --- Again and again ---------------------------------------------------------------------------------------------


@pytest.mark.spec("S1", "S2", "T2")
async def test_a_recurring_reminder_goes_on_from_its_own_date(fleet: Fleet, channel: FakeChannel) -> None:
    said = await ask(fleet, **YEARLY)
    [row] = await reminders(fleet)
    assert (row.series_id, row.recurrence, row.timezone) == (row.id, "@yearly", "Europe/Vienna")
    assert "At 00:00 on January 1 (Europe/Vienna). Next runs:" in said
    assert said.count("\n- ") == 5
    await come_due(fleet)
    await look(fleet)
    await look(fleet)
    done, following = sorted(await reminders(fleet), key=lambda row: row.status)
    assert (done.status, done.recurred, following.status, following.recurred) == ("delivered", True, "pending", False)
    assert following.scheduled_for == following.deliver_after
    local = following.scheduled_for + timedelta(hours=1)
    assert (local.month, local.day, local.hour) == (1, 1, 0)
    assert (following.series_id, following.content, following.platform_id) == (row.id, row.content, "room")
    assert following.seq > done.seq
    assert following.idempotency_key == f"{row.id}:{following.scheduled_for.isoformat()}"
    assert reminded(channel) == ["water the plants"]
    await look(fleet)
    assert len(await reminders(fleet)) == 2
    await come_due(fleet)
    await look(fleet)
    assert reminded(channel) == ["water the plants"] * 2


@pytest.mark.spec("S1", "S2")
async def test_without_a_date_it_begins_with_its_next(fleet: Fleet) -> None:
    before = datetime.now(UTC)
    await ask(fleet, text="water the plants", recurrence=" @hourly ", deliverAfter="")
    [row] = await reminders(fleet)
    assert (row.recurrence, row.scheduled_for.minute, row.scheduled_for.second) == ("@hourly", 0, 0)
    assert before < row.scheduled_for <= datetime.now(UTC) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("scheduled", "recurrence", "following"),
    [
        # Vienna's clocks go forward on 30 March 2031, and back on 26 October.
        ("2031-03-29T01:30+00:00", "30 2 * * *", "2031-03-30T01:00+00:00"),
        ("2031-10-25T07:00+00:00", "0 9 * * *", "2031-10-26T08:00+00:00"),
    ],
)
@ONE_DATABASE
@pytest.mark.spec("S2")
async def test_it_keeps_to_the_clock_on_the_wall(fleet: Fleet, scheduled: str, recurrence: str, following: str) -> None:
    await ask(fleet, **YEARLY | {"recurrence": recurrence, "deliverAfter": scheduled})
    # The date lies in the future: that its row is called delivered is not a matter of the clock.
    await fleet.execute(update(MessageOut).values(status="delivered"))
    await fleet.sweep()
    assert [row.scheduled_for for row in await reminders(fleet)][1:] == [datetime.fromisoformat(following)]


@pytest.mark.spec("S1", "S3")
async def test_late_after_downtime_it_is_said_once_and_goes_on_with_the_next_to_come(
    fleet: Fleet, channel: FakeChannel
) -> None:
    await ask(fleet, **WATER | {"recurrence": "* * * * *"})
    await come_due(fleet, 3 * 86400)
    await fleet.execute(update(MessageOut).values(rung_at=now(-86400)))
    before = datetime.now(UTC)
    await fleet.sweep()
    [late] = await reminders(fleet)
    await sending.send(fleet.runtime, late.id)
    await fleet.sweep()
    assert reminded(channel) == ["water the plants"]
    late, following = await reminders(fleet)
    assert before < following.scheduled_for <= datetime.now(UTC) + timedelta(minutes=1)
    assert following.scheduled_for.second == 0


@pytest.mark.spec("S1")
async def test_tries_move_what_is_tried_not_the_schedule(
    make_fleet: MakeFleet, channel: FakeChannel, tmp_path: Path
) -> None:
    fleet = await make_fleet(registry(channel, tmp_path))
    await fleet.add_group()
    await ask(fleet, **YEARLY)
    await come_due(fleet)
    [due] = await reminders(fleet)
    channel.failures = [DeliveryError("try again", retryable=True)]
    await look(fleet)
    [row] = await reminders(fleet)
    assert (row.status, row.scheduled_for) == ("pending", due.scheduled_for)
    assert row.deliver_after > due.deliver_after
    await try_again(fleet)
    await look(fleet)
    assert [row.status for row in await reminders(fleet)] == ["delivered", "pending"]


@pytest.mark.spec("S1", "S5")
async def test_several_sweeps_at_once_write_one_next_row(
    make_fleet: MakeFleet, fleet: Fleet, channel: FakeChannel, tmp_path: Path
) -> None:
    for n in range(5):
        await ask(fleet, place=f"room {n}", **YEARLY)
        await ask(fleet, place=f"room {n}", **YEARLY | {"text": "feed the cat"})
    await fleet.execute(update(MessageOut).where(MessageOut.scheduled_for.is_not(None)).values(status="delivered"))
    others = [await make_fleet(registry(channel, tmp_path)) for _ in range(3)]
    while any([*await asyncio.gather(*(one.db.transact(lambda conn: repeat_reminders(conn, 3)) for one in others))]):
        """Each takes what the others have left."""
    rows = await reminders(fleet)
    assert len(rows) == 20
    assert [row.recurred for row in rows].count(True) == 10
    assert len({row.idempotency_key for row in rows}) == 20
    sessions = {session.id: session.message_seq for session in await fleet.sessions()}
    numbers = {id: [row.seq for row in await fleet.outbox() if row.session_id == id] for id in sessions}
    assert {id: max(given) for id, given in numbers.items()} == sessions, "no number was taken for nothing"


@pytest.mark.spec("S1")
async def test_a_session_that_is_busy_is_left_for_the_next_sweep(
    make_fleet: MakeFleet, fleet: Fleet, channel: FakeChannel, tmp_path: Path
) -> None:
    """Whoever writes in it holds its row; a sweep does not wait for that."""
    await ask(fleet, **YEARLY)
    await fleet.execute(update(MessageOut).where(MessageOut.scheduled_for.is_not(None)).values(status="delivered"))
    if fleet.db.is_sqlite:
        return  # one writer at a time

    async def in_the_middle(conn: Any) -> int:
        await conn.execute(update(Session).values(activity="at it"))
        async with asyncio.timeout(10):
            return await fleet.db.transact(lambda other: repeat_reminders(other, 100))

    assert await fleet.db.transact(in_the_middle) == 0
    assert await fleet.db.transact(lambda conn: repeat_reminders(conn, 100)) == 1


@pytest.mark.spec("S1", "S3")
async def test_failures_in_a_row_end_it_and_people_are_told(fleet: Fleet, channel: FakeChannel) -> None:
    await add_owner(fleet)
    handle = (await ask(fleet, **YEARLY)).split("reminder ")[1][:8]
    for n in range(MAX_FAILURES + 1):
        # One that arrives begins the count anew.
        channel.failures = [] if n == 0 else [DeliveryError("the room is closed", retryable=False)]
        await come_due(fleet, 1000 - 100 * n)
        await look(fleet)
        assert len(await reminders(fleet)) == n + 1
        channel.failures = []
        await look(fleet)
        assert len(await reminders(fleet)) == n + 2 - (n == MAX_FAILURES)
    assert [row.status for row in await reminders(fleet)] == ["delivered", *["failed"] * MAX_FAILURES]
    assert all(row.recurred for row in await reminders(fleet))
    told = [message for message in channel.shown if "not repeated any more" in message.content["text"]]
    assert [message.destination.platform_id for message in told] == ["dm-boss"]
    assert told[0].content["text"] == (
        f"The reminder {handle} to fake `room` is not repeated any more, because it failed 5 times in a row: "
        "`the room is closed`"
    )
    heard = [row.content for row in await fleet.inbox() if row.kind == "system" and row.content["action"] == "remind"]
    assert [(content["status"], content["result"]["reminder"]) for content in heard] == [("stopped", handle)]
    # What somebody has sent again is said, and no series begins anew.
    last = (await reminders(fleet))[-1]
    await fleet.db.transact(lambda conn: resend(conn, last.id))
    await try_again(fleet)
    await look(fleet)
    assert (reminded(channel), len(await reminders(fleet))) == (["water the plants"] * 2, MAX_FAILURES + 1)


@pytest.mark.spec("S1")
async def test_a_recurrence_nobody_understands_any_more_ends_with_a_word(fleet: Fleet) -> None:
    await ask(fleet, **YEARLY)
    wrong = {"status": "delivered", "timezone": "Mars/Olympus"}
    await fleet.execute(update(MessageOut).where(MessageOut.scheduled_for.is_not(None)).values(**wrong))
    await look(fleet)
    [row] = await reminders(fleet)
    assert row.recurred
    [told] = [row for row in await fleet.inbox() if row.kind == "system"]
    assert "'Mars/Olympus' is not a time zone" in told.content["result"]["why"]


# --- Cancelled ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [WATER, YEARLY], ids=["once", "yearly"])
@pytest.mark.spec("S1", "T3")
async def test_a_cancelled_reminder_is_not_said(fleet: Fleet, channel: FakeChannel, arguments: dict[str, Any]) -> None:
    await ask(fleet, **arguments)
    await come_due(fleet)
    [row] = await reminders(fleet)
    assert await fleet.db.transact(lambda conn: cancel_reminder(conn, row)) == "cancelled"
    await look(fleet)
    await sending.send(fleet.runtime, row.id)
    [row] = await reminders(fleet)
    assert (row.status, reminded(channel)) == ("cancelled", [])
    assert await fleet.db.read(lambda conn: reminders_of(conn)) == []
    assert await fleet.db.read(lambda conn: find_reminders(conn, None, row.id)) == []
    assert (await ask(fleet, **arguments)).startswith("noted as reminder"), "it can be noted anew"


@pytest.mark.spec("S1", "T3")
async def test_one_that_is_being_sent_is_the_last(fleet: Fleet, channel: FakeChannel) -> None:
    await ask(fleet, **YEARLY)
    await come_due(fleet)
    [row] = await reminders(fleet)
    claimed = await sending._claim(fleet.runtime, row.id)
    assert claimed is not None
    assert await fleet.db.transact(lambda conn: cancel_reminder(conn, row)) == "sending"
    await sending._send_claimed(fleet.runtime, *claimed, 0.0)
    await look(fleet)
    [row] = await reminders(fleet)
    assert (row.status, row.recurred, reminded(channel)) == ("delivered", True, ["water the plants"])


@pytest.mark.spec("S1", "T3")
async def test_cancelled_between_two_dates_it_ends_whoever_comes_first(fleet: Fleet, channel: FakeChannel) -> None:
    """Said, and the next row is not written yet: what was looked at may be followed already when it is cancelled."""
    await ask(fleet, **YEARLY)
    await come_due(fleet)
    await look(fleet)
    [said] = await fleet.db.read(lambda conn: reminders_of(conn))
    assert said.status == "delivered"
    await look(fleet)
    assert [row.status for row in await reminders(fleet)] == ["delivered", "pending"]
    assert await fleet.db.transact(lambda conn: cancel_reminder(conn, said)) == "cancelled"
    assert [row.status for row in await reminders(fleet)] == ["delivered", "cancelled"]
    await ask(fleet, **YEARLY | {"text": "feed the cat"})
    await come_due(fleet)
    await look(fleet)
    [said] = await fleet.db.read(lambda conn: reminders_of(conn))
    await fleet.db.transact(lambda conn: cancel_reminder(conn, said))
    await look(fleet)
    assert await fleet.db.read(lambda conn: reminders_of(conn)) == []


@pytest.mark.parametrize("arguments", [WATER, YEARLY], ids=["once", "yearly"])
@pytest.mark.parametrize("database_kind", ["postgresql"])  # SQLite has one writer at a time
@pytest.mark.spec("S1", "T3")
async def test_a_try_that_fails_while_it_is_cancelled_is_the_last(fleet: Fleet, arguments: dict[str, Any]) -> None:
    """What was being sent when it was looked at is to be tried again when it is written."""
    await ask(fleet, **arguments)
    await fleet.execute(update(MessageOut).where(MessageOut.scheduled_for.is_not(None)).values(status="sending"))
    [row] = await reminders(fleet)

    async def fails(conn: AsyncConnection) -> None:
        again = {"status": "pending", "deliver_after": now(60)}
        await conn.execute(update(MessageOut).where(MessageOut.id == row.id).values(again))

    assert await cancelled_during(fleet, fails, row) == "cancelled"
    assert [(row.status, row.recurred) for row in await reminders(fleet)] == [("cancelled", True)]


@pytest.mark.parametrize("database_kind", ["postgresql"])
@pytest.mark.spec("S1", "T3", "T4")
async def test_one_that_went_on_in_another_session_is_cancelled_there(fleet: Fleet) -> None:
    """The conversation began anew after it was found, and a sweep is just writing its next row."""
    await ask(fleet, **YEARLY)
    [row] = await reminders(fleet)
    await ask(fleet, "reset_session")
    await fleet.execute(update(MessageOut).where(MessageOut.id == row.id).values(status="delivered"))

    async def sweeps(conn: AsyncConnection) -> None:
        assert await repeat_reminders(conn, 100) == 1

    assert await cancelled_during(fleet, sweeps, row) == "cancelled"
    assert [(row.status, row.recurred) for row in await reminders(fleet)] == [("delivered", True), ("cancelled", True)]


async def cancelled_during(fleet: Fleet, work: Callable[[AsyncConnection], Awaitable[None]], row: Any) -> str:
    """What it came to if it is cancelled after somebody has done this, and before they commit."""
    done, go_on = asyncio.Event(), asyncio.Event()

    async def first(conn: AsyncConnection) -> None:
        await work(conn)
        done.set()
        await go_on.wait()

    at_it = asyncio.create_task(fleet.db.transact(first))
    await done.wait()
    cancelling = asyncio.create_task(fleet.db.transact(lambda conn: cancel_reminder(conn, row)))
    await wait_for_blocked_query(fleet)
    go_on.set()
    await at_it
    return await cancelling


@pytest.mark.spec("T3")
async def test_reminders_are_found_by_any_id_of_theirs(fleet: Fleet) -> None:
    await ask(fleet, **YEARLY)
    await come_due(fleet)
    await look(fleet)
    await look(fleet)
    first, following = await reminders(fleet)
    await ask(fleet, place="another room", **WATER)
    for handle in (first.id, short(first.id), following.id, short(following.id)):
        [found] = await fleet.db.read(lambda conn, handle=handle: find_reminders(conn, None, handle))  # type: ignore[misc]
        assert (found.id, found.folder) == (following.id, "demo")
    for handle in ("%%%%%%%%", "________", "12345678"):
        assert await fleet.db.read(lambda conn, handle=handle: find_reminders(conn, None, handle)) == []  # type: ignore[misc]
    here = first.session_id
    assert [row.id for row in await fleet.db.read(lambda conn: reminders_of(conn, here))] == [following.id]
    [group] = await fleet.rows(AgentGroup)
    both = await fleet.db.read(lambda conn: reminders_of(conn, None, group.id))
    assert len(both) == 2
    assert both[0].scheduled_for <= both[1].scheduled_for, "the next first"
    assert await fleet.db.read(lambda conn: reminders_of(conn, None, "another")) == []


@pytest.mark.spec("T3")
async def test_a_handle_that_is_no_text_finds_none(fleet: Fleet) -> None:
    """SQLite compares up to a NUL, and PostgreSQL takes neither it nor half a pair."""
    await ask(fleet, **WATER)
    for handle in ("\0" * 8, "", "  ", "\ud800" * 8, "%" * 8, "a\0b"):
        assert await fleet.db.read(lambda conn, handle=handle: find_reminders(conn, None, handle)) == []  # type: ignore[misc]
    for name, arguments in (
        ("taskId", {"tool": "cancel_task", "taskId": "\0" * 8}),
        ("threadId", {"text": "x", "channel": "fake", "platformId": "room", "threadId": "a\0b"}),
        ("text", WATER | {"text": "a\0b"}),
        ("card.children.1", {"tool": "send_card", "card": {"children": ["a", "half a pair \ud800"]}}),
        ("card", {"tool": "send_card", "card": {"a\0b": "title"}}),
    ):
        said = await ask(fleet, **arguments)
        assert f": {name}: it holds a NUL or half a character; leave it out" in said
    [row] = await reminders(fleet)
    assert (row.status, row.content) == ("pending", {"text": "water the plants"})


@pytest.mark.spec("T2", "T3")
async def test_the_tools_for_tasks_know_reminders(fleet: Fleet, channel: FakeChannel) -> None:
    handle = (await ask(fleet, **YEARLY)).split("reminder ")[1][:8]
    _, line = (await ask(fleet, "list_tasks")).splitlines()
    assert line.startswith(f"{handle} | ")
    assert line.endswith(" | At 00:00 on January 1 | reminder, sent without you | water the plants")
    for tool, more in (("pause_task", {}), ("resume_task", {}), ("update_task", {"prompt": "x"})):
        assert await ask(fleet, tool, taskId=handle, **more) == (
            f"{handle} is a reminder: it can be cancelled (cancel_task) and noted anew, and no more"
        )
    assert await ask(fleet, "list_tasks", place="another room") == "There are no scheduled tasks in this conversation."
    assert "there is no scheduled task" in await ask(fleet, "cancel_task", place="another room", taskId=handle)
    await come_due(fleet)
    await look(fleet)
    _, line = (await ask(fleet, "list_tasks")).splitlines()
    assert " 1 Jan " in line, "said, and its next row is yet to be written"
    [row] = await reminders(fleet)
    assert await ask(fleet, "cancel_task", taskId=row.id) == f"reminder {handle} is cancelled"
    await look(fleet)
    assert len(await reminders(fleet)) == 1

    handle = (await ask(fleet, **WATER)).split("reminder ")[1][:8]
    await come_due(fleet)
    [row] = [row for row in await reminders(fleet) if row.status == "pending"]
    await fleet.db.transact(lambda conn: claim_delivery(conn, row.id, 60))
    await teach(fleet, act("cancel_task", taskId=handle))
    accepted = await fleet.send("go", channel_type="fake", platform_id="room")
    assert await fleet.answer_wakes() == ["completed"]
    [answer] = [row for row in await fleet.outbox() if row.in_reply_to == accepted.message_id]
    assert answer.content["text"] == f"reminder {handle} is sent now, for the last time"


# --- Beginning anew ----------------------------------------------------------------------------------------------


@pytest.mark.spec("S1", "T4")
async def test_a_reset_keeps_reminders_where_the_conversation_goes_on(fleet: Fleet, channel: FakeChannel) -> None:
    await ask(fleet, **WATER)
    await ask(fleet, **YEARLY | {"text": "feed the cat"})
    await ask(fleet, "reset_session")
    active = [session.id for session in await fleet.sessions() if session.status == "active"]
    assert [row.session_id for row in await reminders(fleet)] == active * 2
    await fleet.send("hello", channel_type="fake", platform_id="room")  # numbers go on behind those
    await fleet.settle_down()
    await come_due(fleet)
    await look(fleet)
    assert sorted(reminded(channel)) == ["feed the cat", "water the plants"]
    # Said, and not yet followed when the agent begins anew once more.
    await ask(fleet, "reset_session")
    await look(fleet)
    active = [session.id for session in await fleet.sessions() if session.status == "active"]
    [following] = [row for row in await reminders(fleet) if row.status == "pending"]
    assert ([following.session_id], following.content["text"]) == (active, "feed the cat")
