"""One turn of ten tool calls in seven rounds, some of them parallel, then an answer: with a real provider against a
stand-in of its API. Only the turn is in the process that is killed; what it said is delivered afterwards."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import update

from adapters.actions import Send
from adapters.channel_port import Channel
from adapters.events import TextDelta, Thinking
from adapters.model_port import AnyProvider, ModelProvider, ModelReply, ModelRequest
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool, ToolContext
from models import Session
from tests.support.boundaries.channel import LastingChannel
from tests.support.boundaries.faults import TOOLBOX_FAULTS
from tests.support.boundaries.ledger_turns import TurnEvidence
from tests.support.boundaries.marks import ARRIVED, ASKING, FIRST_PIECE, Case, Marks
from tests.support.boundaries.plan_turns import TOOLS, PlannedTool
from tests.support.boundaries.scenario import Scenario, pass_time
from tests.support.fleet import Fleet
from tests.support.model_api import ModelApi
from workers import delivery

# The provider and its options, by the wire it speaks.
WIRES: dict[str, tuple[str, dict[str, str]]] = {
    "anthropic": ("anthropic", {}),
    "responses": ("openai", {"api": "responses"}),
    "chat": ("openai", {"api": "chat"}),
}


class NoArguments(BaseModel):
    """None are needed."""


def make_tool(planned: PlannedTool, effects: Path) -> Tool[NoArguments]:
    async def handler(arguments: NoArguments, context: ToolContext) -> str | Send:
        with effects.open("a") as file:
            file.write(f"{planned.name}\n")
        if planned.seconds:
            await asyncio.sleep(planned.seconds)
        return Send({"text": planned.note}) if planned.sends else planned.result

    return Tool(planned.name, "Does its part.", NoArguments, handler, idempotent=planned.idempotent)


def mark_stream(provider: ModelProvider, mark: Callable[[str], None]) -> None:
    """What happens within each model call of a provider."""
    stream = provider.stream
    calls = 0

    async def marked(request: ModelRequest) -> AsyncGenerator[TextDelta | Thinking | ModelReply | None, None]:
        nonlocal calls
        calls += 1
        number, said = calls, False
        mark(f"{ASKING}{number}")
        pieces = stream(request)
        try:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    mark(f"{ARRIVED}{number}")
                elif isinstance(piece, TextDelta) and not said:
                    said = True
                    mark(f"{FIRST_PIECE}{number}")
                yield piece
        finally:
            await pieces.aclose()

    provider.stream = marked  # type: ignore[method-assign]


class Turns(Scenario[TurnEvidence]):
    """`wire`: who is asked, and how. `then`: the provider that goes on after a death, if it is another."""

    name = "turns"
    faults = TOOLBOX_FAULTS
    warm_ups = tuple({"wire": wire} for wire in WIRES)
    evidence = TurnEvidence

    def __init__(self, api: ModelApi | None = None) -> None:
        if api is not None:
            self._api = api
            self.environment = {
                "SSL_CERT_DIR": "/",  # nobody speaks TLS here, and to read all certificates took a fifth of a life
                "ANTHROPIC_API_KEY": "fake-key-anthropic", "ANTHROPIC_BASE_URL": api.url,
                "OPENAI_API_KEY": "fake-key-openai", "OPENAI_BASE_URL": f"{api.url}/v1",
            }  # fmt: skip

    async def prepare(self, fleet: Fleet, case: Case) -> None:
        provider, options = WIRES[case.options["wire"]]
        priced = {"price": {"input": 1.0, "output": 5.0}, **options}
        config = {"provider_options": priced, "budget": {"daily_usd": 1000.0}}
        await fleet.add_group(provider=provider, config=config)
        await fleet.send(f"go {case.name}")

    async def after_death(self, fleet: Fleet, case: Case) -> None:
        await pass_time(fleet)
        if then := case.options.get("then"):
            await fleet.execute(update(Session).values(provider=then))

    async def gather(self, found: TurnEvidence, fleet: Fleet, case: Case) -> None:
        fleet.runtime.registry.channels = Drivers[Channel]("channel", {"local": LastingChannel(case.shown)})
        for row in await fleet.outbox():
            await delivery.send(fleet.runtime, row.id)
        asked = [one for one in self._api.requests if one.conversation and case.name in one.conversation.text]
        found.requests = [one.body for one in asked]
        found.problems = [problem for one in asked for problem in one.problems]

    def registry(self, case: Case, mark: Marks) -> Registry:
        from adapters.providers.anthropic import AnthropicProvider  # heavy, and only workers speak to vendors
        from adapters.providers.openai import OpenAIProvider

        providers: dict[str, AnyProvider] = {"anthropic": AnthropicProvider(), "openai": OpenAIProvider()}
        for provider in providers.values():
            assert isinstance(provider, ModelProvider)
            mark_stream(provider, mark)
        tools = {tool.name: make_tool(tool, case.effects) for tool in TOOLS}
        return Registry(Drivers("provider", providers), tools=Drivers[Tool[Any]]("tool", tools))

    async def run(self, fleet: Fleet, case: Case) -> None:
        [session] = await fleet.sessions()
        await fleet.wake(session.id, session.provider or WIRES[case.options["wire"]][0])


SCENARIO = Turns
