"""Handing in messages over HTTP: stored before it is answered, once per key, by those who may and for whom they may."""

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import update

from gateway.http.trust import TRUST_SECONDS
from models import AgentGroup, AgentGroupMember, Session, Token, UserRole, Wiring
from models.base import now
from models.fleet import Rejected
from tests.support.api_callers import Caller, caller
from tests.support.open_gateway import Gateway, answering, wire

pytestmark = pytest.mark.spec("G1", "G2")
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
MESSAGES = "/v1/messages"
NONE_OF_YOURS = "agent_group: there is no agent {}, or it is none of yours"


@pytest.fixture
async def group(gateway: Gateway) -> str:
    return await gateway.fleet.add_group(script="You said: {texts}")


@pytest.fixture
async def admin(gateway: Gateway, group: str) -> Caller:
    return await caller(gateway, "ada", "admin", group)


def hello(**fields: Any) -> dict[str, Any]:
    return {"agent_group": "demo", "text": "hello"} | fields


async def detail(who: Caller, body: Any, expected: int, **headers: str) -> str:
    answer = await who.ask("POST", MESSAGES, body, **headers)
    assert answer.status_code == expected, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said: str = answer.json()["detail"]
    return said


async def test_a_message_is_stored_rung_for_and_followed(gateway: Gateway, admin: Caller) -> None:
    answer = await admin.ask("POST", MESSAGES, hello(thread_id="4711"))
    told = answer.json()
    [row] = await gateway.fleet.inbox()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/messages/{row.id}"
    assert told == {"id": row.id, "session": row.session_id, "seq": 1, "duplicate": False, "answered_turn": None}
    assert gateway.fleet.bells.wakes == [(row.session_id, "scripted")]

    waiting = await admin.get(answer.headers["location"])
    assert (waiting["status"], waiting["agent"], waiting["answers"], waiting["turn"]) == ("waiting", "demo", [], None)
    assert waiting["created_at"].endswith(("Z", "+00:00"))
    await gateway.fleet.settle_down()
    done = await admin.get(answer.headers["location"])
    [turn] = await gateway.fleet.turns()
    assert (done["status"], done["turn"], done["error"]) == ("completed", turn.id, None)
    assert [said["text"] for said in done["answers"]] == ["You said: hello"]


@ONE_DATABASE
async def test_who_prefers_to_wait_has_the_answer_at_once(gateway: Gateway, admin: Caller) -> None:
    told = await admin.post(MESSAGES, hello(), 202)
    async with answering(gateway.fleet), asyncio.timeout(20):
        answer = await admin.ask("GET", f"{MESSAGES}/{told['id']}", Prefer="wait=60")
    assert answer.headers["preference-applied"] == "wait=60"
    assert (answer.json()["status"], len(answer.json()["answers"])) == ("completed", 1)


async def test_a_message_that_was_given_up_says_why(gateway: Gateway, admin: Caller) -> None:
    await gateway.fleet.execute(update(AgentGroup).values(provider="nobody"))
    dead = await admin.post(MESSAGES, hello(), 202)
    shown = await admin.get(f"{MESSAGES}/{dead['id']}")
    assert (shown["status"], shown["error_class"]) == ("failed", "unknown_provider")
    assert "nobody" in shown["error"]


async def test_one_key_is_one_message_however_many_send_it_at_once(gateway: Gateway, admin: Caller) -> None:
    answers = await asyncio.gather(
        *(admin.ask("POST", MESSAGES, hello(), Idempotency_Key="order 4711") for _ in range(20))
    )
    assert {answer.status_code for answer in answers} == {202}
    [row] = await gateway.fleet.inbox()
    assert {answer.json()["id"] for answer in answers} == {row.id}
    assert sorted(answer.json()["duplicate"] for answer in answers) == [False] + [True] * 19

    again = await admin.ask("POST", MESSAGES, hello(), Idempotency_Key="order 4711")
    assert (again.json()["id"], again.json()["duplicate"]) == (row.id, True)
    for other in (hello(text="goodbye"), hello(platform_id="elsewhere"), hello(thread_id="1"), hello(kind="task")):
        assert "was used before, for something else" in await detail(admin, other, 409, Idempotency_Key="order 4711")
    # Others count theirs the same way.
    eve = await caller(gateway, "eve", "owner")
    other_s = await eve.ask("POST", MESSAGES, hello(text="mine"), Idempotency_Key="order 4711")
    assert (other_s.status_code, other_s.json()["duplicate"]) == (202, False)
    assert len(await gateway.fleet.inbox()) == 2


