"""The console in a real browser: signing in, by keyboard alone, on a phone, in the dark, and without anything moving
under the reader's eyes."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from models.fleet import report_alive
from models.sign_ins import new_secret
from models.tokens import SCOPES, new_token
from tests.support.browser import Browsing, press
from tests.support.console_session import ConsoleUser, console_gateway, sign_in_user
from tests.support.open_gateway import Gateway
from tests.support.sample_fleet import settle_in
from workers.operations.tokens import add_link, add_token

pytestmark = [pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True), pytest.mark.spec("G3")]
PATHS = (
    *("/", "/sessions", "/workflows", "/schedules", "/providers", "/usage", "/groups", "/groups/researcher"),
    *("/groups/new", "/wirings", "/wirings/new", "/people", "/audit"),
)
HOSTILE = "\"'><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"


@pytest_asyncio.fixture(loop_scope="session")
async def gateway(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with console_gateway(database_url, redis_url, tmp_path) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def ada(gateway: Gateway) -> ConsoleUser:
    """An owner."""
    return await sign_in_user(gateway)


async def path_of(page: Page) -> str:
    return urlsplit(page.url).path


async def test_somebody_signs_in_by_token_is_told_when_it_is_wrong_and_leaves(
    page: Page, gateway: Gateway, browsing: Browsing
) -> None:
    token, base = new_token(), f"http://127.0.0.1:{gateway.port}/console"
    await gateway.fleet.db.transact(lambda conn: add_token(conn, "cli", "ada", token, role="owner", scopes=SCOPES))
    browsing.expect("403 (Forbidden)")
    await page.goto(f"{base}/sessions")
    await expect(page.get_by_label("Token")).to_be_focused()
    await page.keyboard.type("lst_wrong")
    await press(page, "Enter")
    await expect(page.get_by_role("alert")).to_contain_text("This is no token")
    await page.get_by_label("Token").fill(token)
    await press(page, "Enter")
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    assert await page.evaluate("document.cookie") == "", "no script reads it"
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.goto(f"{base}/sessions")
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_somebody_signs_in_by_a_link_opened_by_hand_or_found_on_a_page(page: Page, gateway: Gateway) -> None:
    base = f"http://127.0.0.1:{gateway.port}/console"
    for by_hand in (True, False):
        link = new_secret()
        await gateway.fleet.db.transact(partial(add_link, by="cli", name="operator", secret=link))
        if by_hand:
            await page.goto(f"{base}/enter?code={link}")
        else:
            await page.context.clear_cookies()
            await page.goto(f"{base}/sign-in")
            await page.evaluate("address => { location.href = address }", f"{base}/enter?code={link}")
            await page.get_by_role("button", name="Come aboard").click()
        await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        assert await path_of(page) == "/console/"


async def test_all_is_done_with_the_keyboard(page: Page, gateway: Gateway, ada: ConsoleUser) -> None:
    await settle_in(gateway.fleet)
    await ada.open_page(page)
    await press(page, "Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await press(page, "Enter")
    await expect(page.locator("main")).to_be_focused()
    await press(page, "?")
    await expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    await press(page, "Escape")
    for key, title in (("s", "Sessions"), ("u", "Usage"), ("w", "Wirings"), ("o", "Overview"), ("t", "Schedules")):
        await press(page, "g")
        await press(page, key)
        await expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
    # A task: found, paused, and its end thought better of.
    await press(page, "j")
    first = page.locator("tbody tr").first
    await expect(first.get_by_role("link")).to_be_focused()
    await press(page, "Tab")
    await press(page, "Tab")
    await expect(first.get_by_role("button", name="Pause")).to_be_focused()
    await press(page, "Enter")
    await expect(page.locator("#notice")).to_contain_text("is paused")
    await expect(page.locator("tbody")).to_contain_text("paused")
    cancel = page.get_by_role("button", name="Cancel").first
    await cancel.focus()
    await press(page, "Enter")
    await expect(page.get_by_role("dialog")).to_contain_text("End this task for good?")
    await press(page, "Enter")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(page.get_by_role("button", name="Cancel")).to_have_count(3)
    await cancel.focus()
    await press(page, "Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await press(page, "Tab")
    await press(page, "Enter")
    await expect(page.locator("#notice")).to_contain_text("is cancelled")
    await expect(page.get_by_role("button", name="Cancel")).to_have_count(2)
    # Searching.
    await press(page, "g")
    await press(page, "s")
    await expect(page.get_by_role("heading", name="Sessions", level=1)).to_be_visible()
    await press(page, "/")
    await page.keyboard.type("desk-2")
    await press(page, "Enter")
    await expect(page.locator("tbody tr")).to_have_count(4)


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
async def test_every_page_fits_and_complains_of_nothing(
    browsing: Browsing, gateway: Gateway, ada: ConsoleUser, look: str
) -> None:
    await settle_in(gateway.fleet)
    page = await browsing.open(dark=look == "dark", phone=look == "phone")
    for path in PATHS:
        await ada.open_page(page, path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        # Not `innerWidth`: a phone zooms out to show what is too wide.
        assert page.viewport_size is not None
        assert await page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], path
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(9, 19, 24)"
        assert dark == (look == "dark"), path


async def test_the_menu_of_a_phone_opens_and_leads_on(phone_page: Page, ada: ConsoleUser) -> None:
    await ada.open_page(phone_page)
    usage = phone_page.get_by_role("link", name="Usage")
    await expect(usage).to_be_hidden()
    await phone_page.locator("#menu summary").tap()
    await usage.tap()
    await expect(phone_page.get_by_role("heading", name="Usage", level=1)).to_be_visible()
    await expect(usage).to_be_hidden()


async def test_the_colours_are_chosen_by_hand_and_kept(page: Page, ada: ConsoleUser) -> None:
    await ada.open_page(page)
    body = page.locator("body")
    await expect(body).to_have_css("background-color", "rgb(242, 245, 245)")
    await page.get_by_role("button", name="Light or dark").click()
    await expect(body).to_have_css("background-color", "rgb(9, 19, 24)")
    await page.goto(f"{ada.base}/console/groups")
    await expect(body).to_have_css("background-color", "rgb(9, 19, 24)")
    await page.get_by_role("button", name="Light or dark").click()
    await expect(body).to_have_css("background-color", "rgb(242, 245, 245)")


async def test_the_overview_follows_what_happens_and_nothing_jumps(
    page: Page, gateway: Gateway, ada: ConsoleUser
) -> None:
    fleet = gateway.fleet
    await fleet.db.transact(
        lambda conn: report_alive(conn, "agent@quay-1", "worker", pid=1, queues=["agent.scripted"], running=0, slots=20)
    )
    await fleet.add_group()
    await ada.open_page(page)
    await page.evaluate(
        """window.moved = 0;
        new PerformanceObserver(list => {
            for (const shift of list.getEntries()) window.moved += shift.value;
        }).observe({type: 'layout-shift', buffered: true})"""
    )
    tile = page.locator(".tile", has_text="Waiting to begin")
    await expect(tile.locator(".figure")).to_have_text("0")
    await page.evaluate("document.querySelector('.tile').here = 'still'")
    await fleet.send("hello")
    await expect(tile.locator(".figure")).to_have_text("1")
    assert await page.evaluate("document.querySelector('.tile').here") == "still", "the page is not built anew"
    await fleet.settle_down()
    await expect(tile.locator(".figure")).to_have_text("0")
    await expect(page.locator(".tile", has_text="Failed")).to_contain_text("of 1 turns")
    assert await page.evaluate("window.moved") == 0


async def test_who_is_signed_out_elsewhere_is_led_to_the_door_by_the_next_look(
    page: Page, ada: ConsoleUser, browsing: Browsing
) -> None:
    browsing.expect("401 (Unauthorized)")
    await ada.open_page(page)
    await ada.post("/sign-out")
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_what_is_typed_stays_when_it_cannot_be_taken(page: Page, ada: ConsoleUser, browsing: Browsing) -> None:
    browsing.expect("422 (Unprocessable Entity)")
    await ada.open_page(page, "/groups/new")
    await page.get_by_label("Folder").fill("tides")
    await page.get_by_label("Provider", exact=True).select_option("scripted")
    await page.get_by_label("Policy").fill("commands: [")
    await page.get_by_role("button", name="Make it").click()
    field = page.locator(".field", has=page.get_by_label("Policy"))
    await expect(field).to_contain_text("does not read as YAML")
    await expect(page.get_by_label("Folder")).to_have_value("tides")
    await expect(page.get_by_label("Policy")).to_have_value("commands: [")
    await page.get_by_label("Policy").fill("")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.locator("#notice")).to_contain_text("tides is there")
    await expect(page).to_have_url(f"{ada.base}/console/groups/tides")


async def test_hostile_names_do_nothing_in_a_browser(page: Page, gateway: Gateway, ada: ConsoleUser) -> None:
    fleet = gateway.fleet
    await fleet.add_group("demo", "{texts}", name=HOSTILE)
    await fleet.send(HOSTILE, platform_id=HOSTILE, thread_id=HOSTILE)
    await fleet.send(HOSTILE, kind="task", recurrence="0 6 * * *")
    await sign_in_user(gateway, HOSTILE, "admin")
    for path in ("/", "/sessions", "/schedules", "/groups", "/groups/demo", "/people"):
        await ada.open_page(page, path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert "taken" not in await page.title()
        assert await page.locator("main img[src=x]").count() == 0
