"""A console with a fleet at work behind it, and somebody signed in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copy
from typing import Any

import pytest_asyncio
from playwright.async_api import Page

from adapters.contracts import QueryInput
from adapters.providers.scripted import ScriptedProvider, ScriptedQuery
from adapters.registry import Drivers
from adapters.tool_port import Tool
from models import Turn
from tests.support.browser import press
from tests.support.cards import Launcher
from tests.support.console_session import ConsoleUser, sign_in_user
from tests.support.fleet import fleet_settings
from tests.support.open_gateway import Gateway, gateway_to, registry_with, wire
from tests.support.running_fleet import LivingFleet, living


class SpareProvider(ScriptedProvider):
    """Another provider, which can do what the first cannot."""

    manifest = replace(ScriptedProvider.manifest, adapter_id="spare", models=("big", "small"))

    def query(self, given: QueryInput) -> ScriptedQuery:
        return super().query(replace(given, options={"script": "The spare one says: {texts}"}))


class Scene:
    """`ada` is an owner, and is signed in. Asked for before the browser: it must outlive the pages that watch it."""

    def __init__(self, fleet: LivingFleet, gateway: Gateway, ada: ConsoleUser) -> None:
        self.fleet = fleet
        self.gateway = gateway
        self.ada = ada

    async def begin(self, text: str = "hello", status: str = "completed", **fields: Any) -> str:
        """A session whose turn has come so far."""
        accepted = await self.fleet.send(text, **({"sender_id": "bo", "sender_name": "Bo"} | fields))
        async with asyncio.timeout(20):
            while not any(
                row.session_id == accepted.session_id and row.status == status for row in await self.fleet.rows(Turn)
            ):
                await asyncio.sleep(0.02)
        return accepted.session_id


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(sqlite_template: Path, redis_url: str, tmp_path: Path) -> AsyncIterator[LivingFleet]:
    copy(sqlite_template, tmp_path / "longshore.db")
    registry = registry_with(tmp_path)
    registry.tools = Drivers("tool", Drivers[Tool[Any]]("tool").working | {"launch": Launcher().tool()})
    registry.providers = Drivers("provider", {"scripted": ScriptedProvider(), "spare": SpareProvider()})
    settings = fleet_settings(f"sqlite:///{tmp_path}/longshore.db", redis_url, tmp_path)
    async with living(settings, registry) as fleet:
        yield fleet


@asynccontextmanager
async def open_scene(fleet: LivingFleet, script: str, pace: float) -> AsyncIterator[Scene]:
    """`pace`: the seconds between the words of an answer."""
    group = await fleet.add_group(config={"provider_options": {"script": script, "pace": pace}})
    await wire(fleet, group, "web", "ada")
    async with gateway_to(fleet) as gateway:
        yield Scene(fleet, gateway, await sign_in_user(gateway))


async def send_chat_message(page: Page, text: str) -> None:
    await page.get_by_placeholder("Say something to demo").fill(text)
    await press(page, "Enter")


async def watch_layout_shifts(page: Page) -> None:
    await page.evaluate("""() => {
        window.shifted = 0;
        const add = (list) => list.getEntries().forEach((entry) => { window.shifted += entry.value; });
        new PerformanceObserver(add).observe({ type: "layout-shift" });
    }""")
