"""`openclaw`: the OpenClaw agent, one program per prompt, with a plug-in of ours in it (`plugin.py`).

It asks before every tool through that plug-in, and the model may not be asked before the plug-in is there. A follow-up
reaches the agent in place of the next tool it wants to use, or in a second run when it has answered."""

import asyncio
import json
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Progress, Result
from adapters.providers import catalog
from adapters.providers.cli.home import pack, unpack
from adapters.providers.cli.installation import Inspection, detection, inspected, note_on
from adapters.providers.cli.key_proxy import KeyProxy, Pass
from adapters.providers.cli.openclaw.events import OUR_TOOLS, Events, end_of, intent, our_line
from adapters.providers.cli.openclaw.plugin import FILES, HELLO
from adapters.providers.cli.openclaw.settings import settings
from adapters.providers.cli.options import check_known, refusal
from adapters.providers.cli.program import Program, place_of, station_of
from adapters.providers.cli.query import ProgramQuery, with_trouble
from adapters.providers.cli.usage_seen import used
from adapters.providers.credentials import is_openai, openai_credentials
from adapters.sandbox.port import Door
from adapters.station import Needs, ToolDoor

ADAPTER_ID: Final = "openclaw"
PROGRAM: Final = "openclaw"
TRIED: Final = ("2026.9.6", "2026.9.6")
MOST_PRINTED: Final = 16 << 20
_STATE: Final = ".openclaw/agents/main/agent/openclaw-agent.sqlite"
_SETTINGS_FILE: Final = ".longshore/openclaw.json"
_PROMPT_FILE: Final = ".longshore/prompt.md"
_CONVERSATION: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_APIS: Final = {"responses": "openai-responses", "chat": "openai-completions"}
# Its own retries take minutes; the fleet reschedules, and holds no slot meanwhile. What is left out here, it can mend:
# a conversation that has grown too long, for one.
_FINAL: Final = (ErrorClass.AUTH, ErrorClass.QUOTA, ErrorClass.RATE_LIMIT, ErrorClass.TRANSPORT)
_NO_PLUGIN: Final = (
    "openclaw did not load the plug-in that asks before its tools run, so it may not ask the model: use the version "
    f"that this driver was tried with ({TRIED[1]}; `make clis`)"
)
_LOST: Final = "the earlier conversation could not be found; this is a new one"


class OpenclawProvider:
    manifest = Manifest(
        adapter_id=ADAPTER_ID,
        version="1",
        vendor="openclaw",
        kind="cli",
        models=catalog.OPENAI.models,
        capabilities=Capabilities(
            streaming=True,
            tools=True,
            resume=True,
            push=True,
            mcp=True,
            approvals=True,
            structured_edits="file_events",
        ),
    )
    default_model = catalog.OPENAI.default
    # A database with the conversation, and what was not yet written into it when the program was ended.
    needs = Needs(state=(_STATE, f"{_STATE}-wal"), memory_bytes=800 << 20, program=PROGRAM)

    def __init__(self) -> None:
        self._proxy = KeyProxy("openai", openai_credentials)

    async def detect(self) -> Detection:
        return await detection(PROGRAM, TRIED, ("agent",))

    def check(self, options: Mapping[str, Any]) -> None:
        check_known(ADAPTER_ID, options, "api", "price")
        if "api" in options and options["api"] not in _APIS:
            raise refusal(f"api: {options['api']!r} is not one of {', '.join(_APIS)}")

    def query(self, given: QueryInput) -> "OpenclawQuery":
        return OpenclawQuery(given, self._proxy)

    async def close(self) -> None:
        await self._proxy.close()


