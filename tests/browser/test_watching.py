"""What the browser tests stand on: a real page in both colour schemes and on a phone, and a watch that is red when it
should be."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.support import browser as support
from tests.support.browser import Browsing, NoBrowserError, open_browser
from tests.support.static_web import StaticWeb

POLICY = b"<meta http-equiv='Content-Security-Policy' content=\"default-src 'self'\">"
PAGE = b"""<!doctype html><title>Pier</title><meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="/style.css"><script src="/script.js" defer></script>
<button>Moor</button><p>adrift</p>"""
STYLE = b"body { background: white } @media (prefers-color-scheme: dark) { body { background: black } }"
SCRIPT = b"""document.querySelector('button').addEventListener('click', () => {
  document.querySelector('p').textContent = 'moored';
});"""
FILES = {
    "/": ("text/html", POLICY + PAGE),
    "/style.css": ("text/css", STYLE),
    "/script.js": ("text/javascript", SCRIPT),
    "/inline-script": ("text/html", POLICY + b"<script>document.title = 'taken'</script>"),
    "/inline-handler": ("text/html", POLICY + b"<body onload=\"document.title = 'taken'\">"),
    "/inline-style": ("text/html", POLICY + b"<p style='color: red'>"),
    "/exception": ("text/html", b"<script>throw new Error('overboard')</script>"),
    "/missing-part": ("text/html", b"<img src=/nowhere.png>"),
    "/elsewhere": ("text/html", b"<img src=http://pixel.example/1.png>"),
    "/elsewhere-by-number": ("text/html", b"<img src=http://192.0.2.1/1.png>"),
}
COMPLAINTS = {
    "/inline-script": "console: .*inline script.* violates .*Content Security Policy",
    "/inline-handler": "console: .*inline event handler.* violates .*Content Security Policy",
    "/inline-style": "console: .*inline style.* violates .*Content Security Policy",
    "/exception": "exception: .*overboard",
    "/missing-part": "console: .* 404 .*nowhere.png",
    "/not-there": "console: .* 404 .*not-there",
    "/elsewhere": "asked another machine: http://pixel.example/1.png",
    "/elsewhere-by-number": "failed: GET http://192.0.2.1/1.png: net::ERR_PROXY_CONNECTION_FAILED",
}
WHITE, BLACK = "rgb(255, 255, 255)", "rgb(0, 0, 0)"


@pytest_asyncio.fixture(loop_scope="session")
async def web() -> AsyncIterator[StaticWeb]:
    async with StaticWeb(FILES) as web:
        yield web


async def test_a_page_is_clicked_and_answers(page: Page, web: StaticWeb) -> None:
    await page.goto(web.url("/"))
    await page.get_by_role("button", name="Moor").click()
    await expect(page.get_by_text("moored")).to_be_visible()
    await expect(page.locator("body")).to_have_css("background-color", WHITE)


async def test_a_page_is_seen_in_the_dark(dark_page: Page, web: StaticWeb) -> None:
    await dark_page.goto(web.url("/"))
    await expect(dark_page.locator("body")).to_have_css("background-color", BLACK)


async def test_a_phone_is_narrow_and_is_tapped(phone_page: Page, web: StaticWeb) -> None:
    await phone_page.goto(web.url("/"))
    assert await phone_page.evaluate("[innerWidth, innerHeight, navigator.maxTouchPoints]") == [390, 844, 1]
    await phone_page.get_by_role("button").tap()
    await expect(phone_page.get_by_text("moored")).to_be_visible()


async def test_two_pages_share_no_cookie(browsing: Browsing, web: StaticWeb) -> None:
    one, other = await browsing.open(), await browsing.open()
    await one.goto(web.url("/"))
    await other.goto(web.url("/"))
    await one.evaluate("document.cookie = 'berth=7'")
    assert await one.evaluate("document.cookie") == "berth=7"
    assert await other.evaluate("document.cookie") == ""


async def test_what_a_page_complains_of_fails_the_test(web: StaticWeb) -> None:
    with pytest.raises(AssertionError) as failure:  # noqa: PT012 - it is the end of the browser that raises
        async with open_browser() as browsing:
            for path in COMPLAINTS:
                page = await browsing.open()
                await page.goto(web.url(path))
                await page.context.close()
    said = str(failure.value)
    assert [path for path, complaint in COMPLAINTS.items() if not re.search(complaint, said)] == [], said


async def test_a_server_that_went_away_is_a_complaint(browsing: Browsing, page: Page, web: StaticWeb) -> None:
    await page.goto(web.url("/"))
    await web.__aexit__()
    browsing.expect(f"{web.url('/')}: net::ERR_CONNECTION_REFUSED")
    browsing.expect("Failed to load resource: net::ERR_CONNECTION_REFUSED")
    await page.evaluate("fetch('/').catch(() => {})")


async def test_what_a_test_expects_must_come(web: StaticWeb) -> None:
    with pytest.raises(AssertionError, match=r"did not complain of \['nowhere.png'\]"):  # noqa: PT012 - as above
        async with open_browser() as browsing:
            browsing.expect("nowhere.png")
            await (await browsing.open()).goto(web.url("/"))


async def test_without_a_browser_a_test_fails_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(support, "_FOUND", tmp_path / "chromium.json")
    with pytest.raises(NoBrowserError, match="make browser"):
        async with open_browser():
            pass
