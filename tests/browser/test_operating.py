"""A busy fleet in the hands of an operator: deciding while the inbox changes, trying letters again, and reading every
page, whoever they are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, Request, expect

from models import PendingQuestion
from tests.support.accessibility import unreadable
from tests.support.browser import Browsing, press
from tests.support.console_session import ConsoleUser, console_gateway, sign_in_user
from tests.support.open_gateway import Gateway
from tests.support.sample_fleet import settle_in

pytestmark = [pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True), pytest.mark.spec("G3")]
PATHS = (
    *("/", "/sessions", "/inbox", "/dead", "/dead/undelivered", "/dead/rejected", "/schedules", "/workflows"),
    *("/providers", "/usage", "/groups", "/groups/researcher", "/groups/new", "/wirings", "/wirings/new", "/people"),
    "/audit",
)


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with console_gateway(database_url, redis_url, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def ada(gateway: Gateway) -> ConsoleUser:
    """An owner, with a harbour at work."""
    ada = await sign_in_user(gateway)
    await settle_in(gateway.fleet)
    return ada


async def test_what_is_being_written_stays_while_the_inbox_changes(
    page: Page, gateway: Gateway, ada: ConsoleUser
) -> None:
    fleet = gateway.fleet
    await fleet.send("And the Meridian tomorrow?", agent_group="harbourmaster", platform_id="another")
    await fleet.settle_down()
    await page.set_viewport_size({"width": 1280, "height": 420})
    await ada.open_page(page, "/inbox")
    cards = page.locator("[data-ask]")
    await expect(cards).to_have_count(3)
    await page.get_by_text("Exactly this").click()
    words = cards.last.get_by_label("Another answer")
    await words.fill("Berth 9, if it is free")
    await words.press("Home")
    await page.evaluate("document.activeElement.scrollIntoView({ block: 'center' })")
    seen_at = "at => at.getBoundingClientRect().top"
    before = await words.evaluate(seen_at)

    # One that stands above is decided elsewhere, and another comes.
    await fleet.send("This differs too.", agent_group="invoices", platform_id="another", sender_id="grace")
    await fleet.settle_down()
    first = (await fleet.rows(PendingQuestion))[0]
    assert (await ada.post(f"/inbox/questions/{first.id}", {"answer": "1"})).status_code == 303
    await expect(cards.first).to_have_accessible_name("Approval")
    await expect(cards.last).to_have_accessible_name("Approval")
    assert await cards.first.locator("details").evaluate("at => at.open") is False  # as it was left
    words = cards.nth(1).get_by_label("Another answer")
    await expect(words).to_have_value("Berth 9, if it is free")
    await expect(words).to_be_focused()
    assert await words.evaluate("at => at.selectionStart") == 0
    assert await words.evaluate(seen_at) == pytest.approx(before, abs=1)
    await press(page, "Enter")
    await expect(page.locator(".answered")).to_contain_text("Berth 9, if it is free")


async def test_nothing_is_fetched_while_nobody_looks(page: Page, ada: ConsoleUser) -> None:
    fetched: list[str] = []

    def note(request: Request) -> None:
        if "/console/inbox" in request.url:
            fetched.append(request.url)

    await page.clock.install()
    await ada.open_page(page, "/inbox")
    await expect(page.locator("form[hx-post]").first).to_have_attribute("data-htmx-powered", "true")
    await expect(page.locator("#count-inbox")).to_have_text("2")  # fetched, and not to be given up for want of time
    page.on("request", note)
    await page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
    await page.clock.run_for(60_000)
    assert fetched == []
    await page.evaluate("delete document.hidden")
    async with page.expect_request("**/console/inbox"):
        await page.clock.run_for(6_000)


async def test_a_question_is_answered_with_one_key(page: Page, ada: ConsoleUser) -> None:
    await ada.open_page(page, "/inbox")
    await expect(page.locator("form[hx-post]").first).to_have_attribute("data-htmx-powered", "true")
    await press(page, "2")  # of no card yet
    await press(page, "k")
    await expect(page.get_by_role("article", name="Approval")).to_be_focused()
    await press(page, "k")
    await expect(page.get_by_role("article", name="Question")).to_be_focused()
    await press(page, "2")
    answered = page.locator(".answered")
    await expect(answered).to_contain_text("Berth 12")
    await expect(answered).to_contain_text("web:ada")


async def test_letters_are_ticked_tried_again_elsewhere_and_put_away(
    page: Page, gateway: Gateway, ada: ConsoleUser
) -> None:
    await ada.open_page(page, "/dead")
    await expect(page.locator("form[hx-post]").first).to_have_attribute("data-htmx-powered", "true")
    box = page.locator("tbody input[type=checkbox]")
    away = page.get_by_role("button", name="Put away")
    await away.click()
    await page.get_by_role("button", name="Keep it as it is").click()
    await press(page, "j")
    await expect(page.locator("tbody a").first).to_be_focused()
    await press(page, "x")
    await expect(box).to_be_checked()
    await press(page, "x")
    await expect(box).not_to_be_checked()
    await page.get_by_label("all of these").check()
    await expect(box).to_be_checked()
    await away.click()
    await expect(page.locator("#confirm")).to_contain_text("Put the letters that are ticked away")
    await page.get_by_role("button", name="Keep it as it is").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_label("Provider and model").select_option("openai")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("#notice")).to_contain_text("back in the queue of harbourmaster on openai")
    await expect(page.get_by_role("heading", name="Nothing was given up")).to_be_visible()


async def test_lines_of_the_audit_log_lead_to_their_like(page: Page, ada: ConsoleUser) -> None:
    await ada.open_page(page, "/audit")
    await page.locator("tbody").get_by_role("link", name="group.update").first.click()
    await expect(page.get_by_label("What")).to_have_value("group.update")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_label("Agent").select_option("invoices")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_label("Who").fill("web:nobody")
    await press(page, "Enter")
    await page.get_by_role("link", name="Show all").click()
    await expect(page.locator("tbody")).to_contain_text("group.add")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
async def test_everybody_can_read_every_page(browsing: Browsing, ada: ConsoleUser, look: str) -> None:
    page = await browsing.open(dark=look == "dark", phone=look == "phone")
    await page.emulate_media(reduced_motion="reduce")
    for path in PATHS:
        await ada.open_page(page, path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        if path == "/providers":
            await page.locator("#providers .wide").wait_for()
        assert await unreadable(page) == [], path
        assert page.viewport_size is not None
        assert await page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], path
