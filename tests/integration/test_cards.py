"""Cards that agents send: their buttons, and a press as an ordinary message of whoever pressed."""

from typing import Any

import pytest

from adapters.channel_port import ButtonPress, Received
from models import AgentGroupMember, Card, Wiring
from tests.support.cards import Launcher, Platform, appoint, press
from tests.support.fleet import Fleet, MakeFleet
from workers.consent.buttons import offer_of
from workers.consent.cards import Said
from workers.intake.doors import finish_telling, take_in

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])
OFFERING = """
- when: ^go$
  play:
  - tool: send_card
    with:
      card:
        title: Deploy
        children: [{text: to production}]
        actions: [{label: 'Yes, now', value: deploy}, {label: Docs, url: 'https://example.org/'}, {label: Later}]
  - answer: offered
- play: [{answer: 'heard {texts}'}]
"""


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, platform: Platform) -> Fleet:
    registry = Launcher().registry(platform)
    registry.tools = (await make_fleet()).runtime.registry.tools
    fleet = await make_fleet(registry)
    group = await fleet.add_group(script=OFFERING)
    await appoint(fleet, "fake:mia", None)
    await fleet.insert(AgentGroupMember, {"user_id": "fake:mia", "agent_group_id": group})
    return fleet


async def offered(fleet: Fleet) -> Any:
    await fleet.send("go", channel_type="fake", platform_id="room", sender_id="mia")
    await fleet.settle_down()
    [card] = await fleet.rows(Card)
    return card


@pytest.mark.spec("C3", "T2")
async def test_what_an_agent_offers_is_said_by_whoever_presses_it(fleet: Fleet, platform: Platform) -> None:
    card = await offered(fleet)
    sent = (await fleet.outbox())[0]
    assert sent.content["buttons"] == [
        {"label": "Yes, now", "token": f"{card.id}:1"},
        {"label": "Docs", "url": "https://example.org/"},
        {"label": "Later", "token": f"{card.id}:2"},
    ]
    pressed = ButtonPress(f"{card.id}:1", "room", "mia", "Mia")
    for _ in range(2):
        taken = await take_in(fleet.runtime, platform, Received(presses=(pressed,)))
        assert taken.told == ("Yes, now",)
    await finish_telling()
    await fleet.settle_down()
    said = [row for row in await fleet.inbox() if row.content["text"] != "go"]
    assert [(row.session_id, row.sender_id, row.content["text"]) for row in said] == [
        (card.session_id, "mia", "Yes, now")
    ], "pressed twice, said once"
    assert said[0].content["card"] == {"label": "Yes, now", "value": "deploy"}
    assert "heard Yes, now" in platform.text_in("room")
    assert platform.told == [("mia", "Yes, now")] * 2


@ONE_DATABASE
@pytest.mark.spec("C5", "T2")
async def test_a_strangers_press_says_nothing(fleet: Fleet, platform: Platform) -> None:
    card = await offered(fleet)
    pressed = ButtonPress(f"{card.id}:1", "room", "eve", "Eve")
    await take_in(fleet.runtime, platform, Received(presses=(pressed,)))
    await finish_telling()
    assert [row.sender_id for row in await fleet.inbox()] == ["mia"]
    assert "fake:eve is not known to demo" in platform.told[0][1]
    assert not isinstance(await press(fleet, card, "mia", 3), Said), "an address says nothing"


@ONE_DATABASE
@pytest.mark.spec("M2", "T2")
async def test_a_press_of_somebody_an_agent_does_not_hear_says_nothing(fleet: Fleet, platform: Platform) -> None:
    card = await offered(fleet)
    rules = {"messaging_group_id": (await fleet.sessions())[0].messaging_group_id}
    rules |= {"agent_group_id": (await fleet.sessions())[0].agent_group_id}
    await fleet.insert(Wiring, rules | {"trigger_rules": {"excludeSenders": ["mia"]}})
    pressed = ButtonPress(f"{card.id}:1", "room", "mia", "Mia")
    taken = await take_in(fleet.runtime, platform, Received(presses=(pressed,)))
    await finish_telling()
    assert taken.told == ("no agent in fake 'room' listens to such a message",)
    assert len(await fleet.inbox()) == 1


@pytest.mark.spec("T2")
@pytest.mark.parametrize(
    ("card", "buttons"),
    [
        (None, []),
        ("card", []),
        ({"actions": "Yes"}, []),
        ({"actions": [None, 1, {}, [], {"label": ""}, {"label": 3}, {"url": "https://x"}]}, []),
        ({"actions": ["Yes", {"text": "No\n\nreally"}]}, [("Yes", "c:1", None), ("No really", "c:2", None)]),
        ({"actions": [{"label": "x", "url": "javascript:alert(1)"}]}, [("x", "c:1", None)]),
        ({"actions": [{"label": "a\x00\ud800", "url": "https://y"}]}, [("a\ufffd?", None, "https://y")]),
    ],
)
def test_buttons_of_whatever_an_agent_wrote(card: Any, buttons: list[Any]) -> None:
    offer = offer_of(card, "c")
    assert [(b["label"], b.get("token"), b.get("url")) for b in offer.buttons] == buttons
    assert len(offer_of({"actions": ["a" * 500] * 500}, "c").buttons) == 20
