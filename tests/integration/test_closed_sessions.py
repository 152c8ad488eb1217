"""What comes late for a session that was closed meanwhile goes on in the one that follows: nothing is put where nobody
looks any more."""

import pytest
from sqlalchemy import update

from adapters.channels.fake import FakeChannel
from adapters.errors import DeliveryError
from adapters.registry import Drivers, Registry
from models import AgentGroup, Session
from models.dead_letters import revive
from models.sessions import living_session
from tests.support.fleet import Fleet, MakeFleet

pytestmark = pytest.mark.both_databases

RESET = "- play: [{tool: reset_session}, {answer: 'forgotten'}]"


async def reset(fleet: Fleet) -> None:
    await fleet.execute(update(AgentGroup).values(config={"provider_options": {"script": RESET}}))
    await fleet.send("forget it", channel_type="fake", platform_id="room")


async def active(fleet: Fleet) -> str:
    [session] = [row for row in await fleet.sessions() if row.status == "active"]
    return str(session.id)


@pytest.mark.spec("T4", "M11")
async def test_a_dead_letter_is_tried_again_where_the_conversation_goes_on(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": FakeChannel()})))
    await fleet.add_group(script="- play: [{fail: {class: auth}}]")
    accepted = await fleet.send("hello", channel_type="fake", platform_id="room")
    await fleet.settle_down()
    await reset(fleet)
    await fleet.settle_down()
    await fleet.execute(update(AgentGroup).values(config={"provider_options": {"script": "now it works"}}))
    session_id = await fleet.db.transact(lambda conn: revive(conn, accepted.message_id))
    assert session_id == await active(fleet) != accepted.session_id
    assert await fleet.wake(session_id) == "completed"
    assert await fleet.db.transact(lambda conn: revive(conn, accepted.message_id)) is None
    assert await fleet.db.transact(lambda conn: revive(conn, "no-such-message")) is None


@pytest.mark.spec("T4", "M12")
async def test_a_delivery_that_fails_late_is_told_where_the_conversation_goes_on(make_fleet: MakeFleet) -> None:
    channel = FakeChannel()
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"fake": channel})))
    await fleet.add_group(script=RESET)
    await fleet.send("forget it", channel_type="fake", platform_id="room")
    await fleet.answer_wakes()
    channel.failures = [DeliveryError("the room is closed", retryable=False)]
    await fleet.settle_down()
    [told] = [row for row in await fleet.inbox() if row.kind == "system"]
    assert told.session_id == await active(fleet)
    assert told.content["result"]["error"] == "the room is closed"


@pytest.mark.spec("T4")
async def test_a_session_that_lives_is_left_as_it_is(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet()
    await fleet.add_group()
    accepted = await fleet.send("hello")
    assert await fleet.db.transact(lambda conn: living_session(conn, accepted.session_id)) == accepted.session_id
    await fleet.execute(update(Session).values(status="closed"))
    assert await fleet.db.transact(lambda conn: living_session(conn, accepted.session_id)) == await active(fleet)
