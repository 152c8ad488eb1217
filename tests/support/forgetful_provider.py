"""A provider that, like the CLI agents, does not repeat its tool calls on a second attempt."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from adapters.contracts import QueryInput
from adapters.events import ProviderEvent
from adapters.providers.scripted import ScriptedProvider, ScriptedQuery


class ForgetfulProvider(ScriptedProvider):
    """Like the CLI agents: on a second attempt it asks for its tools anew, under other ids."""

    manifest = replace(
        ScriptedProvider.manifest,
        adapter_id="forgetful",
        capabilities=replace(ScriptedProvider.manifest.capabilities, replays_steps=False),
    )

    def query(self, given: QueryInput) -> ScriptedQuery:
        return _ForgetfulQuery(given)

    def check(self, options: Mapping[str, Any]) -> None:
        """Takes anything."""


class _ForgetfulQuery(ScriptedQuery):
    async def _use_tool(self, name: str, arguments: dict[str, Any]) -> AsyncIterator[ProviderEvent]:
        self._calls += 100 * self._given.attempt
        async for event in super()._use_tool(name, arguments):
            yield event
