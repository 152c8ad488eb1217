"""A provider that is down is left alone by the whole fleet, and tried again by one."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from models.fleet import all_health, providers_down
from tests.support.api_fleet import FleetTime, bucket_of, model_api, resting_seconds, retry_now
from tests.support.fleet import Fleet, MakeFleet, fleet_settings
from tests.support.model_api import ModelApi, drop, hang, refuse
from tests.support.servers import Valkey

pytestmark = [pytest.mark.spec("P19"), pytest.mark.both_databases]


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch) as server:
        yield server


async def _health(fleet: Fleet) -> Any:
    """The row that `longshore providers` shows."""
    [row] = await fleet.db.read(all_health)
    return row


def nearly(seconds: Any) -> Any:
    """When it begins and when it ends are written by two statements; a busy machine takes its time between them."""
    return pytest.approx(seconds, abs=3)


async def _pause(fleet: Fleet) -> float:
    row = await _health(fleet)
    return float((row.until - row.checked_at).total_seconds())


async def _fail_five(fleet: Fleet, api: ModelApi, provider: str = "anthropic") -> None:
    """Five sessions, one after the other: the provider is down."""
    await fleet.add_group(provider=provider)
    api.fail(drop(times=None))
    for number in range(5):
        await fleet.send(f"early {number}", platform_id=f"early{number}")
        assert await fleet.answer_wakes() == ["waiting"]


async def _wake_all(fleets: list[Fleet], provider: str = "anthropic") -> list[str]:
    """Everything the sweep finds, at once, on all workers."""
    await fleets[0].sweep()
    wakes, fleets[0].bells.wakes = fleets[0].bells.wakes, []
    return await asyncio.gather(
        *(fleets[n % len(fleets)].wake(session_id, provider) for n, (session_id, _) in enumerate(wakes))
    )


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_five_failures_in_a_row_stop_the_whole_fleet(make_fleet: MakeFleet, api: ModelApi, provider: str) -> None:
    fleet, other = await make_fleet(), await make_fleet()
    await fleet.add_group(provider=provider)
    api.fail(drop(times=None))
    for number in range(5):
        assert [(row.state, row.failures) for row in await fleet.db.read(all_health)] == [("ok", number)][: number > 0]
        await fleet.send(f"early {number}", platform_id=f"early{number}")
        assert await fleet.answer_wakes() == ["waiting"]
    row = await _health(fleet)
    assert (row.provider, row.state, row.failures) == (provider, "down", 5)
    assert row.detail
    assert await _pause(fleet) == nearly(10)
    assert await fleet.db.read(providers_down) == {provider}

    asked = len(api.requests)
    for number, worker in enumerate((fleet, other, await make_fleet())):
        accepted = await worker.send("hello", platform_id=f"late{number}")
        assert await worker.wake(accepted.session_id, provider) == "waiting"
        assert 0 < (await resting_seconds(worker))[accepted.session_id] <= 10
    assert len(api.requests) == asked, "nobody asks"
    late = [row for row in await fleet.inbox() if row.content["text"] == "hello"]
    assert {(row.tries, row.error_class) for row in late} == {(0, "transport")}
    assert f"{provider} does not answer and is left alone" in late[0].error
    assert fleet.runtime.leases.running == other.runtime.leases.running == 0


async def test_one_of_ten_tries_again_and_its_success_is_everybodys(make_fleet: MakeFleet, api: ModelApi) -> None:
    fleets = [await make_fleet(), await make_fleet()]
    fleet, time = fleets[0], FleetTime(*fleets)
    await _fail_five(fleet, api)
    for number in range(5):
        await fleet.send(f"late {number}", platform_id=f"late{number}")
    await fleet.answer_wakes()
    asked = len(api.requests)
    api.heal()
    api.fail(hang())  # nobody hears of its success before they have asked
    await time.go_by(15)
    running = asyncio.create_task(_wake_all(fleets))
    await api.arrived(1, "hanging")
    async with asyncio.timeout(30):
        while len([seconds for seconds in (await resting_seconds(fleet)).values() if seconds > 0]) < 9:
            await asyncio.sleep(0.01)
    api.release()
    outcomes = await running
    assert sorted(outcomes) == ["completed"] + ["waiting"] * 9
    assert len(api.requests) == asked + 1, "one probes, the others rest"
    row = await _health(fleet)
    assert (row.state, row.failures, row.until, row.detail) == ("ok", 0, None, None)
    time.forget_health()
    await time.go_by(61)
    assert await _wake_all(fleets) == ["completed"] * 9
    texts = sorted(row.content["text"] for row in await fleet.outbox())
    assert texts == sorted(f"You said: {when} {number}" for when in ("early", "late") for number in range(5))


async def test_a_failed_probe_doubles_the_pause(make_fleet: MakeFleet, api: ModelApi) -> None:
    fleets = [await make_fleet(max_tries=20), await make_fleet(max_tries=20)]
    fleet, time = fleets[0], FleetTime(*fleets)
    await _fail_five(fleet, api)
    pauses = []
    for _ in range(6):
        asked = len(api.requests)
        await time.go_by(400)
        outcomes = await _wake_all(fleets)
        assert set(outcomes) == {"waiting"}
        assert len(api.requests) == asked + 1
        pauses.append(await _pause(fleet))
    assert pauses == nearly([20, 40, 80, 160, 300, 300])


async def test_calls_under_way_when_it_goes_down_do_not_lengthen_the_pause(
    make_fleet: MakeFleet, api: ModelApi
) -> None:
    """Twenty that break at once are one outage, not sixteen."""
    fleets = [await make_fleet(), await make_fleet()]
    fleet = fleets[0]
    await fleet.add_group(provider="anthropic")
    api.fail(hang(times=20))
    for number in range(20):
        await fleet.send(f"number {number}", platform_id=f"chat{number}")
    wakes, fleet.bells.wakes = fleet.bells.wakes, []
    running = [
        asyncio.create_task(fleets[n % 2].wake(session_id, provider)) for n, (session_id, provider) in enumerate(wakes)
    ]
    await api.arrived(20, "hanging")
    _break_all(api)
    assert await asyncio.gather(*running) == ["waiting"] * 20
    assert (await _health(fleet)).state == "down"
    assert await _pause(fleet) == nearly(10)


def _break_all(api: ModelApi) -> None:
    """Close the connections of all requests that hang."""
    assert api._runner is not None
    server = api._runner.server
    assert server is not None
    for connection in list(server.connections):
        if connection.transport is not None:
            connection.transport.close()


async def test_an_answer_of_any_kind_ends_the_outage(make_fleet: MakeFleet, api: ModelApi) -> None:
    """Whoever is told that a request is wrong has reached the provider."""
    fleet = await make_fleet()
    time = FleetTime(fleet)
    await _fail_five(fleet, api)
    api.heal()
    api.fail(refuse("invalid"))
    await time.go_by(15)
    outcomes = await _wake_all([fleet])
    assert outcomes.count("failed") == 1
    assert (await _health(fleet)).state == "ok"
    await time.go_by(61)
    assert set(await _wake_all([fleet])) == {"completed"}


async def test_failures_that_are_not_in_a_row_do_not_count(make_fleet: MakeFleet, api: ModelApi) -> None:
    fleet = await make_fleet()
    await fleet.add_group(provider="anthropic")
    for number in range(3):
        api.fail(drop(times=3))
        for part in range(3):
            await fleet.send(f"{number} {part}", platform_id=f"chat{number}{part}")
        assert await fleet.answer_wakes() == ["waiting"] * 3
        assert await retry_now(fleet) == ["completed"] * 3
    assert (await _health(fleet)).failures == 0


async def test_a_rate_limit_is_shown_and_is_no_outage(make_fleet: MakeFleet, api: ModelApi) -> None:
    fleet = await make_fleet()
    await fleet.add_group(provider="anthropic")
    api.fail(refuse("rate_limited", retry_after=120))
    await fleet.send()
    await fleet.answer_wakes()
    row = await _health(fleet)
    assert (row.state, row.failures) == ("limited", 0)
    assert await _pause(fleet) == nearly(120)
    assert await fleet.db.read(providers_down) == set()


@pytest.mark.parametrize("database_kind", ["postgresql"])
async def test_the_breaker_needs_no_redis(database_url: str, tmp_path: Path, api: ModelApi) -> None:
    valkey = Valkey(tmp_path / "valkey")
    valkey.start()
    fleet = Fleet(fleet_settings(database_url, valkey.url, tmp_path))
    try:
        valkey.stop(signal.SIGKILL)
        await _fail_five(fleet, api)
        assert (await _health(fleet)).state == "down"
        asked = len(api.requests)
        await fleet.send("hello", platform_id="late")
        assert await fleet.answer_wakes() == ["waiting"]
        assert len(api.requests) == asked
        api.heal()
        await FleetTime(fleet).go_by(15)
        assert "completed" in await _wake_all([fleet])
        assert (await _health(fleet)).state == "ok"
    finally:
        valkey.stop(signal.SIGKILL)
        await fleet.close()


@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_who_may_not_call_anyway_is_not_the_one_who_tries(make_fleet: MakeFleet, api: ModelApi) -> None:
    """A session whose model is at its rate limit leaves the probe to one that can make it."""
    fleet = await make_fleet()
    time = FleetTime(fleet)
    await _fail_five(fleet, api)
    await fleet.add_group("limited", provider="anthropic", model="claude-haiku-5-5")
    await fleet.runtime.governor.pause(bucket_of(fleet, "anthropic", "claude-haiku-5-5"), 1000)
    api.heal()
    await time.go_by(15)
    limited = await fleet.send("hello", agent_group="limited", platform_id="limited")
    assert await fleet.wake(limited.session_id, "anthropic") == "waiting"
    fleet.bells.wakes.clear()
    assert "completed" in await _wake_all([fleet])
