"""Pictures of the console for `docs/pictures`: `python -m tests.support.pictures`, after `make browser`.

A busy fleet (`tests/support/sample_fleet.py`) behind a real gateway, seen by the browser of the tests. Whoever changes
how a page looks takes them again, and looks at them."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Final, Literal

from playwright.async_api import Page

from adapters.model_port import Allowance
from models import PendingQuestion, schema
from tests.support.browser import DESK, open_browser
from tests.support.console_session import ConsoleUser, console_gateway, sign_in_user
from tests.support.open_gateway import Gateway
from tests.support.sample_fleet import settle_in
from tests.support.servers import Valkey, private_folder
from tests.support.workflow_rows import put_workflow
from workers.buckets import BucketKey
from workers.events import redis_client
from workers.governor import RedisBuckets

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
# Name, page, and how it is looked at. `{session}`: one with a question in it.
TAKEN: Final[tuple[tuple[str, str, dict[str, bool]], ...]] = (
    ("overview", "/", {}),
    ("overview-dark", "/", {"dark": True}),
    ("overview-phone", "/", {"phone": True}),
    ("session", "/sessions/{session}", {}),
    ("session-phone", "/sessions/{session}", {"phone": True}),
    ("inbox", "/inbox", {}),
    ("schedules", "/schedules", {}),
    ("providers", "/providers", {}),
    ("usage-dark", "/usage", {"dark": True}),
)


async def take(folder: Path, work: Path, redis_url: str) -> None:
    database = f"sqlite:///{work}/longshore.db"
    schema.migrate(database)
    async with console_gateway(database, redis_url, work) as gateway, open_browser() as browsing:
        ada = await sign_in_user(gateway)
        await settle_in(gateway.fleet)
        await _limits(redis_url)
        [session] = [row.session_id for row in await gateway.fleet.rows(PendingQuestion)]
        for name, path, look in TAKEN:
            page = await browsing.open(**look)
            await _take(page, ada, path.format(session=session), folder / f"{name}.png")
            await page.context.close()
        await _take_board(await browsing.open(), ada, gateway, folder / "workflow.png")


async def _take_board(page: Page, ada: ConsoleUser, gateway: Gateway, to: Path) -> None:
    """The last one: a workflow is work of agents too, and would be on the pages before."""
    workflow = await put_workflow(gateway.fleet, "negative", folder="harbourmaster")
    await page.set_viewport_size({"width": DESK["width"], "height": 1200})
    await ada.open_page(page, f"/workflows/{workflow.id}")
    await page.locator("#task-totals > summary").click()
    await page.locator("#task-totals .finding").first.wait_for()
    await page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    await page.screenshot(path=to, animations="disabled", scale="css")


async def _limits(redis_url: str) -> None:
    """What vendors said was left, as after a call. Only here: others share their Redis."""
    client = redis_client(redis_url)
    try:
        for provider, model, left in (("anthropic", "claude-opus-5-5", 0.62), ("openai", "gpt-6-sol", 0.04)):
            limits: tuple[tuple[Literal["requests", "tokens"], float], ...] = (("requests", 4e3), ("tokens", 2e6))
            said = [Allowance(kind, limit, limit * left, 600.0) for kind, limit in limits]
            await RedisBuckets(client).feed(BucketKey(provider, "", model), said, estimated=0, used=0)
    finally:
        await client.aclose()


async def _take(page: Page, ada: ConsoleUser, path: str, to: Path) -> None:
    await ada.open_page(page, path)
    if path == "/providers":
        await page.locator("#providers .wide").wait_for()
    await page.locator("#count-inbox:not(:empty)").wait_for(state="attached")
    await page.screenshot(path=to, animations="disabled", scale="css")


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    work = private_folder()
    server = Valkey(work / "valkey")
    server.start()
    try:
        asyncio.run(take(folder, work, server.url))
    finally:
        server.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
