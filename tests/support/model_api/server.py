"""The stand-in model server: real HTTP, real streaming, on the loop of whoever starts it.

`ModelApiThread` runs the same in a thread of its own, for tests whose clients are other processes or block."""

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.support.model_api import control
from tests.support.model_api.answer import Answer, answer
from tests.support.model_api.catalogue import models
from tests.support.model_api.conversation import Conversation, WireName
from tests.support.model_api.delivery import steps
from tests.support.model_api.faults import Fault, FaultQueue, Predicate
from tests.support.model_api.limits import Limits
from tests.support.model_api.prompt_cache import PromptCache, tokens_of
from tests.support.model_api.recording import Outcome, Recorded, Recorder
from tests.support.model_api.refusals import Refusal, refusal
from tests.support.model_api.script import Script
from tests.support.model_api.wires import ANTHROPIC, PATHS, Wire


class ModelApi:
    """`async with ModelApi(script) as api:` and point the SDKs at `api.url` (Anthropic) or `api.openai_url`.

    `keys` None takes any key, but not none at all. Without `strict`, mistakes of the client are noted in `problems`
    and answered all the same. `fresh_ids` gives tool calls new ids in every attempt, as the real APIs do. `pace` is
    the pause between events in seconds, `chunk` the characters of one delta. Without `record`, bodies are not kept.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        keys: set[str] | None = None,
        strict: bool = True,
        fresh_ids: bool = False,
        pace: float = 0.0,
        chunk: int = 24,
        record: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self.script = script or Script()
        self.limits = limits
        self.recorder = Recorder(bodies=record)
        self.faults = FaultQueue()
        self.url = ""
        self._port, self._keys, self._strict, self._fresh_ids = port, keys, strict, fresh_ids
        self._pace, self._chunk = pace, chunk
        self._cache = PromptCache()
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def requests(self) -> list[Recorded]:
        """What came to the three wires, in order."""
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
        """No more faults, and what hangs goes on."""
        self.faults.clear()
        self.release()

    def release(self) -> None:
        """Let everything go on that hangs now; what hangs later waits for the next call."""
        self._released.set()
        self._released = asyncio.Event()

    async def arrived(self, count: int, outcome: Outcome | None = None, timeout: float = 10.0) -> None:
        """Wait until `count` requests have come, or have come to this outcome."""
        await asyncio.to_thread(self.recorder.wait, count, outcome, timeout)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 * 2**20)
        for path in PATHS:
            app.router.add_post(path, self._post)
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_get("/v1/models", self._models)
        control.add_routes(app, self)
        # Cancelled when the client leaves: a hanging answer notices it, and is recorded as left.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Also ends what hangs."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _post(self, request: web.Request) -> web.StreamResponse:
        wire = PATHS[request.path]
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = self.recorder.add(request.path, headers, raw, _key(headers))
        seen.wire = wire.name
        try:
            return await self._answer(request, wire, seen, raw)
        except (asyncio.CancelledError, ConnectionError):
            self.recorder.update(seen, outcome="left")
            raise

    async def _answer(self, request: web.Request, wire: Wire, seen: Recorded, raw: bytes) -> web.StreamResponse:
        body = _object(raw)
        conversation = wire.read(body or {})
        problems = ["The request body is not a JSON object."] if body is None else wire.check(body)
        self.recorder.update(seen, body=body, conversation=conversation, problems=problems)
        fault = self.faults.take(conversation)
        if fault is None:
            if seen.key is None or (self._keys is not None and seen.key not in self._keys):
                return self._refused(seen, wire.name, refusal(wire.name, "unauthenticated"))
            if problems and (self._strict or body is None):
                return self._refused(seen, wire.name, refusal(wire.name, "invalid", message=problems[0]))
        number, rule, reply = self.script.choose(conversation)
        if fault is None:
            place = (number, conversation.rounds)
            fault = self.faults.take_scripted(number, rule.faults, conversation) or self.faults.take_scripted(
                place, reply.faults, conversation
            )
        if fault is not None:
            self.recorder.update(seen, fault=fault.kind)
            if fault.kind == "refuse":
                return self._refused(seen, wire.name, _scripted_refusal(wire, fault))
            if fault.kind == "drop":
                return await self._cut(request, seen, web.StreamResponse())
            if fault.kind == "hang":
                await self._hold(seen)
        cached = self._cache.visit(seen.key or "", conversation)
        salt = str(seen.number) if self._fresh_ids else ""
        return await self._deliver(
            request, seen, wire, conversation, answer(reply, conversation, cached, chunk=self._chunk, salt=salt), fault
        )

    async def _deliver(
        self,
        request: web.Request,
        seen: Recorded,
        wire: Wire,
        conversation: Conversation,
        made: Answer,
        fault: Fault | None,
    ) -> web.StreamResponse:
        pieces = _pieces(wire, conversation, made, fault)
        page = fault is not None and fault.kind == "garbage" and fault.garbage == "html"
        kind = "text/event-stream; charset=utf-8" if conversation.stream else "application/json"
        response = web.StreamResponse(headers={**self._headers(wire.name, seen), "cache-control": "no-cache"})
        response.headers["content-type"] = "text/html" if page else kind
        await response.prepare(request)
        self.recorder.update(seen, status=200)
        for step in steps(pieces, fault, self._pace):
            match step:
                case bytes():
                    await response.write(step)
                case "stall":
                    await self._hold(seen)
                case "cut":
                    return await self._cut(request, seen, response)
                case float() | int():
                    await asyncio.sleep(step)
        await response.write_eof()
        self.recorder.update(seen, outcome="answered")
        return response

    async def _cut(self, request: web.Request, seen: Recorded, response: web.StreamResponse) -> web.StreamResponse:
        """What was written still arrives; the end of the body never does."""
        self.recorder.update(seen, outcome="cut")
        if request.transport is not None:
            request.transport.close()
        return response

    async def _hold(self, seen: Recorded) -> None:
        """Told first and held in the same step of the loop, so that who saw it hang can release it."""
        self.recorder.update(seen, outcome="hanging")
        await self._released.wait()
        self.recorder.update(seen, outcome="running")

    def _refused(self, seen: Recorded, wire: WireName, why: Refusal) -> web.Response:
        self.recorder.update(seen, status=why.status, outcome="refused")
        headers = {**self._headers(wire, seen), **why.headers}
        return web.Response(
            status=why.status, body=why.content, headers=headers, content_type="application/json", charset="utf-8"
        )

    def _headers(self, wire: WireName, seen: Recorded) -> dict[str, str]:
        name = "request-id" if wire == "anthropic" else "x-request-id"
        limits = self.limits.headers(wire) if self.limits else {}
        return {name: f"req_{seen.number:08d}", **limits}

    async def _count_tokens(self, request: web.Request) -> web.Response:
        conversation = ANTHROPIC.read(await request.json())
        return web.json_response({"input_tokens": sum(tokens_of(segment) for segment in conversation.segments)})

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response(models("anthropic" if "anthropic-version" in request.headers else "openai"))


def _pieces(wire: Wire, conversation: Conversation, made: Answer, fault: Fault | None) -> Sequence[bytes]:
    if not conversation.stream:
        return [json.dumps(wire.whole(made)).encode()]
    pieces = wire.events(made)
    if fault is None or fault.kind != "error_event":
        return pieces
    after = len(pieces) // 2 if fault.after is None else fault.after
    return [*pieces[:after], wire.error_event(made, fault.error, after, fault.failed)]


def _scripted_refusal(wire: Wire, fault: Fault) -> Refusal:
    return refusal(
        wire.name,
        fault.error,
        message=fault.message,
        status=fault.status,
        retry_after=fault.retry_after,
        headers=fault.headers,
    )


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _key(headers: dict[str, str]) -> str | None:
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    return headers.get("x-api-key") or bearer or None
