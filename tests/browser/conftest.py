"""Pages of a real Chromium. A browser lives as long as its test and on its loop, so a gateway can run on that loop too;
it starts in half a second."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page

from tests.support.browser import Browsing, open_browser


@pytest.fixture
async def browsing() -> AsyncIterator[Browsing]:
    """The browser, for tests with several pages or with complaints that they expect."""
    async with open_browser() as browsing:
        yield browsing


@pytest.fixture
async def page(browsing: Browsing) -> Page:
    """On a desk, in light colours."""
    return await browsing.open()


@pytest.fixture
async def dark_page(browsing: Browsing) -> Page:
    return await browsing.open(dark=True)


@pytest.fixture
async def phone_page(browsing: Browsing) -> Page:
    """390 by 844, and fingers."""
    return await browsing.open(phone=True)