@ONE_DATABASE
async def test_a_key_is_found_again_while_the_agent_refuses_others(gateway: Gateway, admin: Caller) -> None:
    said = hello(follow_up="reject")
    first = await admin.ask("POST", MESSAGES, said, Idempotency_Key="1")
    # As if a worker had it.
    await gateway.fleet.execute(update(Session).values(lease_owner="w", lease_expires_at=now(60)))
    again = await admin.ask("POST", MESSAGES, said, Idempotency_Key="1")
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert "the agent is at work" in await detail(admin, said, 409, Idempotency_Key="2")
    assert len(await gateway.fleet.inbox()) == 1


@ONE_DATABASE
async def test_keys_and_ids_that_make_no_sense(gateway: Gateway, admin: Caller) -> None:
    both = await detail(admin, hello(message_id="m1"), 422, Idempotency_Key="k1")
    assert both == "give either an Idempotency-Key or a message_id, not both"
    for wrong in ("", "x" * 151, "täglich".encode().decode("latin-1")):
        sent = {b"Authorization": f"Bearer {admin.token}".encode(), b"Idempotency-Key": wrong.encode("latin-1")}
        answer = await gateway.client.post(MESSAGES, json=hello(), headers=sent)
        assert answer.status_code == 422, wrong
        assert "Idempotency-Key" in answer.json()["detail"]
    first, second = [await admin.post(MESSAGES, hello(message_id="m1"), 202) for _ in range(2)]
    assert (first["duplicate"], second["duplicate"], first["id"]) == (False, True, second["id"])


@ONE_DATABASE
async def test_what_is_wrong_is_said_in_the_words_of_every_door_and_kept_nowhere(
    gateway: Gateway, admin: Caller
) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"agent_group": "demo"}, "message: give either text or content"),
        (hello(text=" "), "message: text is empty"),
        (hello(txt="hi"), "txt: Extra inputs are not permitted"),
        (hello(recurrence="@daily"), "message: recurrence needs kind task"),
        (hello(channel_type="fax"), "channel_type: there is no channel 'fax' here; installed: "),
        (hello(text=None, content={"a": "x" * 300_000}), "the content has 300"),
        (hello(kind="task", terms={"provider": "nobody"}), "nobody"),
        ([], "the body is no JSON object"),
    ]
    for body, text in wrong:
        assert text in await detail(admin, body, 422)
    headers = {"Authorization": f"Bearer {admin.token}", "Content-Type": "application/json"}
    for raw in (b"", b"{", b"\xff", b"[" * 100_000, b'{"text": ' + b"9" * 5000 + b"}", b'{"content": {"a": NaN}}'):
        answer = await gateway.client.post(MESSAGES, content=raw, headers=headers)
        assert answer.status_code == 422, raw[:20]
        assert "Traceback" not in answer.text
    assert await gateway.fleet.inbox() == []
    assert await gateway.fleet.rows(Rejected) == []


