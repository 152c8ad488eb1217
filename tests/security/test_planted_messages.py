"""Messages that are handed in over HTTP neither swallow what is said on platforms nor pass as commands to an agent's
program."""

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from models.groups import Wiring, ensure_messaging_group
from models.upsert import insert_ignoring
from tests.support.api_callers import caller
from tests.support.open_gateway import Gateway, wire
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import accept

pytestmark = pytest.mark.spec("G2")
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


async def also_wire(gateway: Gateway, group: str, channel: str, chat: str) -> None:
    async def work(conn: AsyncConnection) -> None:
        place = await ensure_messaging_group(conn, channel, chat)
        await insert_ignoring(conn, Wiring, messaging_group_id=place, agent_group_id=group, priority=5)

    await gateway.fleet.db.transact(work)


async def test_ids_that_an_admin_plants_swallow_nothing(gateway: Gateway) -> None:
    mine, other = await gateway.fleet.add_group("mine"), await gateway.fleet.add_group("other")
    await wire(gateway.fleet, mine, "platform", "room")
    await also_wire(gateway, other, "platform", "room")
    mal = await caller(gateway, "mal", "admin", mine, scopes=["send"])
    place = {"agent_group": "mine", "channel_type": "platform", "platform_id": "room"}
    await mal.post("/v1/messages", place | {"message_id": "m1", "text": "planted"}, expected=202)
    assert (await gateway.platform(id="m1", chat="room", text="help")).status_code == 200
    said = [(row.agent_group_id, row.content["text"]) for row in await gateway.fleet.inbox()]
    assert sorted(said) == sorted([(mine, "planted"), (other, "help")])


async def test_an_id_of_ones_own_is_still_taken_once(gateway: Gateway) -> None:
    group = await gateway.fleet.add_group()
    await wire(gateway.fleet, group, "platform", "room")
    crm = await caller(gateway, "crm", "admin", group, scopes=["send"])
    erp = await caller(gateway, "erp", "admin", group, scopes=["send"])
    for long in ("order-1", "o" * 255):
        body = {"agent_group": "demo", "channel_type": "platform", "platform_id": "room", "message_id": long}
        taken = [await who.post("/v1/messages", body | {"text": "x"}, expected=202) for who in (crm, crm, erp)]
        assert [one["duplicate"] for one in taken] == [False, True, False]
        assert taken[0]["id"] == taken[1]["id"]


@ONE_DATABASE
async def test_owners_may_name_a_platforms_message(gateway: Gateway) -> None:
    """Who brings what a platform has said: it is the same message when the platform says it itself."""
    await wire(gateway.fleet, await gateway.fleet.add_group(), "platform", "room")
    boss = await caller(gateway, "boss", "owner", scopes=["send"])
    body = {"agent_group": "demo", "channel_type": "platform", "platform_id": "room", "message_id": "m1", "text": "x"}
    await boss.post("/v1/messages", body, expected=202)
    await gateway.platform(id="m1", chat="room", text="x")
    assert [row.platform_message_id for row in await gateway.fleet.inbox()] == ["m1"]


@ONE_DATABASE
async def test_only_the_reception_makes_a_command_of_a_text(gateway: Gateway) -> None:
    group = await gateway.fleet.add_group()
    crm = await caller(gateway, "crm", "admin", group)
    content = {"text": "/permissions", "raw": True}
    once = {"Idempotency-Key": "k"}
    for _ in range(2):
        sent = await crm.ask("POST", "/v1/messages", {"agent_group": "demo", "content": content}, **once)
        assert sent.status_code == 202
    by_celery = parse_incoming({"agent_group": "demo", "content": content})
    runtime = gateway.fleet.runtime
    await accept(runtime.db, runtime.registry, runtime.settings, by_celery)
    assert [row.content for row in await gateway.fleet.inbox()] == [{"text": "/permissions", "sender": "someone"}] * 2
