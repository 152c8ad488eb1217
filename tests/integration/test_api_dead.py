"""What went wrong, over HTTP: dead letters, answers that did not arrive, refused input; and trying it again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from models import AgentGroup, AgentGroupMember, MessageIn, MessageOut
from models.audit import Audit
from models.base import new_id
from models.fleet import Rejected
from tests.support.api_callers import Caller, caller
from tests.support.open_gateway import Gateway

pytestmark = pytest.mark.spec("G2", "M11")
PAST = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)


@pytest.fixture
async def group(gateway: Gateway) -> str:
    """An agent whose provider is not there."""
    return await gateway.fleet.add_group(script="You said: {texts}", provider="nobody")


@pytest.fixture
async def admin(gateway: Gateway, group: str) -> Caller:
    return await caller(gateway, "ada", "admin", group)


async def test_a_dead_letter_is_shown_and_tried_again_on_another_provider(gateway: Gateway, admin: Caller) -> None:
    await gateway.fleet.send("hello", thread_id="t", sender_id="cora")
    [letter] = (await admin.get("/v1/dead"))["items"]
    assert (letter["agent"], letter["text"], letter["sender"], letter["thread"]) == ("demo", "hello", "cora", "t")
    assert letter["error_class"] == "unknown_provider"
    assert "nobody" in letter["error"]
    path = f"/v1/dead/{letter['id']}"
    whole = await admin.get(path)
    assert whole["content"] == {"text": "hello", "sender": "cora"}
    assert {name: whole[name] for name in letter} == letter

    refused = await admin.ask("POST", f"{path}/retry", {"provider": "gone"})
    assert refused.status_code == 422
    assert "gone" in refused.json()["detail"]
    assert (await admin.ask("POST", f"{path}/retry", {"speed": 2})).status_code == 422
    assert len((await admin.get("/v1/dead"))["items"]) == 1
    told = await admin.post(f"{path}/retry", {"provider": "scripted"})
    assert told["text"]
    await gateway.fleet.settle_down()
    assert (await admin.get("/v1/dead"))["items"] == []
    state = await admin.get(f"/v1/messages/{letter['id']}")
    assert (state["status"], [said["text"] for said in state["answers"]]) == ("completed", ["You said: hello"])
    [turn] = await gateway.fleet.turns()
    assert turn.provider == "scripted"
    assert (await admin.ask("GET", path)).status_code == 404
    again = await admin.ask("POST", f"{path}/retry")
    assert again.status_code == 409
    assert "it was answered" in again.json()["detail"]
    assert [(row.who, row.act) for row in await gateway.fleet.rows(Audit)] == [("web:ada", "dead.retry")]


async def test_a_dead_letter_is_tried_again_as_it_was_or_put_away(gateway: Gateway, admin: Caller) -> None:
    for text in ("one", "two"):
        await gateway.fleet.send(text)
    await gateway.fleet.execute(update(AgentGroup).values(provider="scripted"))
    two, one = (await admin.get("/v1/dead"))["items"]
    await admin.post(f"/v1/dead/{one['id']}/retry")
    await admin.post(f"/v1/dead/{two['id']}/discard")
    await gateway.fleet.settle_down()
    states = [(await admin.get(f"/v1/messages/{letter['id']}"))["status"] for letter in (one, two)]
    assert states == ["completed", "discarded"]
    assert (await admin.ask("POST", f"/v1/dead/{two['id']}/discard")).status_code == 409


async def test_dead_letters_come_in_pages_whatever_their_ids_are(gateway: Gateway, group: str, admin: Caller) -> None:
    session = (await gateway.fleet.send("first")).session_id
    # Ids of producers' own, some of the same moment.
    ids = ["order 1/2", "größe", "x" * 36, "a.b:c", "☂" * 36]
    place = {"channel_type": "local", "platform_id": "inbox", "session_id": session, "agent_group_id": group}
    for number, row_id in enumerate(ids):
        row = {"id": row_id, "seq": 100 + number, "kind": "chat", "content": {"text": "x"}, "status": "failed"}
        await gateway.fleet.insert(
            MessageIn, place | row | {"status_changed_at": PAST - timedelta(seconds=number // 3)}
        )
    found: list[Any] = []
    after = ""
    while True:
        page = await admin.get(f"/v1/dead?limit=2{after}")
        found += [letter["id"] for letter in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert sorted(found[1:]) == sorted(ids)
    assert (await admin.ask("GET", "/v1/dead?agent=other")).status_code == 404
    assert (await admin.get("/v1/dead/gr%C3%B6%C3%9Fe"))["id"] == "größe"


async def test_an_answer_that_did_not_arrive_is_sent_again(gateway: Gateway, admin: Caller) -> None:
    fleet = gateway.fleet
    session = (await fleet.send("hello")).session_id
    rows = [
        {"id": new_id(), "session_id": session, "seq": seq, "kind": "chat", "status": status, "error": "no answer",
         "idempotency_key": str(seq), "channel_type": "local", "platform_id": "inbox", "content": {"text": str(seq)}}
        for seq, status in ((10, "failed"), (11, "unknown"), (12, "delivered"))
    ]  # fmt: skip
    for row in rows:
        await fleet.insert(MessageOut, row)
    unknown, failed = (await admin.get("/v1/undelivered"))["items"]
    assert (unknown["status"], failed["status"], failed["error"], failed["agent"]) == (
        "unknown",
        "failed",
        "no answer",
        "demo",
    )
    first = await admin.get("/v1/undelivered?limit=1")
    second = await admin.get(f"/v1/undelivered?limit=1&after={first['next']}")
    assert [first["items"], second["items"], second["next"]] == [[unknown], [failed], None]
    await admin.post(f"/v1/undelivered/{failed['id']}/resend")
    await fleet.settle_down()
    assert [row["id"] for row in (await admin.get("/v1/undelivered"))["items"]] == [unknown["id"]]
    assert (await admin.ask("POST", f"/v1/undelivered/{failed['id']}/resend")).status_code == 404
    assert [row.act for row in await fleet.rows(Audit)] == ["dead.resend"]


async def test_refused_input_is_for_those_who_see_the_fleet(gateway: Gateway, admin: Caller) -> None:
    for number in range(3):
        await gateway.fleet.insert(
            Rejected, {"source": "messages.ingest", "reason": f"wrong {number}", "payload": {"kwargs": {"n": number}}}
        )
    assert (await admin.ask("GET", "/v1/rejected")).status_code == 403
    owner = await caller(gateway, "olga", "owner")
    page = await owner.get("/v1/rejected?limit=2")
    rest = await owner.get(f"/v1/rejected?limit=2&after={page['next']}")
    shown = page["items"] + rest["items"]
    assert {row["reason"] for row in shown} == {"wrong 0", "wrong 1", "wrong 2"}
    assert rest["next"] is None


async def test_what_went_wrong_elsewhere_is_nobody_s_business(gateway: Gateway, group: str) -> None:
    fleet = gateway.fleet
    session = (await fleet.send("hello")).session_id
    lost = new_id()
    row = {"id": lost, "session_id": session, "seq": 10, "kind": "chat", "status": "failed", "idempotency_key": "1"}
    await fleet.insert(MessageOut, row | {"channel_type": "local", "platform_id": "x", "content": {"text": "x"}})
    [dead] = await fleet.inbox()
    member = await caller(gateway, "mia")
    await fleet.insert(AgentGroupMember, {"user_id": member.user_id, "agent_group_id": group})
    others = [await caller(gateway, "sid"), member]
    others += [await caller(gateway, "ed", "admin", await fleet.add_group("other"))]
    for nobody in others:
        assert (await nobody.get("/v1/dead"))["items"] == []
        assert (await nobody.get("/v1/undelivered"))["items"] == []
        assert (await nobody.ask("GET", f"/v1/dead/{dead.id}")).status_code == 404
        for path in (f"dead/{dead.id}/retry", f"dead/{dead.id}/discard", f"undelivered/{lost}/resend", "dead/x/retry"):
            answer = await nobody.ask("POST", f"/v1/{path}")
            assert answer.status_code == 404, path
            assert "or it is none of yours" in answer.json()["detail"]
    reader = await caller(gateway, "rex", "owner", scopes=["read", "send"])
    for path in (f"dead/{dead.id}/retry", f"dead/{dead.id}/discard", f"undelivered/{lost}/resend"):
        assert (await reader.ask("POST", f"/v1/{path}")).status_code == 403
    assert [row.status for row in await fleet.inbox()] == ["failed"]
    assert await fleet.rows(Audit) == []
