"""Agents, wirings, tasks, usage, the fleet and the audit log over real HTTP, on both databases."""

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import select

from models import AgentGroup, Process, Usage
from models.audit import Audit
from models.base import new_id
from tests.support.api_callers import Caller, caller
from tests.support.api_seeds import seed
from tests.support.fleet import Fleet
from tests.support.open_gateway import Gateway

pytestmark = pytest.mark.spec("G2")


@pytest.fixture
async def owner(gateway: Gateway) -> Caller:
    return await caller(gateway, "olga", "owner")


async def acts(fleet: Fleet) -> list[tuple[str, str, str]]:
    async def work(conn: Any) -> list[Any]:
        return list((await conn.execute(select(Audit.who, Audit.act, Audit.target).order_by(Audit.id))).all())

    return [tuple(row) for row in await fleet.db.read(work)]


async def test_an_agent_is_made_shown_and_changed(gateway: Gateway, owner: Caller) -> None:
    made = await owner.post("/v1/groups", {"agent": "ann", "budget": {"daily_usd": 2}, "provider": "scripted"}, 201)
    assert (made["name"], made["provider"], made["budget"]) == (
        "ann",
        "scripted",
        {"daily_usd": 2.0, "user_daily_usd": None},
    )
    change = {"name": "Ann", "options": {"script": "Hi {texts}", "api_key": "hunter2-hunter2"}}
    refused = await owner.ask("PATCH", "/v1/groups/ann", change)
    assert refused.status_code == 422  # the provider knows no such option
    changed = await owner.patch("/v1/groups/ann", {"name": "Ann", "provider": None, "budget": {"daily_usd": None}})
    assert (changed["name"], changed["provider"], changed["budget"]["daily_usd"]) == ("Ann", None, None)
    assert await owner.get("/v1/groups") == {"items": [changed], "next": None}
    assert await owner.get("/v1/groups/ann") == changed
    assert await acts(gateway.fleet) == [("web:olga", "group.add", "ann"), ("web:olga", "group.update", "ann")]


async def test_an_agent_cannot_be_what_makes_no_sense(gateway: Gateway, owner: Caller) -> None:
    await gateway.fleet.add_group("ann")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"provider": "gpt"}, "there is no provider 'gpt'"),
        ({"name": " "}, "name:"),
        ({"name": "a\x00b"}, "name:"),
        ({"fallbacks": ["scripted"]}, "is the agent's own provider"),
        ({"policy": {"approve": ["no_such_tool"]}}, "there is no tool 'no_such_tool'"),
        ({"budget": {"daily_usd": -1}}, "budget.daily_usd:"),
        ({"colour": "red"}, "colour:"),
    ]
    for body, reason in wrong:
        answer = await owner.patch("/v1/groups/ann", body, 422)
        assert reason in answer["detail"]
    taken = await owner.post("/v1/groups", {"agent": "ann"}, 409)
    assert "there is already an agent 'ann'" in taken["detail"]
    await owner.post("/v1/groups", {"agent": "Not/Good"}, 422)
    await owner.get("/v1/groups/nobody", 404)
    assert await acts(gateway.fleet) == []


async def test_secrets_among_options_are_never_shown(gateway: Gateway, owner: Caller) -> None:
    options = {"api_key": "hunter2", "headers": {"X-Token": "hunter3"}, "max_tokens": 5}
    await gateway.fleet.add_group("ann", config={"provider_options": options, "policy": {"mcp_password": "hunter4"}})
    shown = await owner.get("/v1/groups/ann")
    assert shown["options"] == {"api_key": "(set)", "headers": {"X-Token": "(set)"}, "max_tokens": 5}
    assert "hunter" not in (await owner.ask("GET", "/v1/groups")).text
    await owner.patch("/v1/groups/ann", {"options": {"api_key": "(set)"}}, 422)


async def test_only_who_sets_up_may_write_and_others_see_what_is_theirs(gateway: Gateway) -> None:
    mine = await gateway.fleet.add_group("mine")
    await gateway.fleet.add_group("hidden")
    ada = await caller(gateway, "ada", "admin", mine)
    assert [one["agent"] for one in (await ada.get("/v1/groups"))["items"]] == ["mine"]
    await ada.get("/v1/groups/hidden", 404)
    await ada.patch("/v1/groups/hidden", {"name": "x"}, 404)
    await ada.patch("/v1/groups/mine", {"name": "x"}, 403)
    await ada.post("/v1/groups", {"agent": "more"}, 403)
    wiring = {"channel": "fake", "chat": "room"}
    await ada.put("/v1/wirings", {"agent": "mine", **wiring}, 403)
    await ada.put("/v1/wirings", {"agent": "hidden", **wiring}, 404)
    await ada.get("/v1/audit", 403)
    await ada.get("/v1/providers", 403)