async def test_only_who_may_hands_in_and_nobody_else_learns_who_is_there(gateway: Gateway, group: str) -> None:
    fleet = gateway.fleet
    other = await fleet.add_group("other", script="hm")
    stranger = await caller(gateway, "sid")
    member = await caller(gateway, "mia")
    elsewhere = await caller(gateway, "ed", "admin", other)
    reader = await caller(gateway, "rex", "owner", scopes=["read", "operate", "admin", "decide"])
    await fleet.insert(AgentGroupMember, {"user_id": member.user_id, "agent_group_id": group})

    for nobody in (stranger, elsewhere):
        assert await detail(nobody, hello(), 404) == NONE_OF_YOURS.format("'demo'")
    assert await detail(elsewhere, hello(agent_group="gone"), 404) == NONE_OF_YOURS.format("'gone'")
    assert await detail(elsewhere, hello(agent_group=".front-desk"), 404) == NONE_OF_YOURS.format("'.front-desk'")
    assert "is for the admins of demo" in await detail(member, hello(), 403)
    assert "lacks the scope 'send'" in await detail(reader, hello(), 403)
    assert (await gateway.client.post(MESSAGES, json=hello())).status_code == 401
    assert await fleet.inbox() == []

    owner = await caller(gateway, "olga", "owner")
    sent = await owner.post(MESSAGES, hello(), 202)
    for nobody in (stranger, member, elsewhere):
        assert (await nobody.ask("GET", f"{MESSAGES}/{sent['id']}")).status_code == 404
        assert (await nobody.ask("GET", f"{MESSAGES}/gone")).status_code == 404
    assert (await reader.ask("GET", f"{MESSAGES}/{sent['id']}")).status_code == 403


async def test_the_wirings_are_for_those_who_see_everything(gateway: Gateway, group: str, admin: Caller) -> None:
    await wire(gateway.fleet, group, "fake", "plaza")
    routed = {"channel_type": "fake", "platform_id": "plaza", "text": "hello"}
    assert "agent_group is missing" in await detail(admin, routed, 403)
    owner = await caller(gateway, "olga", "owner")
    await owner.post(MESSAGES, routed, 202)
    nobody = await detail(owner, routed | {"platform_id": "desert"}, 422)
    assert nobody.startswith("no agent is wired to fake 'desert'")
    [row] = await gateway.fleet.inbox()
    assert row.platform_id == "plaza"


async def test_an_admin_neither_speaks_for_an_owner_nor_goes_where_the_agent_does_not(
    gateway: Gateway, group: str, admin: Caller
) -> None:
    fleet = gateway.fleet
    owner = await caller(gateway, "olga", "owner")
    await fleet.insert(UserRole, {"user_id": owner.user_id, "role": "admin", "agent_group_id": None})
    await wire(fleet, group, "web", "ada")
    in_web = hello(channel_type="web", platform_id="ada")
    assert "you cannot speak for them" in await detail(admin, in_web | {"sender_id": "olga"}, 403)
    await admin.post(MESSAGES, in_web | {"sender_id": "customer 7"}, 202)
    for place in ({"channel_type": "web", "platform_id": "olga"}, {"channel_type": "fake", "platform_id": "plaza"}):
        assert "is not wired to" in await detail(admin, hello(**place), 403)
    # What an owner has begun there, others may go on with; until then, nothing of the place was made.
    await owner.post(MESSAGES, hello(channel_type="fake", platform_id="plaza", sender_id="anybody"), 202)
    await admin.post(MESSAGES, hello(channel_type="fake", platform_id="plaza"), 202)
    assert len(await fleet.inbox()) == 3
    assert len(await fleet.rows(Wiring)) == 1


@ONE_DATABASE
async def test_a_token_and_a_role_are_believed_for_a_second_and_no_longer(gateway: Gateway, admin: Caller) -> None:
    await admin.post(MESSAGES, hello(), 202)
    await gateway.fleet.execute(
        update(UserRole).values(role="admin", agent_group_id=await gateway.fleet.add_group("b"))
    )
    async with asyncio.timeout(10 * TRUST_SECONDS):
        while (answer := await admin.ask("POST", MESSAGES, hello())).status_code == 202:
            await asyncio.sleep(0.05)
    assert answer.status_code == 404
    await gateway.fleet.execute(update(Token).values(revoked_at=now()))
    async with asyncio.timeout(10 * TRUST_SECONDS):
        while (answer := await admin.ask("POST", MESSAGES, hello())).status_code != 401:
            await asyncio.sleep(0.05)


@ONE_DATABASE
async def test_the_published_schema_is_in_the_document(gateway: Gateway) -> None:
    document = (await gateway.client.get("/openapi.json")).json()
    body = document["paths"][MESSAGES]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"agent_group", "text", "content", "process_after", "terms"} <= set(body["properties"])
    assert "jitter_seconds" in json.dumps(body["properties"]["terms"])
    assert "$ref" not in json.dumps(body)
