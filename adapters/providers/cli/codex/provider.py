"""`codex`: OpenAI's Codex CLI, led over its app-server (`query.py`)."""

from collections.abc import Mapping
from typing import Any

from adapters.contracts import Detection, Manifest, QueryInput
from adapters.providers.cli.codex.events import ADAPTER_ID, MANIFEST
from adapters.providers.cli.codex.query import PROGRAM, TRIED, CodexQuery
from adapters.providers.cli.installation import detection
from adapters.providers.cli.key_proxy import KeyProxy
from adapters.providers.cli.options import check_known
from adapters.providers.credentials import openai_credentials
from adapters.station import Needs


class CodexProvider:
    manifest: Manifest = MANIFEST
    needs = Needs(state=(".codex/sessions/*.jsonl",), memory_bytes=200 << 20, program=PROGRAM)

    def __init__(self) -> None:
        self._proxy = KeyProxy("openai", openai_credentials)

    async def detect(self) -> Detection:
        return await detection(PROGRAM, TRIED)

    def check(self, options: Mapping[str, Any]) -> None:
        check_known(ADAPTER_ID, options, "price", "thinking")

    def query(self, given: QueryInput) -> CodexQuery:
        return CodexQuery(given, self._proxy)

    async def close(self) -> None:
        await self._proxy.close()
