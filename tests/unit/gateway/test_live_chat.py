"""A chat's live page: what is rendered for it, and that it ends when its reader may no longer look."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.sse import ServerSentEvent

from gateway.console.chat import live as live_chat
from gateway.console.chat.lines import Chat, Line
from gateway.console.chat.live import LiveChat
from gateway.console.visitors import Guest
from models.sign_ins import Visitor
from workers.access import Reach

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
GUEST = Guest(Visitor("i", "web:ada", frozenset({"send"})), Reach(False), "c", None, "/console/chat")


class Quiet:
    """News of which nothing is heard."""

    @contextmanager
    def ear(self, words: bytes) -> Iterator[Any]:
        yield SimpleNamespace(closed=False, sessions=set())


def live() -> LiveChat:
    nothing: Any = Quiet()
    return LiveChat(nothing, nothing, GUEST)


@pytest.mark.spec("G3")
async def test_only_what_is_new_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    page, rendered = live(), list[str]()
    write = page._write

    def noted(lines: Any) -> list[str]:
        rendered.extend(line.key for line in lines)
        return write(lines)

    monkeypatch.setattr(page, "_write", noted)
    lines = [Line(f"out{n}", NOON, f"said {n}", agent="demo") for n in range(100)]
    [patch, *_] = await page._changes(Chat(lines, ["demo"], []))
    assert len(rendered) == len(patch.data["entries"]) == 100
    rendered.clear()
    again = deepcopy(lines[1:])
    again[3].reactions.append("👍")
    again.append(Line("out100", NOON, "said 100", agent="demo"))
    [patch] = await page._changes(Chat(again, ["demo"], []))
    assert rendered == ["out100", "out4"]
    assert [entry["before"] for entry in patch.data["entries"]] == [None, "out5"]
    assert await page._changes(Chat(again, ["demo"], [])) == []


@pytest.mark.spec("G3")
async def test_a_slow_reader_hears_nothing_more_after_the_sign_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_chat, "Allowed", lambda _: SimpleNamespace(still=no))
    page = live()
    events = page.events(no)
    await anext(events)
    fill(page)
    page._readers["s"] = asyncio.create_task(go_on_writing(page))
    async with asyncio.timeout(20):
        heard = await count(events, 10 * live_chat._BEHIND)
    assert heard <= 1


async def no() -> bool:
    return False


def fill(page: LiveChat) -> None:
    while not page._queue.full():
        page._queue.put_nowait(ServerSentEvent(event="delta", data={}))


async def go_on_writing(page: LiveChat) -> None:
    while True:
        await page._queue.put(ServerSentEvent(event="delta", data={}))


async def count(events: AsyncIterator[ServerSentEvent], most: int) -> int:
    number = 0
    async for _ in events:
        number += 1
        await asyncio.sleep(0)  # others have their turn
        if number == most:
            break
    return number
