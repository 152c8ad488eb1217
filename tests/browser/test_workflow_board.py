"""The board of a workflow in a real browser: it goes on under the eyes of whoever looks and takes nothing away from
them, is decided on, works by keyboard, and can be read by everybody."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, Request, expect

from models import Approval, PendingQuestion
from models.workflows import Stage
from tests.support.accessibility import unreadable
from tests.support.browser import Browsing, press
from tests.support.console_session import ConsoleUser, console_gateway, sign_in_user
from tests.support.open_gateway import Gateway
from tests.support.workflow_rows import STATES, checked, put_workflow
from tests.support.workflow_writing import WorkflowRows

pytestmark = [
    pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True),
    pytest.mark.spec("G3"),
    pytest.mark.spec("O1"),
]
HOSTILE = "\"'><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with console_gateway(database_url, redis_url, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def ada(gateway: Gateway) -> ConsoleUser:
    """An owner."""
    return await sign_in_user(gateway)


async def running(rows: WorkflowRows, task: str) -> str:
    """The stage that a task is at."""
    stages = await rows.fleet.rows(Stage, Stage.number)
    return str(next(row.id for row in stages if row.task == task and row.status == "running"))


async def test_a_stage_ends_while_somebody_looks_and_what_they_opened_stays(
    page: Page, gateway: Gateway, ada: ConsoleUser
) -> None:
    rows = await put_workflow(gateway.fleet, "running")
    await ada.open_page(page, f"/workflows/{rows.id}")
    card, task = page.locator("#piece-totals"), page.locator("#task-totals")
    await expect(card).to_have_attribute("data-label", "Build")
    await expect(card).to_contain_text("running run_command")
    await card.get_by_role("link").click()
    await expect(task).to_have_attribute("open", "")
    await expect(task).to_contain_text("make test passes")
    timeline = task.get_by_role("link", name="timeline of build totals, round 1")
    await timeline.focus()
    await page.evaluate("document.querySelector('#task-totals').here = 'still'")

    await rows.finish(await running(rows, "totals"), cost="0.4")
    check = await rows.begin("check", "totals", doing="tool: check_work")
    await expect(card).to_have_attribute("data-label", "Check")
    await expect(card).to_contain_text("running check_work")
    await expect(page.locator("#lane-totals .cell .mark-ok")).to_have_count(1)
    await expect(timeline).to_be_focused()
    await expect(task).to_have_attribute("open", "")
    assert await page.evaluate("document.querySelector('#task-totals').here") == "still", "the page is not built anew"

    # What a check printed is there by itself, and what somebody closes again stays closed.
    await rows.finish(check, checked(False))
    await rows.begin("fix", "totals", round=1, provider="codex")
    await expect(card).to_contain_text("fix, round 2")
    printed = task.locator(f"#step-{check} pre").first
    await expect(printed).to_contain_text("FAILED test_totals.py::test_sum")
    await expect(task.locator(".line-new")).to_contain_text("+ return sum(prices)")
    await task.locator(f"#step-{check} summary").first.click()
    await expect(printed).to_be_hidden()
    await rows.finish(await running(rows, "totals"))
    await rows.begin("check", "totals", round=1)
    await expect(card).to_have_attribute("data-label", "Check")
    await expect(printed).to_be_hidden()
    await expect(task).to_have_attribute("open", "")
    await task.locator(f"#step-{check} summary").first.click()
    await expect(printed).to_contain_text("FAILED test_totals.py::test_sum")  # and is not fetched anew


async def test_a_workflow_that_has_ended_is_not_fetched_again(page: Page, gateway: Gateway, ada: ConsoleUser) -> None:
    rows = await put_workflow(gateway.fleet, "running")
    fetched: list[str] = []

    def note(request: Request) -> None:
        if request.url.endswith("/now"):
            fetched.append(request.url)

    await page.clock.install()
    page.on("request", note)
    await ada.open_page(page, f"/workflows/{rows.id}")
    await rows.end("failed", "it took longer than the 240 minutes it may")
    await expect(page.locator(".outcome")).to_contain_text("it took longer")
    await expect(page.get_by_role("button", name="Restart")).to_be_visible()
    assert fetched
    fetched.clear()
    await page.clock.run_for(10_000)
    assert fetched == []


async def test_an_approval_is_given_on_the_board_by_keyboard(page: Page, gateway: Gateway, ada: ConsoleUser) -> None:
    rows = await put_workflow(gateway.fleet, "waiting")
    await ada.open_page(page, f"/workflows/{rows.id}")
    ask = page.get_by_role("article", name="Approval")
    await expect(ask.locator("form[hx-post]")).to_have_attribute("data-htmx-powered", "true")
    await expect(ask.locator("pre")).to_contain_text('"commit": "cccc')
    await press(page, "j")
    await expect(ask.get_by_text("Exactly this")).to_be_focused()
    await press(page, "a")
    await expect(ask).to_have_count(0)  # it is decided, and the board has nothing that waits
    [approval] = await gateway.fleet.rows(Approval)
    assert (approval.status, approval.decided_by) == ("approved", "web:ada")
    await expect(page.locator("#piece-publish")).to_contain_text("at work")


async def test_what_is_being_answered_stays_while_the_board_changes(
    page: Page, gateway: Gateway, ada: ConsoleUser
) -> None:
    rows = await put_workflow(gateway.fleet, "asking")
    await ada.open_page(page, f"/workflows/{rows.id}")
    words = page.get_by_label("Another answer")
    await words.fill("Swiss francs")
    await rows.finish(await running(rows, "docs"))
    await rows.begin("check", "docs")
    await expect(page.locator("#piece-docs")).to_have_attribute("data-label", "Check")
    await expect(words).to_have_value("Swiss francs")
    await expect(words).to_be_focused()
    await press(page, "Enter")
    await expect(page.get_by_role("article", name="Question")).to_have_count(0)
    [question] = await gateway.fleet.rows(PendingQuestion)
    assert (question.answer, question.answered_by) == ("Swiss francs", "web:ada")


async def test_a_workflow_is_found_opened_and_stopped_by_keyboard(
    page: Page, gateway: Gateway, ada: ConsoleUser
) -> None:
    rows = await put_workflow(gateway.fleet, "negative")
    await ada.open_page(page)
    await press(page, "g")
    await press(page, "f")
    await expect(page.get_by_role("heading", name="Workflows", level=1)).to_be_visible()
    await press(page, "j")
    await expect(page.locator(f"a[href$='{rows.id}']").first).to_be_focused()
    await press(page, "Enter")
    await expect(page).to_have_url(f"{ada.base}/console/workflows/{rows.id}")
    cancel = page.get_by_role("button", name="Cancel")
    await expect(page.locator("form[hx-post]").first).to_have_attribute("data-htmx-powered", "true")
    for _ in range(2):  # the plan, and then the first task
        await press(page, "j")
    await expect(page.locator("#piece-totals a")).to_be_focused()
    await press(page, "Enter")
    await expect(page.get_by_text("An empty list breaks it")).to_be_visible()
    await expect(page.get_by_text("start with 0")).to_be_visible()
    await cancel.focus()
    await press(page, "Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("nothing of it is merged")
    await press(page, "Enter")  # to keep it
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await cancel.focus()
    await press(page, "Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await press(page, "Tab")
    await press(page, "Enter")
    await expect(page.locator("#notice")).to_contain_text("was cancelled")
    await expect(page.locator(".outcome")).to_contain_text("cancelled by web:ada")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
async def test_everybody_can_read_every_board(
    browsing: Browsing, gateway: Gateway, ada: ConsoleUser, look: str
) -> None:
    ids = [(await put_workflow(gateway.fleet, state, word="much-" * 30)).id for state in STATES]
    page = await browsing.open(dark=look == "dark", phone=look == "phone")
    await page.emulate_media(reduced_motion="reduce")
    for path in ("/workflows", *(f"/workflows/{one}" for one in ids)):
        await ada.open_page(page, path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        # Everything is opened, and what comes then is waited for.
        await page.evaluate("document.querySelectorAll('main details').forEach((at) => { at.open = true; })")
        for part in await page.locator(".stage-part").all():
            await part.scroll_into_view_if_needed()
            await expect(part.get_by_role("link", name="All of it")).to_have_count(0)
        assert await unreadable(page) == [], path
        assert page.viewport_size is not None
        assert await page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], path


async def test_hostile_words_do_nothing_on_a_board(page: Page, gateway: Gateway, ada: ConsoleUser) -> None:
    for state in ("negative", "waiting", "completed"):
        rows = await put_workflow(gateway.fleet, state, word=HOSTILE)
        for path in ("/workflows", f"/workflows/{rows.id}"):
            await ada.open_page(page, path)
            await page.evaluate("document.querySelectorAll('main details').forEach((at) => { at.open = true; })")
            for part in await page.locator(".stage-part").all():
                await part.scroll_into_view_if_needed()
                await expect(part.get_by_role("link", name="All of it")).to_have_count(0)
            assert "taken" not in await page.title()
            assert await page.locator("main img[src=x]").count() == 0
