"""Workflows in the console over plain HTTP: what is shown of them in every state, to whom, and what its buttons do."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from models import Approval, Audit
from models.workflow_progress import progress_of
from models.workflows import Stage, Workflow
from tests.support.console_pages import HOSTILE_TEXT, INLINE_CODE
from tests.support.console_session import ConsoleUser, sign_in_user, text_of
from tests.support.database_kinds import SQLITE_ONLY
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with
from tests.support.workflow_rows import MERGED, STATES, State, checked, put_workflow, reviewed

pytestmark = [pytest.mark.spec("G3"), pytest.mark.spec("O1")]
PART = {"HX-Request": "true"}
HIDDEN = "totals\u202eexe.\u200bpy"


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_to(await make_fleet(registry_with(tmp_path))) as opened:
        yield opened


@pytest.fixture
async def ada(gateway: Gateway) -> ConsoleUser:
    """An owner."""
    return await sign_in_user(gateway)


async def test_the_list_says_how_each_workflow_stands(gateway: Gateway, ada: ConsoleUser) -> None:
    assert "longshore foreman run" in (await ada.get("/workflows")).text
    told: dict[State, tuple[str, ...]] = {
        "planning": ("running", "planning", "–"),
        "running": ("running", "0 of 2 tasks done", "$0.21"),
        "negative": ("running", "1 of 2 tasks done", "$0.96"),
        "asking": ("waits for a person", "0 of 2 tasks done", "$0.21"),
        "waiting": ("waits for a person", "handing the result over", "$1.05"),
        "failed": ("failed", "0 of 2 tasks done", "$1.01"),
        "cancelled": ("cancelled", "0 of 1 task done", "$0.21"),
        "completed": ("completed", "2 tasks done", "$1.05"),
    }
    ids = {state: (await put_workflow(gateway.fleet, state)).id for state in STATES}
    page = (await ada.get("/workflows")).text
    assert page.index(ids["completed"]) < page.index(ids["planning"]), "the latest first"
    for state, words in told.items():
        row = re.search(rf'<tr id="workflow-{ids[state]}">(.*?)</tr>', page, re.S)
        assert row is not None
        for said in (*words, "Totals are one too small", "the command line", "/srv/shop"):
            assert said in row[1], (state, said)
    assert "every 5s" in page
    failed = (await ada.get("/workflows?status=failed")).text
    assert (ids["failed"] in failed, ids["running"] in failed, "every 5s" in failed) == (True, False, False)


async def test_the_list_goes_on_page_by_page(
    gateway: Gateway, ada: ConsoleUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.console.pages.workflows._SHOWN", 2)
    ids = [(await put_workflow(gateway.fleet, "planning")).id for _ in range(5)]
    seen: list[str] = []
    following: str | None = "/workflows?status=running"
    while following is not None:
        page = (await ada.get(following)).text
        seen += re.findall(r'<tr id="workflow-([^"]+)"', page)
        older = re.search(r'href="/console([^"]*)" rel="next"', page)
        following = older[1].replace("&amp;", "&") if older else None
    assert seen == ids[::-1]


async def test_progress_of_no_workflow_is_nothing(gateway: Gateway) -> None:
    assert await gateway.fleet.db.read(lambda conn: progress_of(conn, [])) == {}


@pytest.mark.parametrize("state", STATES)
async def test_every_state_has_its_board_and_only_what_runs_is_fetched_again(
    gateway: Gateway, ada: ConsoleUser, state: State
) -> None:
    rows = await put_workflow(gateway.fleet, state)
    page = await ada.get(f"/workflows/{rows.id}")
    part = await ada.get(f"/workflows/{rows.id}/now", **PART)
    assert (page.status_code, part.status_code) == (200, 200)
    [workflow] = await gateway.fleet.rows(Workflow)
    live = workflow.status == "running"
    for answer in (page, part):
        assert ("every 2s" in answer.text) == live
        assert (f"/{rows.id}/cancel" in answer.text, f"/{rows.id}/restart" in answer.text) == (
            live,
            workflow.status in ("failed", "cancelled"),
        )
        # What leads back from a form is the page, and never the part.
        assert set(re.findall(r'name="back" value="([^"]*)"', answer.text)) <= {f"/console/workflows/{rows.id}"}
    assert "<html" not in part.text
    told = {
        "planning": ["running read_file", "claude-code · opus", "The plan says what there is to build"],
        "running": ["Mend the sum at work codex build: running run_command", "Say what a total is"],
        "negative": ["fix, round 3: asking the model", "approved (1 minor)", "check, round 1: make test ended with 1"],
        "asking": ["Waits for a person", "Which currency?", "euro", "dollar"],
        "waiting": ["Waits for a person", "into longshore/right-totals", "Approve, once", "&#34;commit&#34;"],
        "failed": ["Stopped: “Mend the sum” was given up after 3 tries", "cancelled"],
        "cancelled": ["Cancelled: cancelled by the command line", "Merge not reached"],
        "completed": ["Reached its goal: branch longshore/right-totals", "What was done", "built by codex"],
    }
    words = text_of(page)
    for said in (*told[state], "/srv/shop", "the branch longshore/right-totals", "not committed", "plans well"):
        assert said in words, said


async def test_a_card_tells_its_task_and_each_step_what_it_came_to(gateway: Gateway, ada: ConsoleUser) -> None:
    rows = await put_workflow(gateway.fleet, "negative")
    page = text_of(await ada.get(f"/workflows/{rows.id}"))
    for said in ("Accepted if make test passes", "Without no new dependency", "codex, reviewed by gemini", "$0.63"):
        assert said in page, said
    stages = {(row.kind, row.task, row.round): row for row in await gateway.fleet.rows(Stage)}
    told = {
        ("plan", "", 0): ["The sum is mended", "Say what a total is"],
        ("check", "totals", 0): ["make test ended with 1", "FAILED test_totals.py::test_sum", "+1", "−1"],
        ("check", "totals", 1): ["totals.py", "- return sum(prices) - 1", "+ return sum(prices)"],
        ("review", "totals", 1): [
            *("Looked at all of it.", "blocking", "An empty list breaks it", "totals.py:2", "sum of nothing"),
            *("Suggestion", "start with 0", "minor"),
        ],
    }
    for key, words in told.items():
        address = f"/workflows/{rows.id}/stages/{stages[key].id}"
        for answer in (await ada.get(address), await ada.get(address, **PART)):
            for said in words:
                assert said in text_of(answer), (key, said)
            assert f"/console/sessions/{stages[key].session_id}#turn-{stages[key].turn_id}" in answer.text
        assert "<html" not in answer.text
    session = await ada.get(f"/sessions/{stages['check', 'totals', 1].session_id}")
    assert f"/console/workflows/{rows.id}" in session.text


async def test_what_agents_and_repositories_say_does_nothing(gateway: Gateway, ada: ConsoleUser) -> None:
    hostile = f"{HOSTILE_TEXT}[x](javascript:alert(3)){HIDDEN}"
    for state in ("negative", "asking", "waiting", "failed", "completed"):
        rows = await put_workflow(gateway.fleet, state, word=hostile)
        answers = [await ada.get(path) for path in ("/workflows", f"/workflows/{rows.id}", f"/workflows/{rows.id}/now")]
        stages = [row for row in await gateway.fleet.rows(Stage) if row.workflow_id == rows.id and row.output]
        answers += [await ada.get(f"/workflows/{rows.id}/stages/{row.id}") for row in stages]
        shown = 0
        for answer in answers:
            assert answer.status_code == 200
            assert not INLINE_CODE.search(re.sub(r"\(javascript:", "(", answer.text)), answer.url
            assert "<img src=x" not in answer.text
            assert not {"\u202e", "\u200b"} & set(answer.text), answer.url
            shown += "⟨U+202E⟩" in answer.text
        assert shown >= 3, state


@SQLITE_ONLY
async def test_an_address_that_is_none_of_the_web_is_no_link(gateway: Gateway, ada: ConsoleUser) -> None:
    rows = await put_workflow(gateway.fleet, "running")
    for url, leads in (
        ("https://git.example/pull/7", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
    ):
        stage = await rows.do("publish", {"ok": True, "url": url}, round=len(url))
        page = (await ada.get(f"/workflows/{rows.id}/stages/{stage}")).text
        assert (url in page, f'href="{url}"' in page) == (True, leads)


async def test_a_workflow_is_there_for_those_who_oversee_its_agent(gateway: Gateway, ada: ConsoleUser) -> None:
    fleet = gateway.fleet
    theirs = await put_workflow(fleet, "waiting", folder="demo")
    other = await put_workflow(fleet, "waiting", folder="secretive", word="hush")
    grace = await sign_in_user(gateway, "grace", "admin", theirs.group_id)
    lin = await sign_in_user(gateway, "lin", "member", theirs.group_id)
    assert other.id in (await ada.get("/workflows")).text
    listed = (await grace.get("/workflows")).text
    assert (theirs.id in listed, other.id in listed, "hush" in listed) == (True, False, False)
    stages = {row.workflow_id: row.id for row in await fleet.rows(Stage) if row.kind == "merge"}
    for rows, status in ((theirs, 200), (other, 404)):
        for path in ("", "/now", f"/stages/{stages[rows.id]}"):
            assert (await grace.get(f"/workflows/{rows.id}{path}")).status_code == status, path
            assert (await lin.get(f"/workflows/{rows.id}{path}")).status_code == 403, path
    # A stage of another workflow is not reached by way of one's own.
    assert (await grace.get(f"/workflows/{theirs.id}/stages/{stages[other.id]}")).status_code == 404
    assert (await grace.get("/workflows/nobody")).status_code == 404
    for act in ("cancel", "restart"):
        assert (await grace.post(f"/workflows/{other.id}/{act}")).status_code == 404
        assert (await lin.post(f"/workflows/{theirs.id}/{act}")).status_code == 403
    assert "/console/workflows" not in (await lin.get("/")).text
    assert {row.status for row in await fleet.rows(Workflow)} == {"running"}


@SQLITE_ONLY
async def test_who_may_only_look_has_no_buttons(gateway: Gateway) -> None:
    reader = await sign_in_user(gateway, "reader", "owner", scopes=("read",))
    for state in ("waiting", "asking", "failed"):
        rows = await put_workflow(gateway.fleet, state)
        page = (await reader.get(f"/workflows/{rows.id}")).text
        assert re.findall(r'<form[^>]*action="(?!/console/sign-out)', page) == [], state
        for act in ("cancel", "restart"):
            answer = await reader.post(f"/workflows/{rows.id}/{act}")
            assert (answer.status_code, "lacks the scope" in text_of(answer)) == (403, True)
        if state == "waiting":
            assert "your sign-in may not decide" in page


async def test_a_workflow_is_cancelled_and_goes_on_by_its_buttons(gateway: Gateway, ada: ConsoleUser) -> None:
    fleet = gateway.fleet
    rows = await put_workflow(fleet, "negative")
    cancelled = await ada.post(f"/workflows/{rows.id}/cancel")
    assert "was cancelled" in text_of(cancelled)
    assert "Cancelled: cancelled by web:ada" in text_of(cancelled)
    assert f"/{rows.id}/restart" in cancelled.text
    twice = await ada.post(f"/workflows/{rows.id}/cancel", {}, **PART)
    assert (twice.status_code, "is over already" in text_of(twice)) == (409, True)
    restarted = await ada.post(f"/workflows/{rows.id}/restart")
    assert ("goes on" in text_of(restarted), "every 2s" in restarted.text) == (True, True)
    assert fleet.bells.advances == [rows.id]
    acts = [(row.who, row.act, row.target) for row in await fleet.rows(Audit, Audit.id)]
    assert acts == [("web:ada", f"workflow.{act}", rows.id) for act in ("cancel", "restart")]


async def test_an_approval_is_decided_on_the_board_and_only_as_it_was_shown(gateway: Gateway, ada: ConsoleUser) -> None:
    rows = await put_workflow(gateway.fleet, "waiting")
    page = (await ada.get(f"/workflows/{rows.id}")).text
    assert MERGED in page
    [approval] = await gateway.fleet.rows(Approval)
    action = f"/inbox/approvals/{approval.id}"
    assert f'action="/console{action}"' in page
    shown = re.search(r'name="shown" value="([^"]+)"', page)
    back = re.search(r'name="back" value="([^"]+)"', page)
    assert shown is not None
    assert back is not None
    wrong = {"decision": "approve", "shown": "0" * 64}
    assert (await ada.post(action, wrong)).status_code == 409
    decided = await ada.post(action, {"decision": "approve", "shown": shown[1], "back": back[1]})
    assert (decided.status_code, decided.headers["location"]) == (303, f"/console/workflows/{rows.id}")
    [approval] = await gateway.fleet.rows(Approval)
    assert (approval.status, approval.decided_by) == ("approved", "web:ada")
    assert "Approve, once" not in (await ada.get(f"/workflows/{rows.id}")).text


@SQLITE_ONLY
async def test_long_outputs_are_not_in_what_is_fetched_again_and_again(gateway: Gateway, ada: ConsoleUser) -> None:
    rows = await put_workflow(gateway.fleet, "running")
    log = "x" * 300_000 + "the end"
    diff = "diff --git a/x b/x\n@@ -0,0 +1,9000 @@\n" + "+long\n" * 9000
    check = await rows.do("check", checked(False) | {"log": log, "diff": diff}, "totals")
    found = {"severity": "minor", "title": "t" * 200, "detail": "d" * 4000, "suggestion": "s" * 4000}
    await rows.do("review", reviewed() | {"findings": [found] * 50}, "totals", provider="gemini")
    part = await ada.get(f"/workflows/{rows.id}/now", **PART)
    assert len(part.text) < 60_000
    whole = (await ada.get(f"/workflows/{rows.id}/stages/{check}", **PART)).text
    assert ("the end" in whole, len(whole) < 600_000, "not shown here" in whole) == (True, True, True)


async def test_a_change_of_a_file_that_is_no_text_is_shown(gateway: Gateway, ada: ConsoleUser) -> None:
    rows = await put_workflow(gateway.fleet, "running")
    files = [{"path": "logo.png", "added": None, "removed": None}, {"path": "x.py", "added": 3, "removed": 1}]
    check = await rows.do("check", checked() | {"files": files}, "totals")
    page = await ada.get(f"/workflows/{rows.id}/stages/{check}")
    assert "2 files, +3 −1" in text_of(page)