async def test_an_agent_is_wired_and_unwired(gateway: Gateway, owner: Caller) -> None:
    mine = await gateway.fleet.add_group("ann")
    await gateway.fleet.add_group("bob")
    given = {
        "agent": "ann",
        "channel": "fake",
        "chat": "room",
        "mention_only": True,
        "priority": 3,
        "strangers": "public",
    }
    wired = await owner.put("/v1/wirings", given)
    assert wired["rules"] == {"mentionOnly": True, "sticky": True}
    assert (wired["priority"], wired["strangers"]) == (3, "public")
    again = await owner.put("/v1/wirings", {"agent": "ann", "channel": "fake", "chat": "room"})
    assert (again["id"], again["rules"], again["strangers"]) == (wired["id"], {}, "public")
    await owner.put("/v1/wirings", {"agent": "bob", "channel": "fake", "chat": "room"})
    first = await owner.get("/v1/wirings?limit=1")
    rest = await owner.get(f"/v1/wirings?limit=1&after={first['next']}")
    assert ([one["agent"] for one in first["items"] + rest["items"]], rest["next"]) == (["ann", "bob"], None)
    ada = await caller(gateway, "ada", "admin", mine)
    assert [one["agent"] for one in (await ada.get("/v1/wirings"))["items"]] == ["ann"]
    await ada.delete(f"/v1/wirings/{wired['id']}", 403)
    await ada.delete(f"/v1/wirings/{rest['items'][0]['id']}", 404)
    await owner.delete(f"/v1/wirings/{wired['id']}")
    await owner.delete(f"/v1/wirings/{wired['id']}", 404)
    assert [act for _, act, _ in await acts(gateway.fleet)] == ["wiring.put"] * 3 + ["wiring.remove"]
    for body, reason in (
        ({"pattern": "(a+)+$"}, "could take too long"),
        ({"channel": "nowhere"}, "there is no channel 'nowhere'"),
        ({"scope": "allowlisted"}, "name somebody"),
        ({"include_senders": ["x"], "exclude_senders": ["fake:x"]}, "both included and"),
    ):
        answer = await owner.put("/v1/wirings", {"agent": "ann", "channel": "fake", "chat": "room"} | body, 422)
        assert reason in answer["detail"]
    await owner.put("/v1/wirings", {"agent": "nobody", "channel": "fake", "chat": "room"}, 404)


async def test_a_key_makes_one_task_and_is_not_for_another(gateway: Gateway, owner: Caller) -> None:
    for folder in ("ann", "bob"):
        await gateway.fleet.add_group(folder, script="done")
    message = await owner.ask("POST", "/v1/messages", {"agent_group": "ann", "text": "hello"}, Idempotency_Key="k1")
    body: dict[str, Any] = {"agent": "ann", "prompt": "x", "every": "@daily", "at": "2999-01-01T09:00:00+01:00"}
    body |= {"terms": {"daily_usd": 1.5, "jitter_seconds": 60}}
    made = await owner.ask("POST", "/v1/tasks", body, Idempotency_Key="k1")
    assert (message.status_code, made.status_code) == (202, 201), "a message's key is none of a task's"
    again = await owner.ask("POST", "/v1/tasks", body, Idempotency_Key="k1")
    assert (again.status_code, again.json()) == (201, made.json())
    changes: list[dict[str, Any]] = [
        {"prompt": "y"},
        {"agent": "bob"},
        {"every": "@hourly"},
        {"at": "2999-01-02T09:00:00+01:00"},
        {"timezone": "Europe/Vienna"},
        {"chat": "elsewhere"},
        {"terms": {"daily_usd": 2}},
        {"terms": None},
    ]
    for change in changes:
        other = await owner.ask("POST", "/v1/tasks", body | change, Idempotency_Key="k1")
        assert other.status_code == 409, change
        assert "was used before, for something else" in other.json()["detail"]
    assert [row.act for row in await gateway.fleet.rows(Audit)] == ["task.add"]
    assert len((await owner.get("/v1/tasks"))["items"]) == 1


