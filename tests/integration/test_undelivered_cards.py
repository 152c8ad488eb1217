"""Cards of approvals that cannot be delivered: somebody else is asked, once each, and nobody is told what is not so."""

from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import update

from models import Approval, UserDm
from models.groups import ensure_messaging_group
from tests.support.cards import SCRIPT, Launcher, Platform, appoint, ask, cards_of, press, ring
from tests.support.fleet import Fleet, MakeFleet
from workers.consent.undelivered import card_failed

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
async def fleet(make_fleet: MakeFleet, platform: Platform, launcher: Launcher) -> Fleet:
    """Two admins and an owner."""
    fleet = await make_fleet(launcher.registry(platform, Platform("other")))
    group = await fleet.add_group(script=SCRIPT)
    await appoint(fleet, "fake:ann", "admin", group, chat="dm-ann")
    await appoint(fleet, "fake:ben", "admin", group, chat="dm-ben")
    await appoint(fleet, "fake:olga", "owner")
    return fleet


async def settle(fleet: Fleet) -> None:
    """Deliver, and say of everything that was given up that it was, until nothing more comes of it."""
    for _ in range(5):
        await fleet.settle_down()
        for row in await fleet.outbox():
            if row.status in ("failed", "unknown"):
                await card_failed(fleet.runtime, row)
    assert fleet.bells.deliveries == []


async def asked(fleet: Fleet, approval_id: str) -> list[str | None]:
    return sorted((card.user_id or card.platform_id) for card in await cards_of(fleet, approval_id))


@pytest.mark.spec("C6")
async def test_when_no_admin_can_be_written_to_the_owner_is_asked(
    fleet: Fleet, platform: Platform, launcher: Launcher
) -> None:
    platform.refuses |= {"dm-ann"}
    first = await ask(fleet, "attic")
    await settle(fleet)
    assert await asked(fleet, first.id) == ["fake:ann", "fake:ben"], "Ben has it: nobody else is bothered"
    assert [row.user_id for row in await fleet.rows(UserDm)] == ["fake:ben"], "Ann's chat is looked for anew"
    platform.refuses |= {"dm-ben"}
    approval = await ask(fleet)
    await settle(fleet)
    assert await asked(fleet, approval.id) == ["fake:ann", "fake:ben", "fake:olga"]
    assert f"`approve {approval.id[-8:]}`" in platform.text_in("dm-olga")
    assert platform.text_in("room").startswith("I wait for an approval")
    [card] = [card for card in await cards_of(fleet, approval.id) if card.user_id == "fake:olga"]
    ring(fleet, await press(fleet, card, "olga"))
    await fleet.settle_down()
    assert launcher.done == ["prod"]
    assert platform.text_in("dm-olga").startswith("Approved by Olga (fake)")


@pytest.mark.spec("C6")
async def test_when_nobody_is_left_the_place_is_asked_and_told_so(fleet: Fleet, platform: Platform) -> None:
    platform.refuses |= {"dm-ann", "dm-ben", "dm-olga"}
    approval = await ask(fleet)
    await settle(fleet)
    assert await asked(fleet, approval.id) == ["fake:ann", "fake:ben", "fake:olga", "room"]
    said = platform.text_in("room")
    assert "has been asked" not in said, "that was changed"
    assert said.startswith("I wait for an approval before I go on. Nobody who decides could be asked directly")
    assert f"`approve {approval.id[-8:]}`" in said


@pytest.mark.spec("C6")
async def test_a_card_is_never_put_where_anybody_can_read_it(fleet: Fleet, platform: Platform) -> None:
    platform.capabilities = replace(platform.capabilities, public=True)
    platform.refuses |= {"dm-ann", "dm-ben"}
    await appoint(fleet, "other:otto", "owner", chat="dm-otto")
    there = await ask(fleet, "attic")
    await settle(fleet)
    assert await asked(fleet, there.id) == ["fake:ann", "fake:ben", "fake:olga"]
    platform.refuses |= {"dm-olga"}
    other = fleet.runtime.registry.channels.get("other")
    assert isinstance(other, Platform)
    other.refuses |= {"dm-otto"}
    lost = await ask(fleet)
    await settle(fleet)
    assert await asked(fleet, lost.id) == ["fake:ann", "fake:ben", "fake:olga", "other:otto"]
    assert "nobody who decides about it can be reached" in platform.text_in("room")
    assert "longshore approvals" in platform.text_in("room")
    platform.closed_to |= {"ann", "ben", "olga"}
    other.closed_to |= {"otto"}
    at_once = await ask(fleet, "cellar")
    await settle(fleet)
    assert await asked(fleet, at_once.id) == []
    assert "nobody who decides about it can be reached" in platform.text_in("cellar")
    assert "prod" not in platform.text_in("cellar") + platform.text_in("room")


@pytest.mark.spec("C6")
async def test_when_the_place_cannot_be_asked_either_the_owners_are_told_elsewhere(
    fleet: Fleet, platform: Platform
) -> None:
    platform.refuses |= {"dm-ann", "dm-ben", "dm-olga", "room"}
    for channel, chat in (("fake", "dm-olga"), ("other", "olgas")):
        place = await fleet.db.transact(partial(ensure_messaging_group, channel_type=channel, platform_id=chat))
        await fleet.insert(UserDm, {"user_id": "fake:olga", "channel_type": channel, "messaging_group_id": place})
    approval = await ask(fleet)
    await settle(fleet)
    assert await asked(fleet, approval.id) == ["fake:ann", "fake:ben", "fake:olga", "room"], "each once"
    other = fleet.runtime.registry.channels.get("other")
    assert isinstance(other, Platform)
    assert other.text_in("olgas") == (
        "Nobody who decides could be asked for an approval: `demo wants launch(what=prod)`. "
        f"At a terminal: `longshore approve {approval.id[-8:]}` (or deny)"
    )


@pytest.mark.spec("C6")
async def test_what_was_decided_meanwhile_is_asked_of_nobody(fleet: Fleet, platform: Platform) -> None:
    platform.refuses |= {"dm-ann", "dm-ben"}
    approval = await ask(fleet)
    await fleet.execute(update(Approval).values(status="denied"))
    await settle(fleet)
    assert await asked(fleet, approval.id) == ["fake:ann", "fake:ben"]
