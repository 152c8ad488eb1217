"""The first minute of somebody new: `longshore up` as processes, its link in a real browser, and a worker that is
killed while they look."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from gateway.demo import FIRST_MESSAGE
from tests.support.browser import press
from tests.support.servers import private_folder
from tests.support.terminal import Terminal

LINK = re.compile(r"http://127\.0\.0\.1:\d+/console/\S+")


@pytest_asyncio.fixture(loop_scope="session")
async def terminal() -> AsyncIterator[Terminal]:
    folder: Path = private_folder()
    terminal = Terminal(folder, "up", "--no-flower")
    yield terminal
    await asyncio.to_thread(terminal.close)
    shutil.rmtree(folder)


@pytest.mark.timeout(300)  # everything is started, and a browser
@pytest.mark.spec("G3", "G6", "C2", "C7", "M17")
async def test_the_demo_is_watched_in_a_browser_and_survives_its_worker(terminal: Terminal, page: Page) -> None:
    await asyncio.to_thread(terminal.wait_for, "longshore send demo")
    link = LINK.search(terminal.shown)
    assert link is not None
    await page.goto(link[0])
    await page.get_by_role("link", name="Chat").click()
    await expect(page.get_by_text(FIRST_MESSAGE)).to_be_visible()
    await expect(page.get_by_text("everything works: this message became a row")).to_be_visible()
    await expect(page.get_by_text("Pilot here")).to_be_visible()
    calm = page.get_by_role("button", name="A calm first day")
    await expect(calm).to_be_visible()  # the scheduled task came by itself, and asks

    worker = next(process for process in terminal.family() if "worker@%h" in " ".join(process.cmdline()))
    worker.kill()
    await calm.click()
    await asyncio.to_thread(terminal.wait_for, "worker killed by SIGKILL; starting it again")
    await expect(page.get_by_text("The log says: A calm first day.")).to_have_count(1)

    await page.get_by_label("Message").fill("what time is it?")
    await press(page, "Enter")
    await expect(page.get_by_text("By my clock it is")).to_be_visible()
    await page.reload()
    for said in (FIRST_MESSAGE, "The log says: A calm first day.", "By my clock it is"):
        await expect(page.get_by_text(said)).to_have_count(1)

    await page.get_by_role("link", name="Sessions").click()
    await expect(page.get_by_text("asked by")).to_be_visible()  # the pilot's, by the demo's
    table = page.get_by_role("table", name="Sessions")
    assert await table.evaluate("(one) => one.scrollWidth <= one.parentElement.clientWidth")