async def test_a_task_is_added_shown_changed_and_ended(gateway: Gateway, owner: Caller) -> None:
    await gateway.fleet.add_group("ann", script="done")
    body = {"agent": "ann", "prompt": "What is new?", "every": "0 9 * * 1-5", "timezone": "Europe/Vienna"}
    answers = [await owner.ask("POST", "/v1/tasks", body, Idempotency_Key="k1") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    made = answers[0].json()
    assert answers[1].json()["id"] == made["id"]
    assert (len(made["next_runs"]), made["state"], made["every_words"]) == (
        5,
        "pending",
        "At 09:00 on Monday through Friday",
    )
    path = f"/v1/tasks/{made['id']}"
    assert [task["id"] for task in (await owner.get("/v1/tasks"))["items"]] == [made["id"]]
    assert "is paused" in (await owner.post(f"{path}/pause"))["text"]
    assert (await owner.get(path))["paused"] is True
    assert "goes on" in (await owner.post(f"{path}/resume"))["text"]
    changed = await owner.patch(path, {"prompt": "And now?", "daily_usd": 1.5, "every": "@daily"})
    assert (changed["prompt"], changed["terms"]["daily_usd"], changed["every"]) == ("And now?", 1.5, "@daily")
    assert "runs now" in (await owner.post(f"{path}/run"))["text"]
    await owner.post(f"{path}/run", expected=409)
    await gateway.fleet.settle_down()
    assert [run["extra"] for run in (await owner.get(path))["runs"]] == [True]
    assert "is cancelled" in (await owner.post(f"{path}/cancel"))["text"]
    assert (await owner.get(path))["over"] is True
    await owner.post(f"{path}/pause", expected=409)
    assert (await owner.get("/v1/tasks"))["items"] == []
    said = ["task.add", "task.pause", "task.resume", "task.update", "task.run", "task.cancel"]
    assert await acts(gateway.fleet) == [("web:olga", act, made["id"]) for act in said]


async def test_a_task_that_makes_no_sense_is_refused_and_a_script_is_no_part_of_it(
    gateway: Gateway, owner: Caller
) -> None:
    await gateway.fleet.add_group("ann")
    good = {"agent": "ann", "prompt": "x", "every": "@daily"}
    path = f"/v1/tasks/{(await owner.post('/v1/tasks', good, 201))['id']}"
    senseless: tuple[dict[str, Any], ...] = (
        {"every": None},
        {"every": "every day"},
        {"timezone": "Mars/Base"},
        {"at": "2020-01-01T00:00:00Z"},
        {"at": "2030-01-01T00:00:00"},
        {"terms": {"script": "rm -rf /"}},
        {"terms": {"provider": "gpt"}},
        {"script": "x"},
        {"prompt": " "},
    )
    for body in senseless:
        assert (await owner.ask("POST", "/v1/tasks", good | body)).status_code == 422, body
    senseless = ({"every": "x"}, {"at": None}, {"script": "x"}, {"provider": "gpt"}, {"jitter_seconds": 10**9})
    for body in senseless:
        assert (await owner.ask("PATCH", path, body)).status_code == 422, body
    await owner.post("/v1/tasks", good | {"agent": "nobody"}, 404)


async def test_tasks_are_read_page_by_page_and_only_mine(gateway: Gateway, owner: Caller) -> None:
    mine = await gateway.fleet.add_group("mine")
    await gateway.fleet.add_group("hidden")
    ids = []
    for number in range(3):
        body = {"agent": "mine", "prompt": f"p{number}", "every": "@daily"}
        ids.append((await owner.post("/v1/tasks", body, 201))["id"])
    other = (await owner.post("/v1/tasks", {"agent": "hidden", "prompt": "secret", "every": "@daily"}, 201))["id"]
    ada = await caller(gateway, "ada", "admin", mine)
    first = await ada.get("/v1/tasks?limit=2")
    rest = await ada.get(f"/v1/tasks?limit=2&after={first['next']}")
    assert [task["id"] for task in first["items"] + rest["items"]] == sorted(ids)
    await ada.get(f"/v1/tasks/{other}", 404)
    await ada.post(f"/v1/tasks/{other}/cancel", expected=404)
    await ada.get("/v1/tasks?agent=hidden", 404)


async def test_usage_and_budgets_are_those_of_my_agents(gateway: Gateway, owner: Caller) -> None:
    fleet = gateway.fleet
    mine = await fleet.add_group("mine", config={"budget": {"daily_usd": 5.0}})
    hidden = await fleet.add_group("hidden", config={"budget": {"daily_usd": 7.0}})
    for folder, usd in (("mine", "1.5"), ("hidden", "2.5")):
        accepted = await fleet.send(agent_group=folder)
        await fleet.settle_down()
        [turn] = [turn for turn in await fleet.turns() if turn.session_id == accepted.session_id]
        row: dict[str, Any] = {
            "agent_group_id": {"mine": mine, "hidden": hidden}[folder],
            "session_id": accepted.session_id,
        }
        row |= {"turn_id": turn.id, "provider": "p", "model": "m", "input_tokens": 10, "output_tokens": 1}
        await fleet.insert(Usage, row | {"id": new_id(), "cost_usd": Decimal(usd)})
    both = await owner.get("/v1/usage?by=agent,day&days=2")
    assert [row["key"]["agent"] for row in both["rows"]] == ["hidden", "mine"]
    assert both["total"]["cost_usd"] == 4.0
    ada = await caller(gateway, "ada", "admin", mine)
    seen = await ada.get("/v1/usage?by=agent")
    assert ([row["key"]["agent"] for row in seen["rows"]], seen["total"]["cost_usd"]) == (["mine"], 1.5)
    assert [one["agent"] for one in (await ada.get("/v1/budgets"))["items"]] == ["mine"]
    assert [one["cap_usd"] for one in (await owner.get("/v1/budgets"))["items"]] == [7.0, 5.0]
    await owner.get("/v1/usage?by=colour", 422)
    await ada.get("/v1/usage?agent=hidden", 404)


async def test_the_fleet_at_a_glance(gateway: Gateway, owner: Caller) -> None:
    fleet = gateway.fleet
    mine = await fleet.add_group("mine", script="done")
    await fleet.add_group("hidden")
    await fleet.insert(Process, {"name": "w@h", "kind": "worker", "pid": 1, "queues": ["agent.scripted"]})
    await fleet.send(agent_group="mine")
    await fleet.settle_down()
    await fleet.send(agent_group="hidden")
    seen = await owner.get("/v1/fleet")
    assert [row["queue"] for row in seen["queues"]] == ["agent.scripted"]
    assert (seen["last_hour"]["completed"], seen["last_hour"]["error_rate"]) == (1, 0.0)
    assert [row["alive"] for row in seen["processes"]] == [True]
    ada = await caller(gateway, "ada", "admin", mine)
    narrow = await ada.get("/v1/fleet")
    assert (narrow["queues"], narrow["processes"], narrow["last_hour"]["completed"]) == ([], [], 1)


@pytest.mark.usefixtures("no_programs")
async def test_providers_are_shown_to_those_who_see_the_fleet(gateway: Gateway, owner: Caller) -> None:
    shown = {one["id"]: one for one in (await owner.get("/v1/providers"))["items"]}
    assert (shown["scripted"]["installed"], shown["scripted"]["default"]) == (True, True)
    assert set(shown) == set(gateway.fleet.runtime.registry.providers.names)


async def test_the_audit_log_is_read_page_by_page_the_latest_first(gateway: Gateway, owner: Caller) -> None:
    for folder in ("a", "b", "c"):
        await owner.post("/v1/groups", {"agent": folder}, 201)
    first = await owner.get("/v1/audit?limit=2")
    rest = await owner.get(f"/v1/audit?limit=2&after={first['next']}")
    lines = first["items"] + rest["items"]
    assert [(line["act"], line["target"], line["agent"]) for line in lines] == [
        ("group.add", folder, folder) for folder in ("c", "b", "a")
    ]
    assert (rest["next"], lines[0]["who"]) == (None, "web:olga")
    for narrow, found in {
        "agent=b": ["b"],
        "act=group&who=web:ol&limit=1": ["c"],
        "act=dead": [],
        "who=a%00": [],
    }.items():
        assert [line["target"] for line in (await owner.get(f"/v1/audit?{narrow}"))["items"]] == found, narrow
    assert len(await gateway.fleet.rows(AgentGroup)) == 3


async def test_a_decision_is_noted_with_who_made_it(gateway: Gateway, owner: Caller) -> None:
    ids = await seed(gateway.fleet, "ann", "word")
    await owner.post(f"/v1/approvals/{ids['approval_id']}", {"decision": "deny"})
    assert (await acts(gateway.fleet))[-1] == ("web:olga", "approval.decide", ids["approval_id"])
    await owner.post(f"/v1/approvals/{ids['approval_id']}", {"decision": "deny"}, 409)
    assert len(await acts(gateway.fleet)) == 2  # with the one that was there before
