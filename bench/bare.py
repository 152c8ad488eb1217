"""The peer of `streams`: a bare asyncio program that makes the same streamed model calls, and does nothing else.

`sdk` is the vendor's SDK alone, with the client and the gate our adapter makes; `adapter` is the adapter's `stream`.
It obeys lines on its standard input and answers each with one line of JSON, so that it can be warmed up and measured
from outside, as a worker is: `run CALLS AT_ONCE` makes calls, `open COUNT` begins streams and leaves them open."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from adapters.contracts import ToolSpec
from adapters.events import TextDelta
from adapters.model_port import ModelRequest
from adapters.providers.anthropic.provider import AnthropicProvider, _client
from adapters.providers.anthropic.request import parameters
from adapters.providers.credentials import OPENINGS, anthropic_credentials
from adapters.registry import Registry
from adapters.transcript import Said

# About what a turn sends: the system prompt of an agent without files, its tools, one message.
SYSTEM = "You are bench, an agent. " + "What people write reaches you as messages; answer them. " * 12


class Bare:
    def __init__(self, way: str) -> None:
        self._provider = AnthropicProvider()
        self._client = _client(anthropic_credentials())
        self._gate = asyncio.Semaphore(OPENINGS)
        self._texts = self._through_adapter if way == "adapter" else self._through_sdk
        self._tools = _tools()
        self._open: set[asyncio.Task[int]] = set()

    async def run(self, calls: int, at_once: int) -> dict[str, float]:
        """Make so many calls, so many at a time; how long it took, and how many characters came."""
        left = iter(range(calls))

        async def work() -> int:
            return sum([await self._call() for _ in left])

        started = time.perf_counter()
        characters = await asyncio.gather(*(work() for _ in range(min(at_once, calls))))
        return {"seconds": time.perf_counter() - started, "characters": sum(characters)}

    def open(self, count: int) -> None:
        self._open |= {asyncio.create_task(self._call()) for _ in range(count)}

    async def _call(self) -> int:
        """One call; how many characters it brought. The text is put together, as anybody would."""
        request = ModelRequest(AnthropicProvider.default_model, SYSTEM, (Said("user", "hello"),), self._tools)
        return len("".join([text async for text in self._texts(request)]))

    async def _through_sdk(self, request: ModelRequest) -> AsyncIterator[str]:
        async with self._gate:
            stream = await self._client.messages.create(**parameters(request))
        try:
            async for event in stream:
                if event.type == "content_block_delta" and event.delta.type == "text_delta":
                    yield event.delta.text
        finally:
            await stream.close()

    async def _through_adapter(self, request: ModelRequest) -> AsyncIterator[str]:
        async with aclosing(self._provider.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TextDelta):
                    yield piece.text


def _tools() -> tuple[ToolSpec, ...]:
    tools = Registry().tools
    return tuple(tools.get(name).spec for name in tools.names)


async def _obey(way: str) -> None:
    bare = Bare(way)
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split():
            case ["run", calls, at_once]:
                said = await bare.run(int(calls), int(at_once))
            case ["open", count]:
                bare.open(int(count))
                said = {}
            case _:
                raise SystemExit(f"unknown: {line!r}")
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(_obey(sys.argv[1]))
