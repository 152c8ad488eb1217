"""Sessions, turns, steps and replays over HTTP: all of what is theirs, page by page, and nothing of anybody else's."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import update

from gateway.http.api.forms import EXCERPT
from models import AgentGroupMember, MessageIn, MessageOut, Session, Step, Usage
from models.audit import Audit
from models.base import new_id, now
from tests.support.api_callers import Caller, caller
from tests.support.open_gateway import Gateway

pytestmark = pytest.mark.spec("G2", "M15")
PAST = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


@pytest.fixture
async def group(gateway: Gateway) -> str:
    return await gateway.fleet.add_group(script="You said: {texts}")


@pytest.fixture
async def admin(gateway: Gateway, group: str) -> Caller:
    return await caller(gateway, "ada", "admin", group)


async def talk(gateway: Gateway, *texts: str, **fields: Any) -> str:
    """A session in which these were said and answered."""
    session = ""
    for text in texts:
        session = (await gateway.fleet.send(text, **fields)).session_id
        await gateway.fleet.settle_down()
    return session


async def pages(who: Caller, path: str, limit: int) -> list[Any]:
    """Everything, page by page."""
    found: list[Any] = []
    after = ""
    while True:
        page = await who.get(f"{path}{'&' if '?' in path else '?'}limit={limit}{after}")
        assert len(page["items"]) <= limit
        found += page["items"]
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


async def test_a_session_is_shown_with_all_that_was_said_and_done(gateway: Gateway, group: str, admin: Caller) -> None:
    session = await talk(gateway, "one", "two", platform_id="desk", thread_id="t1", sender_id="cora")
    [first, second] = await gateway.fleet.turns()
    spent = {"agent_group_id": group, "session_id": session, "turn_id": second.id, "provider": "x", "model": "y"}
    [before] = [row for row in await gateway.fleet.rows(Usage) if row.turn_id == second.id]
    await gateway.fleet.insert(
        Usage, *({**spent, "input_tokens": n, "output_tokens": 1, "cost_usd": Decimal("0.25")} for n in (10, 20))
    )

    shown = await admin.get(f"/v1/sessions/{session}")
    assert (shown["agent"], shown["status"], shown["state"], shown["provider"]) == (
        "demo",
        "active",
        "idle",
        "scripted",
    )
    assert (shown["channel"], shown["chat"], shown["thread"]) == ("local", "desk", "t1")
    assert (shown["turns"], shown["pending"], shown["dead"]) == (2, 0, 0)
    assert shown["last_active"].endswith(("Z", "+00:00"))

    messages = await pages(admin, f"/v1/sessions/{session}/messages", 3)
    assert [(one["direction"], one["text"]) for one in messages] == [
        ("in", "one"),
        ("out", "You said: one"),
        ("in", "two"),
        ("out", "You said: two"),
    ]
    assert [one["seq"] for one in messages] == sorted(one["seq"] for one in messages)
    assert [one["sender"] for one in messages] == ["cora", None, "cora", None]
    assert {one["turn"] for one in messages} == {first.id, second.id}

    turns = await pages(admin, f"/v1/sessions/{session}/turns", 1)
    assert [(turn["number"], turn["status"]) for turn in turns] == [(1, "completed"), (2, "completed")]
    one = await admin.get(f"/v1/turns/{second.id}")
    assert one == turns[1]
    used = one["usage"]
    assert (used["calls"], used["input_tokens"], used["cost_usd"]) == (3, before.input_tokens + 30, 0.5)
    assert turns[0]["usage"]["cost_usd"] is None


@ONE_DATABASE
async def test_how_a_session_stands_is_told_in_a_word(gateway: Gateway, admin: Caller) -> None:
    session = (await gateway.fleet.send("hello")).session_id
    rests = {"lease_owner": None, "lease_expires_at": None, "resume_after": now(60)}
    states: list[tuple[dict[str, Any], str]] = [
        ({}, "waiting"),
        ({"lease_owner": "w1", "lease_expires_at": now(60), "activity": "calling model"}, "working"),
        ({"lease_expires_at": now(-1)}, "worker lost"),
        (rests, "resting"),
        ({"status": "closed"}, "closed"),
    ]
    for changes, state in states:
        if changes:
            await gateway.fleet.execute(update(Session).values(**changes))
        assert (await admin.get(f"/v1/sessions/{session}"))["state"] == state


async def test_what_is_scheduled_for_later_does_not_wait_for_a_worker(gateway: Gateway, admin: Caller) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    session = (await gateway.fleet.send("a report", kind="task", process_after=later)).session_id
    shown = await admin.get(f"/v1/sessions/{session}")
    assert (shown["state"], shown["pending"]) == ("idle", 0)


@ONE_DATABASE
async def test_steps_are_shown_as_data_and_cut_to_a_bound(gateway: Gateway, admin: Caller) -> None:
    await talk(gateway, "hello")
    [turn] = await gateway.fleet.turns()
    hostile = "<script>alert(1)</script>"
    row = {"turn_id": turn.id, "kind": "tool", "name": "read", "status": "finished"}
    for number, output in ((900, {"text": hostile}), (901, {"text": "x" * (EXCERPT + 5000)})):
        given = {"number": number, "key": str(number), "input": {"path": hostile}, "output": output}
        await gateway.fleet.insert(Step, row | given)
    answer = await admin.ask("GET", f"/v1/turns/{turn.id}/steps?after=899")
    assert answer.headers["content-type"] == "application/json"
    plain, long = answer.json()["items"]
    assert (plain["input"], plain["output"], plain["cut"]) == ({"path": hostile}, {"text": hostile}, False)
    assert (long["cut"], long["output"][:10], len(long["output"])) == (True, '{"text": "', EXCERPT)
    everything = await pages(admin, f"/v1/turns/{turn.id}/steps", 1)
    assert [step["number"] for step in everything] == sorted(step["number"] for step in everything)
    assert everything[-2:] == [plain, long]


async def test_pages_lose_and_repeat_nothing_while_others_come_in(gateway: Gateway, group: str, admin: Caller) -> None:
    fleet = gateway.fleet
    rows = [{"id": new_id(), "agent_group_id": group, "thread_id": str(n)} for n in range(7)]
    # Four at the same moment: only their ids tell them apart.
    for number, row in enumerate(rows):
        await fleet.insert(Session, {**row, "last_active": PAST + timedelta(seconds=max(0, number - 3))})
    first = await admin.get("/v1/sessions?limit=3")
    await fleet.insert(Session, {"id": new_id(), "agent_group_id": group, "thread_id": "new"})
    rest: list[Any] = []
    after = first["next"]
    while after is not None:
        page = await admin.get(f"/v1/sessions?limit=2&after={after}")
        rest, after = rest + page["items"], page["next"]
    seen = [row["id"] for row in first["items"] + rest]
    assert len(seen) == 7
    assert set(seen) == {row["id"] for row in rows}
    at = [row["last_active"] for row in first["items"] + rest]
    assert at == sorted(at, reverse=True)


@ONE_DATABASE
async def test_lists_are_narrowed_and_wrong_cursors_refused(gateway: Gateway, group: str, admin: Caller) -> None:
    await gateway.fleet.add_group("other")
    session = await talk(gateway, "hello")
    await talk(gateway, "hello", agent_group="other", platform_id="there")
    owner = await caller(gateway, "olga", "owner")
    assert len((await owner.get("/v1/sessions"))["items"]) == 2
    assert [row["id"] for row in (await owner.get("/v1/sessions?agent=demo"))["items"]] == [session]
    for path in ("/v1/sessions", "/v1/dead", "/v1/tasks", "/v1/usage", "/v1/budgets"):
        unknown = await owner.ask("GET", f"{path}?agent=gone")
        assert unknown.status_code == 404
        assert unknown.json()["detail"] == "there is no such agent, or it is none of yours"
    assert (await owner.get("/v1/sessions?status=closed"))["items"] == []
    [turn] = [turn for turn in await gateway.fleet.turns() if turn.session_id == session]
    paths = ["/v1/sessions", f"/v1/sessions/{session}/messages", f"/v1/sessions/{session}/turns"]
    for path in [*paths, f"/v1/turns/{turn.id}/steps", "/v1/dead", "/v1/undelivered", "/v1/rejected"]:
        for cursor in ("nonsense", "MQ", "OTk5OTk5OTk5OTk5OTk5OTk5X3g", "-1", "1" * 40, "MV8A"):
            answer = await owner.ask("GET", f"{path}?after={cursor}")
            assert answer.status_code == 422, (path, cursor)
            assert "this is no cursor" in answer.json()["detail"]
        for wrong in ("limit=0", "limit=201", "limit=x", "after="):
            assert (await owner.ask("GET", f"{path}?{wrong}")).status_code == 422, (path, wrong)


async def test_nobody_sees_or_steers_what_is_not_theirs(gateway: Gateway, group: str) -> None:
    session = await talk(gateway, "hello")
    [turn] = await gateway.fleet.turns()
    other = await gateway.fleet.add_group("other")
    stranger, member = await caller(gateway, "sid"), await caller(gateway, "mia")
    elsewhere = await caller(gateway, "ed", "admin", other)
    await gateway.fleet.insert(AgentGroupMember, {"user_id": member.user_id, "agent_group_id": group})
    looks = [f"/v1/sessions/{session}{more}" for more in ("", "/messages", "/turns")]
    looks += [f"/v1/turns/{turn.id}", f"/v1/turns/{turn.id}/steps", f"/v1/replays/{session}"]
    acts = [f"/v1/sessions/{session}/{verb}" for verb in ("cancel", "reset", "close", "replays")]
    for nobody in (stranger, member, elsewhere):
        assert (await nobody.get("/v1/sessions"))["items"] == []
        for path in looks:
            assert (await nobody.ask("GET", path)).status_code == 404, path
        for path in acts:
            assert (await nobody.ask("POST", path)).status_code == 404, path
        said = await nobody.ask("POST", f"/v1/sessions/{session}/messages", {"text": "hi"})
        assert said.status_code == 404
        assert said.json()["detail"] == "there is no such session, or it is none of yours"
    reader = await caller(gateway, "rex", "owner", scopes=["read"])
    for path in acts:
        assert (await reader.ask("POST", path)).status_code == 403
    assert (await reader.ask("POST", f"/v1/sessions/{session}/messages", {"text": "hi"})).status_code == 403
    sender = await caller(gateway, "sue", "owner", scopes=["send"])
    for path in looks:
        assert (await sender.ask("GET", path)).status_code == 403
    assert len(await gateway.fleet.inbox()) == 1
    assert await gateway.fleet.rows(Audit) == []


async def test_something_is_said_in_a_session_once_per_key(gateway: Gateway, admin: Caller) -> None:
    session = await talk(gateway, "hello", platform_id="desk")
    path = f"/v1/sessions/{session}/messages"
    answers = await asyncio.gather(
        *(admin.ask("POST", path, {"text": "and now?"}, Idempotency_Key="k") for _ in range(5))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    await gateway.fleet.settle_down()
    shown = await admin.get(answers[0].headers["location"])
    assert [said["text"] for said in shown["answers"]] == ["You said: and now?"]
    other = await admin.ask("POST", path, {"text": "something else"}, Idempotency_Key="k")
    assert other.status_code == 409
    assert "was used before, for something else" in other.json()["detail"]
    for wrong in ({}, {"text": ""}, {"text": " \n"}, {"text": "x", "sender": "olga"}, {"text": "x" * 100_001}):
        assert (await admin.ask("POST", path, wrong)).status_code == 422
    assert len(await gateway.fleet.inbox()) == 2


async def test_sessions_are_cancelled_reset_and_closed(gateway: Gateway, admin: Caller) -> None:
    session = await talk(gateway, "hello")
    nothing = await admin.ask("POST", f"/v1/sessions/{session}/cancel")
    assert nothing.status_code == 409
    assert "nothing to cancel" in nothing.json()["detail"]
    await admin.post(f"/v1/sessions/{session}/reset")
    assert (await admin.get(f"/v1/sessions/{session}"))["status"] == "closed"
    [anew] = (await admin.get("/v1/sessions?status=active"))["items"]
    await admin.post(f"/v1/sessions/{anew['id']}/close")
    again = await admin.ask("POST", f"/v1/sessions/{anew['id']}/close")
    assert again.status_code == 409
    acts = [(row.who, row.act) for row in await gateway.fleet.rows(Audit, Audit.id)]
    assert acts == [("web:ada", "session.reset"), ("web:ada", "session.close")]


async def test_a_replay_is_made_once_per_key_and_compared(gateway: Gateway, admin: Caller) -> None:
    session = await talk(gateway, "one", "two")
    path = f"/v1/sessions/{session}/replays"
    made = await admin.ask("POST", path, {"turns": [2]}, Idempotency_Key="r1")
    assert made.status_code == 201, made.text
    replay = made.json()
    assert (replay["replay_of"], replay["turns"], replay["delivers"], replay["duplicate"]) == (
        session,
        [2],
        False,
        False,
    )
    again = await admin.ask("POST", path, {"turns": [2]}, Idempotency_Key="r1")
    assert (again.json()["session"], again.json()["duplicate"]) == (replay["session"], True)
    other = await admin.ask("POST", path, {"turns": [1]}, Idempotency_Key="r1")
    assert other.status_code == 409
    await gateway.fleet.settle_down()
    compared = await admin.get(made.headers["location"])
    [pair] = compared["pairs"]
    assert (compared["replay_of"], pair["original"]["number"]) == (session, 2)
    assert [side["answers"][0]["text"] for side in pair.values()] == ["You said: two"] * 2
    shown = await admin.get(f"/v1/sessions/{replay['session']}")
    assert (shown["replay_of"], shown["delivers"], shown["chat"]) == (session, False, None)
    for wrong, status, text in (({"turns": [9]}, 409, "9"), ({"provider": "nobody"}, 422, "no provider 'nobody'")):
        refused = await admin.ask("POST", path, wrong)
        assert refused.status_code == status
        assert text in refused.json()["detail"]
    senseless: list[dict[str, Any]] = [{"turns": []}, {"turns": [0]}, {"turns": "all"}, {"speed": 2}]
    for order in senseless:
        assert (await admin.ask("POST", path, order)).status_code == 422
    no_replay = await admin.ask("GET", f"/v1/replays/{session}")
    assert no_replay.status_code == 404
    assert len([row for row in await gateway.fleet.rows(MessageIn) if row.replay_of is not None]) == 1


@ONE_DATABASE
async def test_a_comparison_comes_in_pages_and_of_long_texts_the_beginning(gateway: Gateway, admin: Caller) -> None:
    session = await talk(gateway, "one", "two", "three")
    made = await admin.post(f"/v1/sessions/{session}/replays", expected=201)
    await gateway.fleet.settle_down()
    path, found = f"/v1/replays/{made['session']}", list[Any]()
    page: Any = {"next": "0"}
    while page["next"] is not None:
        page = await admin.get(f"{path}?limit=2&after={page['next']}")
        assert len(page["pairs"]) <= 2
        found += page["pairs"]
    assert [pair["original"]["number"] for pair in found] == [1, 2, 3]
    assert [pair["replayed"]["cut"] for pair in found] == [False] * 3
    await gateway.fleet.execute(update(MessageOut).values(content={"text": "y" * EXCERPT * 2}))
    await gateway.fleet.execute(update(MessageIn).values(content={"text": "z" * EXCERPT * 2}))
    for pair in (await admin.get(path))["pairs"]:
        for side in pair.values():
            assert [len(side[part][0]["text"]) for part in ("messages", "answers")] == [EXCERPT] * 2
            assert side["cut"]
    for wrong in ("after=x", "after=-1", "limit=0", "limit=201", f"after={10**30}"):
        assert (await admin.ask("GET", f"{path}?{wrong}")).status_code == 422
