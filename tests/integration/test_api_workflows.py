"""Workflows over HTTP: looked at page by page and whole, stopped, and let go on; by those who may."""

from typing import Any

import pytest

from models import Audit, Workflow
from models.people import AgentGroupMember
from tests.support.api_callers import Caller, caller
from tests.support.open_gateway import Gateway
from tests.support.workflow_rows import DIFF, STATES, put_workflow

pytestmark = pytest.mark.spec("O1", "G2")
WORKFLOWS = "/v1/workflows"


@pytest.fixture
async def group(gateway: Gateway) -> str:
    return await gateway.fleet.add_group("foreman")


@pytest.fixture
async def admin(gateway: Gateway, group: str) -> Caller:
    return await caller(gateway, "ada", "admin", group)


async def test_they_come_page_by_page_the_latest_first_and_by_status(gateway: Gateway, admin: Caller) -> None:
    made = [(await put_workflow(gateway.fleet, state)).id for state in STATES]
    await put_workflow(gateway.fleet, "running", folder="somebody-elses")
    found: list[Any] = []
    address: str | None = f"{WORKFLOWS}?limit=3"
    while address is not None:
        part = await admin.get(address)
        found += part["items"]
        address = f"{WORKFLOWS}?limit=3&after={part['next']}" if part["next"] else None
    assert [one["id"] for one in found] == made[::-1]
    assert {one["agent"] for one in found} == {"foreman"}
    [failed] = (await admin.get(f"{WORKFLOWS}?status=failed"))["items"]
    assert failed["outcome"].startswith("“Mend the sum” was given up")
    [done] = (await admin.get(f"{WORKFLOWS}?status=completed"))["items"]
    assert (done["result"]["branch"], done["target"]["pull_request"]) == ("longshore/right-totals", False)
    assert (await admin.ask("GET", f"{WORKFLOWS}?status=odd")).status_code == 422


async def test_one_is_shown_whole(gateway: Gateway, admin: Caller) -> None:
    rows = await put_workflow(gateway.fleet, "waiting")
    shown = await admin.get(f"{WORKFLOWS}/{rows.id}")
    [listed] = (await admin.get(WORKFLOWS))["items"]
    assert {name: shown[name] for name in listed} == listed
    assert [one["provider"] for one in shown["roles"]["builders"]] == ["codex", "claude-code"]
    assert shown["roles"]["reviewers"]["codex"]["provider"] == "gemini"
    assert [(task["key"], task["reviewer"], task["is_done"]) for task in shown["tasks"]] == [
        ("totals", "gemini", True),
        ("docs", "gemini", True),
    ]
    last = shown["stages"][-1]
    assert (last["kind"], last["state"], last["doing"], last["cut"]) == ("publish", "waiting", "awaiting human", False)
    [waits] = shown["waiting"]
    assert waits == last["approvals"][0]
    [approval] = (await admin.get("/v1/approvals"))["items"]
    assert approval["id"] == waits["id"], "where it is decided"
    assert shown["usage"]["gemini"]["calls"] == 2
    assert shown["cost_usd"] == pytest.approx(1.05)
    assert await admin.get(f"/v1/sessions/{last['session']}")
    answer = await admin.ask("GET", f"{WORKFLOWS}/{rows.id}/diff")
    assert (answer.text, answer.headers["content-type"]) == (DIFF, "text/plain; charset=utf-8")
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_what_is_long_is_cut_and_questions_are_named(gateway: Gateway, admin: Caller) -> None:
    rows = await put_workflow(gateway.fleet, "asking")
    await rows.do("check", {"ok": False, "why": "it failed", "log": "x" * 30_000}, "docs")
    shown = await admin.get(f"{WORKFLOWS}/{rows.id}")
    [question] = shown["questions"]
    assert (question["text"], question["options"]) == ("Which currency?", ["euro", "dollar"])
    output = shown["stages"][-1]["output"]
    assert (shown["stages"][-1]["cut"], isinstance(output, str), len(output)) == (True, True, 20_000)
    planning = await put_workflow(gateway.fleet, "planning")
    assert (await admin.ask("GET", f"{WORKFLOWS}/{planning.id}/diff")).text == ""


async def test_one_is_stopped_and_goes_on(gateway: Gateway, admin: Caller) -> None:
    rows = await put_workflow(gateway.fleet, "running")
    path = f"{WORKFLOWS}/{rows.id}"
    assert "nothing to restart" in (await admin.post(f"{path}/restart", expected=409))["detail"]
    assert (await admin.post(f"{path}/cancel"))["text"] == f"workflow {rows.id[-8:]} was cancelled"
    assert (await admin.get(path))["outcome"] == "cancelled by web:ada"
    assert "over already" in (await admin.post(f"{path}/cancel", expected=409))["detail"]
    for wrong in ({"minutes": 0}, {"minutes": 1e9}, {"hours": 1}):
        assert (await admin.ask("POST", f"{path}/restart", wrong)).status_code == 422
    await admin.post(f"{path}/restart", {"minutes": 90})
    [row] = await gateway.fleet.rows(Workflow)
    assert row.status == "running"
    assert gateway.fleet.bells.advances == [rows.id]
    lines = [(line.who, line.act) for line in await gateway.fleet.rows(Audit, Audit.id)]
    assert lines == [("web:ada", "workflow.cancel"), ("web:ada", "workflow.restart")]


async def test_it_is_nobody_elses_and_none_is_begun_here(gateway: Gateway, group: str, admin: Caller) -> None:
    rows = await put_workflow(gateway.fleet, "running")
    member = await caller(gateway, "mia")
    await gateway.fleet.insert(
        AgentGroupMember, {"user_id": member.user_id, "agent_group_id": group, "added_by": "cli"}
    )
    for person in (member, await caller(gateway, "eve")):
        assert (await person.get(WORKFLOWS))["items"] == []
        for path in (f"{WORKFLOWS}/{rows.id}", f"{WORKFLOWS}/{rows.id}/diff"):
            await person.get(path, expected=404)
        for act in ("cancel", "restart"):
            await person.post(f"{WORKFLOWS}/{rows.id}/{act}", expected=404)
    await admin.post(WORKFLOWS, {"repository": "/", "goal": "x"}, expected=405)
    await admin.get(f"{WORKFLOWS}/nothing", expected=404)