class OpenclawQuery(ProgramQuery):
    def __init__(self, given: QueryInput, proxy: KeyProxy) -> None:
        super().__init__(given)
        self._proxy = proxy
        self._notes: list[str] = []
        self._follow_ups: list[str] = []
        self._takes = True  # follow-ups

    async def push(self, text: str) -> bool:
        if self._takes and not self.waits and self.status in ("starting", "running"):
            self._follow_ups.append(text)
            return True
        return False

    async def converse(self) -> None:
        inspection = await inspected(PROGRAM, ("agent",))
        session = await self._session()
        if note := note_on(inspection, TRIED):
            self._notes.append(note)
        prompt = _text(self.given, place_of(self.given)[0])
        async with self._proxy.admit() as admitted, station_of(self.given).tool_doors.open(self.given.tools) as tools:
            try:
                while prompt:
                    async with self._without_grudge(admitted):
                        await self._run(inspection, session, prompt, admitted, tools)
                    prompt = self._written()
                    self._takes = bool(prompt)
            except ProviderError as error:
                raise with_trouble(error, admitted) from error
            finally:
                self._takes = False
                await self._tell_usage(admitted)

    async def _session(self) -> str:
        """By its number, which is ours to choose: it begins a conversation that it does not know."""
        wanted = self.given.continuation
        if not wanted:
            return str(uuid.uuid4())
        if not await asyncio.to_thread((station_of(self.given).home / _STATE).is_file):
            self._notes.append(_LOST)
        return wanted if _CONVERSATION.fullmatch(wanted) else str(uuid.uuid4())

    @asynccontextmanager
    async def _without_grudge(self, admitted: Pass) -> AsyncIterator[None]:
        """A refused key is noted in the same database, and the next runs would not even ask: what it remembers is put
        back to what it was."""
        home = station_of(self.given).home
        before = await asyncio.to_thread(pack, home, OpenclawProvider.needs.state)
        try:
            yield
        finally:
            if admitted.trouble and admitted.trouble.error_class in (ErrorClass.AUTH, ErrorClass.QUOTA):
                await asyncio.to_thread(_put_back, home, before)

    async def _run(self, inspection: Inspection, session: str, prompt: str, admitted: Pass, tools: ToolDoor) -> None:
        workspace, home = place_of(self.given)
        model_port, tool_port = station_of(self.given).sandbox.ports(2)
        config = settings(
            self.given,
            model=self.given.model or OpenclawProvider.default_model,
            api=_api(self.given.options),
            model_url=f"http://127.0.0.1:{model_port}/v1",
            key=admitted.token,
            tools_url=f"http://127.0.0.1:{tool_port}/mcp",
            tools_token=tools.token,
            workspace=workspace,
            home=home,
            vendor=_vendor(),
        )
        admitted.closed = _NO_PLUGIN
        async with self.start(
            inspection.installation,
            _arguments(inspection, session, home, prompt),
            env={
                "OPENCLAW_CONFIG_PATH": f"{home}/{_SETTINGS_FILE}",
                "OPENCLAW_STATE_DIR": f"{home}/.openclaw",
                "OPENCLAW_NO_RESPAWN": "1",
                "OPENCLAW_NO_AUTO_UPDATE": "1",
                "OPENCLAW_TRAJECTORY": "0",  # else each prompt is kept a second time
                "DO_NOT_TRACK": "1",
                "NO_COLOR": "1",
                "NODE_DISABLE_COMPILE_CACHE": "1",  # which would be written into a /tmp that ends with it
            },
            doors=(Door(model_port, admitted.socket), Door(tool_port, tools.socket)),
            files={**FILES, _SETTINGS_FILE: json.dumps(config), _PROMPT_FILE: prompt},
            # A file .env where it begins would be its environment.
            outside=True,
        ) as program:
            await self.begin(session, inspection.version)
            while self._notes:
                await self.say(Progress(text=self._notes.pop(0)))
            await self._listen(program, admitted, workspace)

    async def _listen(self, program: Program, admitted: Pass, workspace: str) -> None:
        events, printed = Events(workspace), ""
        async for line in program.lines():
            said = our_line(line)
            if said is None:
                printed += f"{line}\n"
                if len(printed) > MOST_PRINTED:
                    raise ProviderError(f"openclaw printed more than {MOST_PRINTED >> 20} MB", ErrorClass.INTERNAL)
            elif said.get("ask") == HELLO:
                admitted.closed = ""
                await program.write({"id": HELLO})
            elif "ask" in said:
                await self._answer(program, said, workspace)
            elif "model" in said:
                if self.waits:
                    return  # the refusal is in its memory now
                if said["model"] == "failed" and admitted.trouble and admitted.trouble.error_class in _FINAL:
                    raise admitted.trouble
            elif isinstance(data := said.get("data"), dict):
                for event in events.take(str(said.get("stream")), data):
                    await self.say(event)
        if self.waits:
            return
        code = await program.ended()
        end = end_of(printed) if not admitted.closed else None
        if end is None or (code and not end.error):
            raise program.broke(code)
        if end.error:
            raise ProviderError(f"openclaw: {end.error}", ErrorClass.INTERNAL)
        if end.text:
            for event in events.whole(Result(text=end.text)):
                await self.say(event)

    async def _answer(self, program: Program, said: Mapping[str, Any], workspace: str) -> None:
        tool, params = str(said.get("tool")), said.get("params")
        word, why = await self._permit(tool, params if isinstance(params, dict) else {}, workspace)
        if word != "allow" and self._follow_ups:
            why = f"{why}; and the user has written meanwhile: {self._written()}"
        await program.write({"id": said["ask"], "word": word, "why": why})

    async def _permit(self, tool: str, params: Mapping[str, Any], workspace: str) -> tuple[str, str]:
        if self.waits:
            return "deny", "something else waits for a person; stop here"
        if self._follow_ups:
            return "deny", "this was not run"
        if tool.startswith(OUR_TOOLS):  # which ask for themselves
            return "allow", ""
        permission = await self.ask(intent(tool, params, workspace))
        return permission.word, permission.why or "this is not allowed here"

    def _written(self) -> str:
        texts, self._follow_ups = self._follow_ups, []
        return "\n\n".join(texts)

    async def _tell_usage(self, admitted: Pass) -> None:
        if admitted.answers:
            model = self.given.model or OpenclawProvider.default_model
            counted = used("openai", admitted.answers)
            await self.say(catalog.usage_report(_vendor(), model, counted, self.given.options))


def _arguments(inspection: Inspection, session: str, home: str, prompt: str) -> list[str]:
    arguments = ["agent", "--local", "--session-id", session]
    if inspection.offers("--json"):
        arguments += ["--json"]
    if inspection.offers("--message-file"):
        return [*arguments, "--message-file", f"{home}/{_PROMPT_FILE}"]
    return [*arguments, "--message", prompt]


def _api(options: Mapping[str, Any]) -> str:
    usual = "responses" if is_openai(openai_credentials().base_url) else "chat"
    return _APIS[str(options.get("api") or usual)]


def _vendor() -> catalog.Vendor:
    return catalog.OPENAI if is_openai(openai_credentials().base_url) else catalog.COMPATIBLE


def _text(given: QueryInput, workspace: str) -> str:
    """Pictures are named: it has no way to be handed one."""
    if isinstance(given.prompt, str):
        return given.prompt
    return "\n\n".join(
        block.text if block.type == "text" else f"[attached {block.type}: {Path(workspace, block.path)}]"
        for block in given.prompt
    )


def _put_back(home: Path, packed: bytes) -> None:
    folder = home / _STATE.partition("/")[0]
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    unpack(packed, home)
