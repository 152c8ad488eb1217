"""Programs that speak the Agent Client Protocol (JSON-RPC on their pipes), all led by one driver.

What differs between them (command line, settings, where they keep a conversation) is a `AcpDriver` of theirs: a thin
description. They read and write files themselves, in the sandbox: nothing of the kind is done for them out here."""

import asyncio
import base64
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from adapters.contracts import ContentBlock, QueryInput
from adapters.errors import ErrorClass, ProviderError, WorkspaceError
from adapters.events import Progress, ProviderEvent
from adapters.providers import catalog
from adapters.providers.cli.acp.driver import AcpDriver, Doors, Launch, Meter, opened_doors
from adapters.providers.cli.json_rpc import METHOD_NOT_FOUND, JsonRpc, RpcError
from adapters.providers.cli.program import Program, place_of
from adapters.providers.cli.query import ProgramQuery, with_trouble
from adapters.sandbox.port import Door
from adapters.station import MCP_SERVER
from adapters.workspace import Workspace

if TYPE_CHECKING:
    from adapters.providers.cli.acp import events as acp_events

PROTOCOL: Final = 1
INVALID_PARAMS: Final = -32602
MAX_EXPLAINED: Final = 3
MAX_IMAGE: Final = 10 << 20


class AcpQuery(ProgramQuery):
    def __init__(self, given: QueryInput, driver: AcpDriver) -> None:
        super().__init__(given)
        self._driver = driver
        self._name: Final = driver.manifest.adapter_id
        self._follow_ups: list[str] = []
        self._refusals: list[str] = []  # to be explained
        self._explained = 0
        self._open = True  # follow-ups are still taken
        self._listener: acp_events.Listener | None = (
            None  # while it is about this attempt: not while it replays old ones
        )
        self._rpc: JsonRpc
        self._session = ""
        self._version = ""
        self._sees_images = False

    async def push(self, text: str) -> bool:
        """Said as soon as the answer under way is there: programs that are asked anew while they work drop what they
        are at, and with it what they have found."""
        if not self._open or self.waits or self.status not in ("starting", "running"):
            return False
        self._follow_ups.append(text)
        return True

    # --- The attempt ---

    async def converse(self) -> None:
        try:
            async with opened_doors(self.given, self._driver) as (doors, opened, meter):
                try:
                    await self._attempt(doors, opened, meter)
                except ProviderError as error:
                    raise (with_trouble(error, meter.admitted) if meter else error) from None
        finally:
            self._open = False

    async def _attempt(self, doors: Doors, opened: list[Door], meter: Meter | None) -> None:
        await asyncio.to_thread(_events)  # whose schema takes most of a second
        launch = await self._driver.launch(self.given, doors)
        async with self.start(
            launch.installation, launch.arguments, env=launch.env, doors=opened, files=launch.files,
            outside=launch.outside,
        ) as program:  # fmt: skip
            await self._lead(program, launch, doors, meter)

    async def _lead(self, program: Program, launch: Launch, doors: Doors, meter: Meter | None) -> None:
        rpc = self._rpc = JsonRpc(program, self._answer, self._hear)
        await rpc.lead(self._talk(rpc, launch, doors, meter))

    async def _talk(self, rpc: JsonRpc, launch: Launch, doors: Doors, meter: Meter | None) -> None:
        try:
            is_new, notes = await self._begin(rpc, launch, doors)
            await self.begin(self._session, self._version)
            for note in filter(None, (*launch.notes, *notes)):
                await self.say(Progress(text=note[:300]))
            said = await self._prompt(launch.prefix if is_new else "")
            ours = frozenset(spec.name for spec in self.given.tools.specs)
            self._listener = _events().Listener(self._name, doors.workspace, ours, self._driver.tool_name)
            while True:
                await self._one_answer(rpc, said, meter)
                if self.waits or not (self._refusals or self._follow_ups):
                    self._open = False
                    return
                said = [_text(self._driver.worded("\n\n".join([*self._refusals, *self._follow_ups])))]
                self._refusals.clear()
                self._follow_ups.clear()
        except RpcError as error:
            raise ProviderError(f"{self._name} refused: {_reason(error)}", ErrorClass.INTERNAL) from None

    async def _begin(self, rpc: JsonRpc, launch: Launch, doors: Doors) -> tuple[bool, list[str]]:
        """A conversation: the one to be continued, else a new one. Whether it is new, and what there is to say."""
        about = await rpc.call(
            "initialize",
            protocolVersion=PROTOCOL,
            clientCapabilities={"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            clientInfo={"name": "longshore", "title": "Longshore", "version": self._driver.manifest.version},
        )
        can = _part(about, "agentCapabilities")
        self._version = launch.version or str(_part(about, "agentInfo").get("version") or "unknown")[:100]
        self._sees_images = bool(_part(can, "promptCapabilities").get("image"))
        if launch.log_in:
            await rpc.call("authenticate", methodId=launch.log_in)
        notes: list[str] = []
        servers = []
        if _part(can, "mcpCapabilities").get("http"):
            headers = [{"name": "Authorization", "value": f"Bearer {doors.tools_token}"}]
            servers = [{"type": "http", "name": MCP_SERVER, "url": doors.tools_url, "headers": headers}]
        else:
            notes.append(f"{self._name} takes no MCP servers over HTTP: it has none of our tools")
        where = {"cwd": doors.workspace, "mcpServers": servers}
        if self.given.continuation:
            try:
                await self._continue(rpc, can, self.given.continuation, where)
            except RpcError as error:
                notes.append(f"{self._name} does not know the conversation any more, and begins anew: {_reason(error)}")
        is_new = not self._session
        if is_new:
            if launch.seed:
                await self._continue(rpc, can, launch.seed, where)
            else:
                await self._new(rpc, where)
        if launch.choose:
            # Also the sign that a conversation laid out again has been retold to its end.
            try:
                await rpc.call("session/set_model", sessionId=self._session, modelId=launch.choose)
            except RpcError as error:
                notes.append(f"{self._name} keeps to a model of its own choice: {_reason(error)}")
        return is_new, notes

    async def _continue(self, rpc: JsonRpc, can: Mapping[str, Any], session: str, where: Mapping[str, Any]) -> None:
        if "resume" in _part(can, "sessionCapabilities"):
            await rpc.call("session/resume", sessionId=session, **where)
        elif can.get("loadSession"):
            await rpc.call("session/load", sessionId=session, **where)
        else:
            raise RpcError(METHOD_NOT_FOUND, "it cannot go on with an old one")
        self._session = session

    async def _new(self, rpc: JsonRpc, where: Mapping[str, Any]) -> None:
        session = _part({"": await rpc.call("session/new", **where)}, "").get("sessionId")
        if not isinstance(session, str) or not session:
            raise ProviderError(f"{self._name} began a conversation without a name", ErrorClass.INTERNAL)
        self._session = session

    async def _one_answer(self, rpc: JsonRpc, said: list[dict[str, Any]], meter: Meter | None) -> None:
        assert self._listener is not None
        told = catalog.Tokens()
        try:
            answer = await rpc.call("session/prompt", sessionId=self._session, prompt=said)
            ended = _events().ending(self._name, answer)
            told = ended.used
        finally:
            await self._report(meter, told)
        if self.waits:
            await self._say_all(self._listener.went_on())
            return
        if ended.reason == "cancelled" or not self._listener.busy:
            raise ProviderError(f"{self._name} said nothing, and ended with {ended.reason}", ErrorClass.INTERNAL)
        if ended.reason != "end_turn":
            await self.say(Progress(text=f"{self._name} ended with {ended.reason}"))
        # What it said without knowing why it may not is no answer yet.
        await self._say_all(self._listener.went_on() if self._refusals else self._listener.answered())

    async def _report(self, meter: Meter | None, told: catalog.Tokens) -> None:
        for report in self._driver.usage(self.given, meter, told):
            await self.say(report)

    # --- What it says and asks ---

    async def _hear(self, method: str, said: Mapping[str, Any]) -> None:
        if self._listener is None or said.get("sessionId") != self._session:
            return
        if method == "session/update":
            await self._say_all(self._listener.hear(said))
        else:
            await self.say(Progress(text=f"{self._name}: {method}"[:200]))

    async def _answer(self, method: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        if method in self._driver.passed_over:
            return {}
        if method != "session/request_permission" or self._listener is None:
            raise RpcError(METHOD_NOT_FOUND, f"nobody here does {method}")
        try:
            asked = self._listener.asked(said)
        except ValueError:
            raise RpcError(INVALID_PARAMS, "the question does not read") from None
        await self._say_all(self._listener.announced(asked.call))
        if asked.ours:
            return asked.option("allow")
        permission = await self.ask(asked.intent)
        if permission.word == "allow":
            return asked.option("allow")
        await self._say_all(self._listener.ended(asked.call, ok=False))
        if permission.word == "deny":
            await self._explain(f"{permission.summary or asked.call.name}: {permission.why}"[:1000])
        else:
            # Before the no, after which it would ask its model what to do about it.
            await self._rpc.notify("session/cancel", sessionId=self._session)
        return asked.option("reject")

    async def _explain(self, why: str) -> None:
        """The protocol's no has no room for a reason: it is told after, but not for ever to who does not listen."""
        await self.say(Progress(text=f"not allowed: {why}"[:300]))
        self._explained += 1
        if self._explained <= MAX_EXPLAINED:
            self._refusals.append(f"[Not allowed: {why}. Go on without it, or say that it cannot be done.]")

    async def _say_all(self, events: Iterable[ProviderEvent]) -> None:
        for event in events:
            await self.say(event)

    # --- What it is told ---

    async def _prompt(self, prefix: str) -> list[dict[str, Any]]:
        blocks = (ContentBlock("text", self.given.prompt),) if isinstance(self.given.prompt, str) else self.given.prompt
        said = [_text(prefix)] if prefix else []
        for block in blocks:
            said.append(_text(self._driver.worded(block.text)) if block.type == "text" else await self._attached(block))
        return said

    async def _attached(self, block: ContentBlock) -> dict[str, Any]:
        named = _text(f"[attached: {place_of(self.given)[0]}/{block.path}]")
        if block.type != "image" or not self._sees_images:
            return named
        workspace = Workspace(Path(self.given.cwd))
        try:
            data = await asyncio.to_thread(workspace.read, block.path, limit=MAX_IMAGE + 1)
        except WorkspaceError:
            return named
        if len(data) > MAX_IMAGE:
            return named
        return {"type": "image", "mimeType": block.media_type, "data": base64.b64encode(data).decode()}


def _events() -> "Any":
    return import_module("adapters.providers.cli.acp.events")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _part(said: Any, name: str) -> Mapping[str, Any]:
    part = said.get(name) if isinstance(said, dict) else None
    return part if isinstance(part, dict) else {}


def _reason(error: RpcError) -> str:
    """Some put the reason beside the message."""
    details = error.data.get("details") if isinstance(error.data, dict) else None
    return (f"{error.message}: {details}" if isinstance(details, str) else error.message)[:300]
