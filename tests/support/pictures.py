"""Pictures of the console for `docs/pictures`: `python -m tests.support.pictures`, after `make browser`.

A busy fleet (`tests/support/harbour.py`) behind a real gateway, seen by the browser of the tests. Whoever changes how a
page looks takes them again, and looks at them."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from models import PendingQuestion, schema
from tests.support.aboard import Aboard, come_aboard, console_gateway
from tests.support.browser import open_browser
from tests.support.harbour import settle_in
from tests.support.servers import Valkey, private_folder

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
    ("usage", "/usage", {}),
    ("usage-dark", "/usage", {"dark": True}),
    ("agent", "/groups/researcher", {}),
)


async def take(folder: Path, work: Path, redis_url: str) -> None:
    database = f"sqlite:///{work}/longshore.db"
    schema.migrate(database)
    async with console_gateway(database, redis_url, work) as gateway, open_browser() as browsing:
        ada = await come_aboard(gateway)
        await settle_in(gateway.fleet)
        [session] = [row.session_id for row in await gateway.fleet.rows(PendingQuestion)]
        for name, path, look in TAKEN:
            page = await browsing.open(**look)
            await _take(page, ada, path.format(session=session), folder / f"{name}.png")
            await page.context.close()


async def _take(page: Page, ada: Aboard, path: str, to: Path) -> None:
    await ada.sit_down(page, path)
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
