"""The provider contract on the API providers: unmodified SDKs, our tool loop over them, real HTTP, three wires."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from adapters.contracts import Detection, Manifest, QueryInput, ToolBox
from adapters.errors import ErrorClass
from adapters.model_port import ModelProvider
from adapters.providers.anthropic import AnthropicProvider
from adapters.providers.conformance import CHECKS, Check, NotApplicable, ProbeBox, Work, run_check
from adapters.providers.openai import OpenAIProvider
from adapters.transcript import Item
from tests.support.model_api import Call, ModelApi, drip, garbage, hang, refuse, reply, rule, script, stall
from workers.notebook import MemoryNotebook
from workers.tool_loop import ToolLoop

SCRIPT = script(
    rule("answer", "Good morning to you"),
    rule("resume", "Good morning again"),
    rule("tool", reply("Let me see.", Call("probe", {})), "the probe says {result}"),
    rule("listen", "One moment, I am listening"),
)
FAULTS = (
    hang(when="slow", times=None),
    stall(300, when="hang", times=None),
    garbage("json", when="crash", times=None),
    refuse("rate_limited", retry_after=7, when="fail", times=None),
    drip(0.02, 200, when="listen", times=None),
)


class LoopedProvider:
    """A model provider with our loop around it, whose conversations are kept in memory."""

    def __init__(self, model: ModelProvider) -> None:
        self._model = model
        self._loops: dict[str, ToolLoop] = {}

    @property
    def manifest(self) -> Manifest:
        return self._model.manifest

    async def detect(self) -> Detection:
        return await self._model.detect()

    def check(self, options: Mapping[str, Any]) -> None:
        self._model.check(options)

    def query(self, given: QueryInput) -> ToolLoop:
        name = given.continuation or f"conversation-{len(self._loops)}"
        history: tuple[Item, ...] = tuple(self._loops[name].said) if name in self._loops else ()
        loop = ToolLoop(self._model, given, MemoryNotebook(str(given.prompt), name, history))
        self._loops[name] = loop
        return loop


class ApiHarness:
    patience = 10.0
    failure_class = ErrorClass.RATE_LIMIT

    def __init__(self, model: ModelProvider, options: Mapping[str, Any], folder: Path) -> None:
        self.provider = LoopedProvider(model)
        self.good_options: Mapping[str, Any] = {"max_tokens": 1000, "thinking": "low", "iterations": 3, **options}
        self.bad_options: Mapping[str, tuple[Mapping[str, Any], str]] = {
            "an option it does not have": ({"temperature": 1}, "temperature"),
            "a negative limit": ({"max_tokens": -1}, "max_tokens"),
            "a way of thinking it does not know": ({"thinking": "hard"}, "thinking"),
            "a price in words": ({"price": "cheap"}, "price"),
        }
        self._options = options
        self._folder = folder

    def given(self, work: Work, tools: ToolBox) -> QueryInput:
        return QueryInput(prompt=work, tools=tools, cwd=str(self._folder), options=self._options)


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with ModelApi(SCRIPT) as server:
        for vendor, url in (("ANTHROPIC", server.url), ("OPENAI", server.openai_url)):
            monkeypatch.setenv(f"{vendor}_API_KEY", f"fake-key-{vendor}")
            monkeypatch.setenv(f"{vendor}_BASE_URL", url)
        server.fail(*FAULTS)
        yield server
        assert server.problems == []


@pytest.fixture(params=["anthropic", "responses", "chat"])
async def harness(request: pytest.FixtureRequest, api: ModelApi, tmp_path: Path) -> AsyncIterator[ApiHarness]:
    model: ModelProvider = AnthropicProvider() if request.param == "anthropic" else OpenAIProvider()
    yield ApiHarness(model, {} if request.param == "anthropic" else {"api": request.param}, tmp_path)
    await model.close()


@pytest.mark.spec("P15", "P3", "P4")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_api_providers_keep_the_contract(check: Check, harness: ApiHarness) -> None:
    outcome = await run_check(check, harness)
    if isinstance(outcome, NotApplicable):
        # They edit no files and ask no approvals of their own: our tools do.
        assert check.name in ("reports_the_file_it_edits", "asks_before_what_is_risky")


@pytest.mark.spec("P15", "P17")
async def test_a_resumed_conversation_has_what_was_said_before(harness: ApiHarness, api: ModelApi) -> None:
    first = harness.provider.query(harness.given("tool", ProbeBox()))
    [started, *_] = [event async for event in first.events]
    again = harness.provider.query(QueryInput(prompt="resume", tools=ProbeBox(), continuation=started.continuation))  # type: ignore[union-attr]
    assert [event.type async for event in again.events][-1] == "result"
    sent = json.dumps(api.bodies[-1])
    assert "marmalade" in sent
    assert "the probe says marmalade" in sent
