"""A real headless Chromium, on the tests' own loop, every page of it watched.

A page that complains (an error in its console, an exception, what its Content-Security-Policy forbids, a request that
failed or was refused) or asks for anything that is not on 127.0.0.1 makes the test fail, unless the test has said that
it would. What is asked of other machines does not leave this one. `make browser` brings the program."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    WebError,
    async_playwright,
    expect,
)

PATIENCE: Final = 20_000.0  # milliseconds: the machine may be busy with other tests
DESK: Final = ViewportSize(width=1280, height=800)
PHONE: Final = ViewportSize(width=390, height=844)
# Nobody listens there. A proxy, because it is asked also for numeric addresses, and instead of the name servers.
NOWHERE: Final = "http://127.0.0.1:9"
_NO_REQUEST: Final = ("about", "blob", "data")
# The page itself ended it, mostly by leaving: a stream of events, a download.
_LEFT: Final = "net::ERR_ABORTED"
_FOUND: Final = Path(__file__).parents[2] / ".browser" / "chromium.json"

expect.set_options(timeout=PATIENCE)


class NoBrowserError(Exception):
    """There is no Chromium to test with. Never a reason to skip."""

    def __init__(self) -> None:
        super().__init__("there is no Chromium for this test: run `make browser`, which says what is in the way")


class Browsing:
    """Opens pages, each in a context of its own: two of them are two people who share no cookie."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self._expected: list[str] = []
        self.complaints: list[str] = []

    async def open(self, *, phone: bool = False, dark: bool = False) -> Page:
        context = await self._browser.new_context(
            viewport=PHONE if phone else DESK,
            has_touch=phone,
            is_mobile=phone,
            device_scale_factor=2 if phone else 1,
            color_scheme="dark" if dark else "light",
            locale="en-GB",
            timezone_id="UTC",
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.on("console", self._said)
        context.on("weberror", self._raised)
        context.on("request", self._asked)
        context.on("requestfailed", self._failed)
        return await context.new_page()

    def expect(self, part: str) -> None:
        """The test provokes complaints with this text in them. That none comes is a failure too."""
        self._expected.append(part)

    async def close(self) -> None:
        """All pages. What they complained of until then has been heard."""
        for context in self._contexts:
            await context.close()

    def check(self) -> None:
        unexpected = [said for said in self.complaints if not any(part in said for part in self._expected)]
        assert not unexpected, "the browser complained:\n" + "\n".join(unexpected)
        missing = [part for part in self._expected if not any(part in said for said in self.complaints)]
        assert not missing, f"the browser did not complain of {missing}, but of {self.complaints}"

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "assert"):
            self.complaints.append(f"console: {message.text} ({message.location.get('url')})")

    def _raised(self, error: WebError) -> None:
        self.complaints.append(f"exception: {error.error}")

    def _asked(self, request: Request) -> None:
        to = urlsplit(request.url)
        if to.hostname != "127.0.0.1" and to.scheme not in _NO_REQUEST:
            self.complaints.append(f"asked another machine: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != _LEFT:
            self.complaints.append(f"failed: {request.method} {request.url}: {request.failure}")


@asynccontextmanager
async def start_chromium() -> AsyncIterator[Browser]:
    """The program itself, which takes as long to start as a small test: several can share it, on one loop."""
    program = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, proxy={"server": NOWHERE, "bypass": "127.0.0.1"}
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def watched(browser: Browser) -> AsyncIterator[Browsing]:
    """Pages for one test, gone after it with all their cookies."""
    browsing = Browsing(browser)
    try:
        yield browsing
    finally:
        await browsing.close()
    browsing.check()


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browsing]:
    async with start_chromium() as browser, watched(browser) as browsing:
        yield browsing


async def press(page: Page, key: str) -> None:
    """What is pressed before the page's scripts have run is heard by none of them, and a heading is seen earlier."""
    await page.wait_for_load_state()
    await page.keyboard.press(key)


def find_chromium() -> Path:
    """Which one it is, `make browser` has noted down."""
    try:
        (program,) = json.loads(_FOUND.read_text(encoding="utf-8"))["argv"]
    except (OSError, ValueError, LookupError) as error:
        raise NoBrowserError from error
    return _FOUND.parent / str(program)
