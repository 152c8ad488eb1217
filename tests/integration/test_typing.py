"""Showing that an agent is at work, and taking it away again."""

import asyncio
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from adapters.channel_port import Destination
from adapters.channels.fake import FakeChannel
from adapters.events import ToolProgress
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from models import Session
from tests.support.boundaries.scenario_turns import NoArguments
from tests.support.conditions import wait_for_condition
from tests.support.fleet import Fleet, MakeFleet
from workers import toolbox
from workers import typing as typing_sign

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])


class Watched(FakeChannel):
    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.seen: list[bool] = []
        self.broken = broken

    async def show_typing(self, destination: Destination, *, on: bool, doing: str | None = None) -> None:
        self.seen.append(on)
        if self.broken:
            raise RuntimeError("no such sign")
        await super().show_typing(destination, on=on, doing=doing)


async def start(make_fleet: MakeFleet, channel: FakeChannel, script: str, **tools: Any) -> Fleet:
    registry = Registry(channels=Drivers("channel", {"fake": channel}), tools=Drivers("tool", tools) if tools else None)
    fleet = await make_fleet(registry)
    await fleet.add_group(script=script)
    await fleet.send("go", channel_type="fake", platform_id="room")
    return fleet


@pytest.mark.spec("M13")
async def test_shown_refreshed_and_cleared(make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_sign, "REFRESH_SECONDS", 0.01)
    channel = Watched()
    fleet = await start(make_fleet, channel, "- play: [{listen: 60}, {answer: done}]")
    turn = asyncio.create_task(fleet.answer_wakes())
    await wait_for_condition(lambda: channel.seen.count(True) >= 3)
    assert set(channel.typing) == {"room"}
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    await wait_for_condition(lambda: channel.seen[-1] is False)
    assert channel.typing == {}


@pytest.mark.spec("M13")
async def test_cleared_after_an_answer_and_after_a_failure(make_fleet: MakeFleet) -> None:
    channel = Watched()
    fleet = await start(make_fleet, channel, "- play: [{fail: {class: transport}, until_attempt: 2}, {answer: done}]")
    for status in ("waiting", "completed"):
        await fleet.sweep()
        while status not in (outcome := await fleet.answer_wakes()):
            assert set(outcome) <= {"nothing"}  # a sweep may ring twice
            await fleet.sweep()
        await wait_for_condition(lambda: channel.seen[-1:] == [False] and channel.typing == {})


@pytest.mark.spec("M13")
async def test_says_what_the_agent_is_at_and_since_when(make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_sign, "REFRESH_SECONDS", 0.01)
    enough = asyncio.Event()

    async def slow(arguments: NoArguments, context: ToolContext) -> str:
        await enough.wait()
        return "at last"

    def shows(doing: str) -> bool:
        return (channel.typing.get("room") or "").startswith(f"{doing}, since ")

    channel = Watched()
    tool = Tool("slow", "Takes long.", NoArguments, slow)
    fleet = await start(make_fleet, channel, "- play: [{tool: slow}, {listen: 60}]", slow=tool)
    turn = asyncio.create_task(fleet.answer_wakes())
    for doing, stop in (("slow", enough.set), ("calling model", turn.cancel)):
        await wait_for_condition(partial(shows, doing))
        [session] = await fleet.sessions()
        assert channel.typing["room"] == f"{doing}, since {session.activity_since:%H:%M:%S}Z"
        stop()
    await asyncio.gather(turn, return_exceptions=True)
    await wait_for_condition(lambda: channel.typing == {})


@pytest.mark.spec("M13")
@pytest.mark.parametrize(
    "meanwhile", [{"activity": "awaiting human"}, {"lease_owner": "another"}], ids=["waits for a person", "taken over"]
)
async def test_shows_nothing_while_nobody_is_at_work(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch, meanwhile: dict[str, str]
) -> None:
    monkeypatch.setattr(typing_sign, "REFRESH_SECONDS", 0.01)
    channel = Watched()
    fleet = await start(make_fleet, channel, "- play: [{listen: 60}]")
    turn = asyncio.create_task(fleet.answer_wakes())
    await wait_for_condition(lambda: channel.typing)
    [session] = await fleet.sessions()
    await fleet.execute(update(Session).values(**meanwhile))
    await wait_for_condition(lambda: channel.typing == {})
    calls = len(channel.seen)
    await fleet.execute(update(Session).values(**{name: getattr(session, name) for name in meanwhile}))
    await wait_for_condition(lambda: channel.typing)
    assert channel.seen[calls] is True, "what is not shown was taken away once"
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    await wait_for_condition(lambda: channel.typing == {})


@pytest.mark.spec("M13")
async def test_a_platform_that_fails_at_it_does_not_harm_the_turn(make_fleet: MakeFleet) -> None:
    channel = Watched(broken=True)
    fleet = await start(make_fleet, channel, "fine")
    assert await fleet.answer_wakes() == ["completed"]


@pytest.mark.spec("M13")
async def test_a_long_tool_shows_that_it_goes_on(make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "PROGRESS_SECONDS", 0.01)
    told: list[ToolProgress] = []
    enough = asyncio.Event()

    async def slow(arguments: NoArguments, context: ToolContext) -> str:
        await enough.wait()
        return "at last"

    tool = Tool("slow", "Takes long.", NoArguments, slow)
    fleet = await start(make_fleet, Watched(), "- play: [{tool: slow}, {answer: '{result}'}]", slow=tool)
    publish = fleet.runtime.publisher.publish

    def hear(*envelopes: Any) -> None:
        told.extend(e.event for e in envelopes if isinstance(e.event, ToolProgress))
        if len(told) >= 2:
            enough.set()
        publish(*envelopes)

    monkeypatch.setattr(fleet.runtime.publisher, "publish", hear)
    assert await fleet.answer_wakes() == ["completed"]
    assert [event.name for event in told[:2]] == ["slow", "slow"]
    assert told[0].elapsed < told[1].elapsed
