"""Turns on the API providers in tests: the stand-in behind both SDKs, and time that passes when a test says so."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from models import Session, Turn
from models.base import Base, new_id
from models.fleet import ProviderHealth
from tests.support.fleet import Fleet
from tests.support.model_api import ModelApi, Script
from workers.governor import BucketKey


@asynccontextmanager
async def model_api(monkeypatch: pytest.MonkeyPatch, script: Script | None = None) -> AsyncIterator[ModelApi]:
    """The stand-in as both vendors. Keys are new each time: limits in the Redis of all tests are counted by key."""
    async with ModelApi(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        use_keys(monkeypatch)
        yield server
        assert server.problems == []


def use_keys(monkeypatch: pytest.MonkeyPatch, text: str = "") -> None:
    """Become other customers of both vendors: without limits, and with a breaker of their own."""
    key = text or f"fake-key-{new_id()}"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    monkeypatch.setenv("OPENAI_API_KEY", key)


class FleetTime:
    """The time of some workers: their governors' clock is ours, and the rows are moved back by what has passed."""

    def __init__(self, *fleets: Fleet) -> None:
        self._fleets = fleets
        self.passed = 0.0
        for fleet in fleets:
            fleet.runtime.governor._redis._clock = self._clock
            fleet.runtime.governor._local._clock = self._clock

    def _clock(self) -> float:
        return time.time() + self.passed

    async def go_by(self, seconds: float) -> None:
        self.passed += seconds
        db, earlier = self._fleets[0], timedelta(seconds=seconds)
        moved = ((Session, "id", "resume_after"), (Session, "id", "woken_at"), (Turn, "id", "waiting_since"))
        for table, key, name in moved:
            for row in await db.rows(table):
                await _move_back(db, table, row, key, name, earlier)
        for row in await db.rows(ProviderHealth):
            if row.until is not None:
                await db.execute(
                    update(ProviderHealth)
                    .where(ProviderHealth.provider == row.provider, ProviderHealth.account == row.account)
                    .values(until=row.until - earlier)
                )
        self.forget_health()

    def forget_health(self) -> None:
        """A worker remembers for a second how a provider is."""
        for fleet in self._fleets:
            fleet.runtime.breaker._known.clear()


async def _move_back(fleet: Fleet, table: type[Base], row: Any, key: str, name: str, by: timedelta) -> None:
    value: datetime | None = getattr(row, name)
    if value is not None:
        identity = getattr(table, key) == getattr(row, key)
        await fleet.execute(update(table).where(identity).values({name: value - by}))


async def retry_now(fleet: Fleet) -> list[str]:
    """What the sweep does when the time has come for all that rests."""
    await fleet.execute(update(Session).values(resume_after=None, woken_at=None))
    await fleet.sweep()
    return await fleet.answer_wakes()


def bucket_of(fleet: Fleet, provider: str, model: str) -> BucketKey:
    driver: Any = fleet.runtime.registry.providers.get(provider)
    return BucketKey(provider, driver.account, model)


async def resting_seconds(fleet: Fleet) -> dict[str, float]:
    """For how long each session was told to rest, both times by the database's clock."""
    return {
        row.id: (row.resume_after - row.activity_since).total_seconds()
        for row in await fleet.sessions()
        if row.resume_after is not None
    }
