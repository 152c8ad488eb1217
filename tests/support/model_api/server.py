"""The stand-in model server: real HTTP, real streaming, on the loop of whoever starts it.

`ModelApiThread` runs the same in a thread of its own, for tests whose clients are other processes or block."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from aiohttp import web

from tests.support.model_api import control
from tests.support.model_api.canned import Canned
from tests.support.model_api.catalogue import models
from tests.support.model_api.exchange import Exchange
from tests.support.model_api.faults import Fault, FaultQueue, Predicate
from tests.support.model_api.limits import Limits
from tests.support.model_api.prompt_cache import PromptCache, tokens_of
from tests.support.model_api.recording import Outcome, Recorded, Recorder
from tests.support.model_api.script import Script
from tests.support.model_api.wires import ANTHROPIC, GEMINI, GEMINI_PATH, PATHS


@dataclass(frozen=True)
class Manner:
    """How the stand-in behaves when nothing is wrong. Seconds and characters."""

    port: int = 0  # 0 takes a free one
    keys: set[str] | None = None  # None takes any key, but not none at all
    strict: bool = True  # else mistakes of the client are noted, and answered all the same
    fresh_ids: bool = False  # new ids for tool calls in every attempt, as the real APIs do
    wait: float = 0.0  # before the first event
    pace: float = 0.0  # between events
    chunk: int = 24  # of one delta
    deltas: int | None = None  # always the same answer of so many deltas, unchecked and cheap
    record: bool = True  # else bodies are not kept
    report: Callable[[Recorded], None] | None = None  # told of every request that has ended


class Options(TypedDict, total=False):
    """The fields of `Manner`, as keywords."""

    port: int
    keys: set[str] | None
    strict: bool
    fresh_ids: bool
    wait: float
    pace: float
    chunk: int
    deltas: int | None
    record: bool
    report: Callable[[Recorded], None] | None


class ModelApi:
    """`async with ModelApi(script) as api:` and point the SDKs at `api.url` (Anthropic, Google) or `api.openai_url`.

    `script` and `limits` may be replaced at any time. The options are the fields of `Manner`."""

    def __init__(
        self, script: Script | None = None, *, limits: Limits | None = None, **options: Unpack[Options]
    ) -> None:
        self.manner = Manner(**options)
        self.script = script or Script()
        self.limits = limits
        self.recorder = Recorder(bodies=self.manner.record)
        self.faults = FaultQueue()
        self.cache = PromptCache()
        self.canned = Canned(self.manner.deltas) if self.manner.deltas is not None else None
        self.strays: list[str] = []  # what else was asked for, which is answered with 404
        self.url = ""
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def requests(self) -> list[Recorded]:
        """What came to the four wires, in order."""
        return self.recorder.all()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [one.body for one in self.requests if one.body is not None]

    @property
    def problems(self) -> list[str]:
        """What the real APIs would have refused."""
        return [problem for one in self.requests for problem in one.problems]

    def fail(self, *faults: Fault, predicate: Predicate | None = None) -> None:
        """Queue misbehaviour. The first that fits a request is used up by it, as often as its `times` says."""
        for fault in faults:
            self.faults.add(fault, predicate)

    def heal(self) -> None:
        """No more queued faults, and what hangs goes on."""
        self.faults.clear()
        self.release()

    def release(self) -> None:
        """Let everything go on that hangs now; what hangs later waits for the next call."""
        self._released.set()
        self._released = asyncio.Event()

    async def hold(self, seen: Recorded) -> None:
        """Hang until released. Noted in the same step of the loop, so that who saw it hang can release it."""
        self.recorder.update(seen, outcome="hanging")
        await self._released.wait()
        self.recorder.update(seen, outcome="running")

    async def arrived(self, count: int, outcome: Outcome | None = None, timeout: float = 10.0) -> None:
        """Wait until `count` requests have come, or have come to this outcome."""
        await asyncio.to_thread(self.recorder.wait, count, outcome, timeout)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 * 2**20)
        for path in PATHS:
            app.router.add_post(path, self._post)
        app.router.add_post(GEMINI_PATH, self._post)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_post("/v1beta/models/{model}:countTokens", self._count_gemini_tokens)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/", self._alive)
        control.add_routes(app, self)
        app.router.add_route("*", "/{path:.*}", self._stray)
        # Handlers are cancelled when their client leaves: a hanging answer ends, and is recorded as left.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.manner.port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Also ends what hangs."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _post(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(self, request, await request.read())
        try:
            return await exchange.run()
        finally:
            if self.manner.report is not None:
                self.manner.report(exchange.seen)

    async def _count_tokens(self, request: web.Request) -> web.Response:
        conversation = ANTHROPIC.read(await request.json())
        return web.json_response({"input_tokens": sum(tokens_of(segment) for segment in conversation.segments)})

    async def _count_gemini_tokens(self, request: web.Request) -> web.Response:
        body = await request.json()
        conversation = GEMINI.read(body.get("generateContentRequest") or body)
        return web.json_response({"totalTokens": sum(tokens_of(segment) for segment in conversation.segments)})

    async def _alive(self, request: web.Request) -> web.Response:
        return web.Response(text="stand-in")

    async def _stray(self, request: web.Request) -> web.Response:
        self.strays.append(f"{request.method} {request.path}")
        message = f"The stand-in does not know {request.method} {request.path}."
        return web.json_response(
            {"type": "error", "error": {"type": "not_found_error", "message": message}}, status=404
        )

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response(models("anthropic" if "anthropic-version" in request.headers else "openai"))
