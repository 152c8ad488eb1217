"""`codex`: OpenAI's Codex CLI, led over its app-server (`query.py`)."""

from collections.abc import Mapping
from typing import Any, Final

from adapters.contracts import Detection, Manifest, QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.providers import catalog
from adapters.providers.cli.codex.events import ADAPTER_ID, MANIFEST
from adapters.providers.cli.codex.query import PROGRAM, TRIED, CodexQuery
from adapters.providers.cli.installation import detection
from adapters.providers.cli.key_proxy import KeyProxy
from adapters.providers.credentials import openai_credentials
from adapters.station import Needs

OPTIONS: Final = ("price", "thinking")


class CodexProvider:
    manifest: Manifest = MANIFEST
    needs = Needs(state=(".codex/sessions/*.jsonl",), memory_bytes=200 << 20, program=PROGRAM)

    def __init__(self) -> None:
        self._proxy = KeyProxy("openai", openai_credentials)

    async def detect(self) -> Detection:
        return await detection(PROGRAM, TRIED)

    def check(self, options: Mapping[str, Any]) -> None:
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise ProviderError(
                f"the {ADAPTER_ID} provider has no option {', '.join(unknown)}; it has: {', '.join(OPTIONS)}",
                ErrorClass.INVALID_REQUEST,
            )
        catalog.check_options(ADAPTER_ID, options)

    def query(self, given: QueryInput) -> CodexQuery:
        return CodexQuery(given, self._proxy)

    async def close(self) -> None:
        await self._proxy.close()
