"""A stand-in for Omnara: real HTTP, and the wire of its published description (openapi.yaml 0.1.0), nothing more.

What an agent does is decided by the text it is given: see `_act`. Requests that the real one would refuse are refused
the same way, and noted in `problems`."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from aiohttp import web

KEY = "omnara_pat_v1_hcyd5n6a2_do-not-show-this"
ORG, PROJECT, CONFIG = "org_k7mv4qtrwz", "proj_7mv4qtrwz3", "acfg_mv4qtrwz3j"
_LAUNCH = {"config", "profile", "name", "message"}
_INPUT = {"content_blocks", "delivery_mode", "cancel_open_interactions", "actor"}


@dataclass
class Agent:
    id: str
    events: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    live: list[dict[str, Any]] = field(default_factory=list)  # deltas and hints, which have no number
    interactions: list[dict[str, Any]] = field(default_factory=list)
    cancelled: bool = False
    shown: int = 0  # of `live`, to whoever follows
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, kind: str, turn: int, **more: Any) -> None:
        """A lasting event. Live frames that come before it are shown before it."""
        event = {"id": f"evt_{len(self.events)}", "sequence": len(self.events) + 1, "event_kind": kind}
        self.events.append(event | {"turn_id": f"trn_{turn}", "turn_sequence": turn, **more})
        self.tell({"": len(self.events) - 1})

    def tell(self, frame: dict[str, Any]) -> None:
        self.live.append(frame)
        self.news.set()


class OmnaraApi:
    """`async with OmnaraApi() as api:` and point OMNARA_BASE_URL at `api.url`."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.problems: list[str] = []
        self.resumed_after: list[str] = []
        self.answers_late = False  # an input is seen in the stream before its sender knows its id
        self.faults: list[web.Response] = []  # answers to the next requests, whatever they are
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._guard])
        base = f"/api/v1/orgs/{ORG}/projects/{PROJECT}/agents"
        app.router.add_post(base, self._launch)
        app.router.add_post(base + "/{agent}/inputs", self._input)
        app.router.add_post(base + "/{agent}/cancel", self._cancel)
        app.router.add_get(base + "/{agent}/events", self._events)
        app.router.add_get(base + "/{agent}/events/stream", self._stream)
        app.router.add_get(base + "/{agent}/interactions", self._interactions)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/api/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def only(self) -> Agent:
        [agent] = self.agents.values()
        return agent

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(401, "unauthorized", f"no such key: {request.headers.get('Authorization')}")
        if self.faults:
            return self.faults.pop(0)
        if request.match_info.get("agent", "") not in {*self.agents, ""}:
            return _error(404, "not_found", "agent not found")
        return await handler(request)  # type: ignore[no-any-return]

    async def _launch(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (wrong := self._wrong(body, _LAUNCH)) or body.get("config") != CONFIG:
            return wrong or _error(404, "not_found", "agent config not found")
        if body.get("message") == "fail":
            return _error(429, "rate_limited", "slow down", {"Retry-After": "7"})
        agent = Agent(f"agt_{len(self.agents) + 1:04}")
        self.agents[agent.id] = agent
        answer = {
            "agent": {"id": agent.id, "state": "active", "name": "", "model": {"provider_config": "p", "name": "m-1"}},
            "agent_config": {"id": CONFIG},
            "machine_bindings": [],
            "agent_input": {"id": self._admit(agent, body["message"]), "state": "received", "delivery_mode": "queued"},
        }
        return web.json_response(answer, status=201)

    async def _input(self, request: web.Request) -> web.Response:
        body = await request.json()
        if wrong := self._wrong(body, _INPUT):
            return wrong
        [block] = body["content_blocks"]
        agent = self.agents[request.match_info["agent"]]
        made = self._admit(agent, block["text"])
        while self.answers_late and agent.shown < len(agent.live):
            await asyncio.sleep(0.01)
        mode = body.get("delivery_mode", "queued")
        return web.json_response({"agent_input": {"id": made, "state": "received", "delivery_mode": mode}}, status=201)

    def _wrong(self, body: dict[str, Any], known: set[str]) -> web.Response | None:
        if unknown := set(body) - known:
            self.problems.append(f"unknown fields {unknown}")
            return _error(400, "validation_failed", self.problems[-1])
        return None

    def _admit(self, agent: Agent, text: str) -> str:
        made = f"ain_{agent.id[4:]}x{len(agent.inputs)}"
        agent.inputs.append(text)
        turn = sum(event["event_kind"] == "agent_input" for event in agent.events) + 1
        agent.add("agent_input", turn, agent_input_id=made, input_kind="content", content_blocks=_says(text))
        _act(agent, turn, text)
        return made

    async def _cancel(self, request: web.Request) -> web.Response:
        self.agents[request.match_info["agent"]].cancelled = True
        return web.json_response({"event": None, "runtime_cancel_requested": True, "affected": True})

    async def _events(self, request: web.Request) -> web.Response:
        if parse_qs(request.query_string) != {"before_sequence": ["0"], "limit": ["1"]}:
            self.problems.append(f"events were asked for by {request.query_string}")
        last = self.agents[request.match_info["agent"]].events[-1:]
        return web.json_response({"data": last, "next_after_sequence": 0, "has_more": False})

    async def _interactions(self, request: web.Request) -> web.Response:
        open_ones = self.agents[request.match_info["agent"]].interactions
        return web.json_response({"data": open_ones, "next_cursor": None})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        agent, after = self.agents[request.match_info["agent"]], int(request.query["after_sequence"])
        self.resumed_after.append(request.headers["Last-Event-ID"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for data in _frames(agent, after):
            if data == "":
                return response  # cut
            await response.write(data.encode())
            agent.shown += 1
        return response


async def _frames(agent: Agent, after: int) -> AsyncIterator[str]:
    """Everything from the beginning that is new to the reader, then as it comes. "" cuts the connection."""
    at = 0
    while True:
        while at < len(agent.live):
            frame = agent.live[at]
            at += 1
            if "raw" in frame:
                yield frame["raw"]
            elif "cut" in frame:
                agent.live[at - 1] = {"raw": ": going on\n\n"}
                yield ""
            elif "" not in frame:
                yield f"event: live\ndata: {json.dumps(frame)}\n\n"
            elif (event := agent.events[frame[""]])["sequence"] > after:
                yield f"event: {event['event_kind']}\nid: {event['sequence']}\ndata: {json.dumps(event)}\n\n"
        agent.news.clear()
        await agent.news.wait()


def _act(agent: Agent, turn: int, text: str) -> None:
    match text:
        case "slow":
            agent.tell({"raw": ": heartbeat\n\n"})
        case "hang":
            pass
        case "crash":
            agent.tell({"raw": "data: {nonsense\n\n"})
        case "listen":
            agent.tell({"raw": ": heartbeat\n\n"})
        case "broken":
            blocks = [{"type": "error", "text": f"the model said no to {KEY}"}]
            agent.add("model_output", turn, stop_reason="error", content_blocks=blocks)
        case "stopped":
            agent.add(
                "agent_input", turn, agent_input_id="ain_other", input_kind="control", control_type="cancel_current"
            )
        case "closed":
            agent.tell({"error": "not now", "code": "service_unavailable"})
        case "risky":
            call: dict[str, Any] = {
                "type": "tool_call",
                "tool_call_id": "tcl_1",
                "tool_type": "built_in",
                "name": "run_command",
            }
            blocks = [*_says("Let me build it."), call | {"input": {"command": "make"}}]
            agent.add("model_output", turn, stop_reason="tool_use", content_blocks=blocks)
            context = [{"label": "Command", "value": "make"}]
            form = {"title": "Permission requested for run_command", "context": context, "questions": []}
            kind = {"interaction_kind": "permission", "state": "open"}
            agent.interactions.append({"id": "int_1", "agent_id": agent.id, "request": form, **kind})
            agent.tell({"tool_call_id": "tcl_1", "state": "awaiting_permission"})
        case "cut":
            agent.tell({"cut": True})
            _answer(agent, turn, "back again")
        case _:
            _answer(agent, turn, f"You said: {text}")


def allow(agent: Agent) -> None:
    """Somebody says yes in Omnara's console."""
    agent.interactions.clear()
    agent.add("tool_result", 1, tool_call_id="tcl_1", outcome="succeeded", content_blocks=_says("built"))
    _answer(agent, 1, "It is built.")


def _answer(agent: Agent, turn: int, text: str) -> None:
    for seq, word in enumerate(text.split(" "), 1):
        delta = {"kind": "text_delta", "block_index": 0, "delta": f"{word} "}
        agent.tell({"turn_id": f"trn_{turn}", "model_call_context_id": "mcc_1", "seq": seq, "event": delta})
    usage = {"input_tokens_total": 30, "uncached_input_tokens": 20, "cache_read_input_tokens": 10}
    stop = {"kind": "message_stop", "stop": {"reason": "end_turn", "usage": usage | {"output_tokens_total": 5}}}
    agent.tell({"turn_id": f"trn_{turn}", "model_call_context_id": "mcc_1", "seq": 99, "event": stop})
    agent.add("model_output", turn, stop_reason="end_turn", content_blocks=_says(text))


def _says(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def _error(status: int, code: str, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": text, "code": code}, status=status, headers=headers)
