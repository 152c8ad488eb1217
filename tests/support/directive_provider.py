"""An agent of the program kind without a program: it keeps a diary in its home and does what its prompts say, word for
word. For tests of the fleet around programs; the real ones have the provider contract.

Words in a prompt: `use TOOL {json}` calls a tool of ours over MCP, `want COMMAND [in FOLDER] [plus COMMAND]` asks
before it runs commands, `answer TEXT` gives an answer on the way, `write FILE` writes it and says nothing of it,
`listen` waits for a follow-up, `break` fails with a rate limit, `stay` never ends. The last answer is the diary."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Result, ToolCall, ToolResult, UsageReport
from adapters.providers.cli.program import station_of
from adapters.providers.cli.query import ProgramQuery
from adapters.risk import Intent
from adapters.station import Needs, ToolDoor

_WORDS = re.compile(r"^(use|want|answer|write|listen|break|stay)\b ?(.*)$", re.MULTILINE)


class Diarist:
    manifest = Manifest(
        "diarist", "1", "tests", "cli", Capabilities(tools=True, resume=True, push=True, mcp=True, approvals=True)
    )
    needs = Needs(state=("diary/*.json",), memory_bytes=1 << 20)

    def __init__(self) -> None:
        self.done: list[str] = []  # commands it was allowed to run
        self.breaks = 0  # so often `break` means it
        self.queries: list[DiaristQuery] = []

    async def detect(self) -> Detection:
        return Detection(True, "1")

    def check(self, options: Mapping[str, Any]) -> None: ...

    def query(self, given: QueryInput) -> "DiaristQuery":
        self.queries.append(DiaristQuery(self, given))
        return self.queries[-1]

    async def close(self) -> None: ...


class DiaristQuery(ProgramQuery):
    def __init__(self, diarist: Diarist, given: QueryInput) -> None:
        super().__init__(given)
        self._diarist = diarist
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._listens = False
        self.listening = asyncio.Event()

    async def push(self, text: str) -> bool:
        if not self._listens:
            return False
        self._listens = False
        self._heard.put_nowait(text)
        return True

    async def converse(self) -> None:
        prompt = str(self.given.prompt)
        name = self.given.continuation or "dear-diary"
        self._listens = "\nlisten" in f"\n{_said(prompt)}"
        await self.begin(name, "1.2.3")
        folder = station_of(self.given).home / "diary"
        folder.mkdir(exist_ok=True)
        page = folder / f"{name}.json"
        diary = json.loads(page.read_text()) if page.exists() else []
        diary.append(_said(prompt))
        page.write_text(json.dumps(diary))
        async with station_of(self.given).tool_doors.open(self.given.tools) as door:
            for number, (word, rest) in enumerate(_WORDS.findall(_said(prompt))):
                diary.append(await self._do(door, f"d{number}", word, rest))
                page.write_text(json.dumps(diary))
                if self.waits:
                    return
        await self.say(UsageReport(model="ink", input_tokens=3, output_tokens=4, cost_usd=0.25))
        await self.say(Result(text=" | ".join(diary)))

    async def _do(self, door: ToolDoor, call_id: str, word: str, rest: str) -> str:
        match word:
            case "use":
                tool, _, arguments = rest.partition(" ")
                await self.say(ToolCall(id=call_id, name=tool))
                async with _client(door) as client:
                    said = await client.call_tool(tool, json.loads(arguments or "{}"))
                await self.say(ToolResult(id=call_id, name=tool, ok=not said.is_error))
                return "; ".join(getattr(block, "text", "") for block in said.content)
            case "want":
                return ", ".join(await asyncio.gather(*map(self._want, rest.split(" plus "))))
            case "answer":
                await self.say(Result(text=rest))
            case "write":
                (Path(self.given.cwd) / rest).write_text("written")
            case "listen":
                self.listening.set()
                return _said(await self._heard.get())
            case "break" if self._diarist.breaks:
                self._diarist.breaks -= 1
                raise ProviderError("slow down", ErrorClass.RATE_LIMIT, 0.05)
            case "stay":
                self.listening.set()
                await asyncio.Event().wait()
        return ""

    async def _want(self, wish: str) -> str:
        command, _, folder = wish.partition(" in ")
        permission = await self.ask(Intent("Shell", command=command, details={"folder": folder}))
        if permission.word == "allow":
            self._diarist.done.append(wish)
        return permission.word


@asynccontextmanager
async def _client(door: ToolDoor) -> AsyncIterator[Client]:
    transport = httpx2.AsyncHTTPTransport(uds=str(door.socket))
    headers = {"Authorization": f"Bearer {door.token}"}
    async with (
        # As patient as real programs are: httpx2's own five seconds are short on a busy machine.
        httpx2.AsyncClient(transport=transport, headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client("http://localhost/mcp", http_client=http)) as client,
    ):
        yield client


def _said(prompt: str) -> str:
    """The words within the fleet's marks around a message."""
    return re.sub(r"</?message[^>]*>", "", prompt).strip()
