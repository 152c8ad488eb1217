"""One request and its answer: recorded, checked, spoiled if a fault is due, and written."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.model_api.answer import Answer, answer
from tests.support.model_api.conversation import Conversation
from tests.support.model_api.delivery import Step, steps
from tests.support.model_api.faults import Fault
from tests.support.model_api.recording import Recorded
from tests.support.model_api.refusals import Refusal, refusal
from tests.support.model_api.script import Reply
from tests.support.model_api.side_requests import side_reply
from tests.support.model_api.wires import Wire, wire_of

if TYPE_CHECKING:
    from tests.support.model_api.server import ModelApi


class Exchange:
    def __init__(self, api: "ModelApi", request: web.Request, raw: bytes) -> None:
        self._api, self._request, self._raw = api, request, raw
        self._wire, self._from_path = wire_of(request.path)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen: Recorded = api.recorder.add(request.path, headers, raw, _key(headers), self._wire.name)

    async def run(self) -> web.StreamResponse:
        """A client that leaves cancels this, or makes a write fail; after the last event it has all it wanted."""
        try:
            return await (self._can() if self._api.canned else self._converse())
        except (asyncio.CancelledError, ConnectionError):
            if self.seen.outcome != "answered":
                self._note(outcome="left")
            raise

    async def _can(self) -> web.StreamResponse:
        assert self._api.canned is not None
        stream, pieces = self._api.canned.pieces(self._wire, self._raw, bool(self._from_path.get("stream")))
        return await self._write(steps(pieces, None, self._api.manner.pace), _content_type(stream))

    async def _converse(self) -> web.StreamResponse:
        body = _object(self._raw)
        asked = self._wire.read({**(body or {}), **self._from_path})
        problems = ["The request body is not a JSON object."] if body is None else self._wire.check(body)
        side = side_reply(asked)
        kept = {"body": body, "conversation": asked} if self._api.manner.record else {}
        self._note(problems=problems, side=side is not None, **kept)
        fault = self._api.faults.take(asked) if side is None else None
        if fault is None and (why := self._complaint(problems, body is None)) is not None:
            return self._refuse(why)
        fault, reply = self._choose(asked, fault) if side is None else (None, side)
        if fault is not None:
            self._note(fault=fault.kind)
            if fault.kind == "refuse":
                return self._refuse(_asked_for(self._wire, fault))
            if fault.kind == "drop":
                return self._cut(web.StreamResponse())
            if fault.kind == "hang":
                await self._api.hold(self.seen)
        made = self._answer(asked, reply)
        page = fault is not None and fault.kind == "garbage" and fault.garbage == "html"
        kind = "text/html" if page else _content_type(asked.stream)
        return await self._write(steps(_pieces(self._wire, asked, made, fault), fault, self._api.manner.pace), kind)

    def _complaint(self, problems: list[str], unreadable: bool) -> Refusal | None:
        keys, name = self._api.manner.keys, self._wire.name
        if self.seen.key is None or (keys is not None and self.seen.key not in keys):
            return refusal(name, "unauthenticated")
        if problems and (self._api.manner.strict or unreadable):
            return refusal(name, "invalid", message=problems[0])
        return None

    def _choose(self, asked: Conversation, fault: Fault | None) -> tuple[Fault | None, Reply]:
        """The reply of the script; a queued fault goes before those that the script asks for."""
        number, rule, reply = self._api.script.choose(asked)
        if fault is None:
            fault = self._api.faults.take_scripted(number, rule.faults, asked)
        if fault is None:
            fault = self._api.faults.take_scripted((number, asked.rounds), reply.faults, asked)
        return fault, reply

    def _answer(self, asked: Conversation, reply: Reply) -> Answer:
        manner = self._api.manner
        cached = self._api.cache.visit(self.seen.key or "", asked)
        salt = str(self.seen.number) if manner.fresh_ids else ""
        return answer(reply, asked, cached, chunk=manner.chunk, salt=salt)

    async def _write(self, planned: Iterable[Step], content_type: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={**self._headers(), "content-type": content_type})
        await response.prepare(self._request)
        self._note(status=200)
        if self._api.manner.wait:
            await asyncio.sleep(self._api.manner.wait)
        for step in planned:
            match step:
                case bytes():
                    await response.write(step)
                case "stall":
                    await self._api.hold(self.seen)
                case "cut":
                    return self._cut(response)
                case float() | int():
                    await asyncio.sleep(step)
        # Before the end is written: who has read the answer to its end finds it recorded so.
        self._note(outcome="answered")
        await response.write_eof()
        return response

    def _cut(self, response: web.StreamResponse) -> web.StreamResponse:
        """What was written still arrives; the end of the body never does."""
        self._note(outcome="cut")
        if self._request.transport is not None:
            self._request.transport.close()
        return response

    def _refuse(self, why: Refusal) -> web.Response:
        self._note(status=why.status, outcome="refused")
        headers = {**self._headers(), **why.headers, "content-type": "application/json"}
        return web.Response(status=why.status, body=why.content, headers=headers)

    def _headers(self) -> dict[str, str]:
        name = "request-id" if self._wire.name == "anthropic" else "x-request-id"
        limits = self._api.limits.headers(self._wire.name) if self._api.limits else {}
        return {name: f"req_{self.seen.number:08d}", **limits}

    def _note(self, **facts: Any) -> None:
        self._api.recorder.update(self.seen, **facts)


def _pieces(wire: Wire, asked: Conversation, made: Answer, fault: Fault | None) -> Sequence[bytes]:
    if not asked.stream:
        return [json.dumps(wire.whole(made)).encode()]
    pieces = wire.events(made)
    if fault is None or fault.kind != "error_event":
        return pieces
    after = len(pieces) // 2 if fault.after is None else fault.after
    return [*pieces[:after], wire.error_event(made, fault.error, after, fault.form)]


def _asked_for(wire: Wire, fault: Fault) -> Refusal:
    return refusal(
        wire.name,
        fault.error,
        message=fault.message,
        status=fault.status,
        retry_after=fault.retry_after,
        headers=fault.headers,
    )


def _content_type(stream: bool) -> str:
    return "text/event-stream; charset=utf-8" if stream else "application/json"


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _key(headers: dict[str, str]) -> str | None:
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer or None
