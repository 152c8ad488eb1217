"""Pages of a real Chromium: one for all tests of a process, with fresh contexts for each.

It lives on one loop, so these tests, and all of their fixtures that wait for anything, share it: a gateway runs on that
loop too. A fixture here that is `async` says `loop_scope="session"`."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.support.browser import Browsing, start_chromium, watched
from tests.support.console_scene import fleet

__all__ = ["fleet"]

PAGES = {"browsing", "page", "dark_page", "phone_page"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "browser" and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            # Set up last, in whatever order a test names them: so they are closed before the gateway that they ask.
            item.fixturenames.sort(key=PAGES.__contains__)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with start_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def browsing(chromium: Browser) -> AsyncIterator[Browsing]:
    """The browser, for tests with several pages or with complaints that they expect."""
    async with watched(chromium) as browsing:
        yield browsing


@pytest_asyncio.fixture(loop_scope="session")
async def page(browsing: Browsing) -> Page:
    """On a desk, in light colours."""
    return await browsing.open()


@pytest_asyncio.fixture(loop_scope="session")
async def dark_page(browsing: Browsing) -> Page:
    return await browsing.open(dark=True)


@pytest_asyncio.fixture(loop_scope="session")
async def phone_page(browsing: Browsing) -> Page:
    """390 by 844, and fingers."""
    return await browsing.open(phone=True)
