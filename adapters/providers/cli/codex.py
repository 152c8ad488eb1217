"""`codex`: OpenAI's Codex CLI, led over its app-server (JSON-RPC on its pipes).

Its own sandbox cannot be nested in ours and is off; ours is the boundary. It asks before every command and every change
of files, and the fleet's guard answers."""

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any, Final

from adapters.contracts import ContentBlock, Detection, Manifest, QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Progress, ProviderEvent
from adapters.providers import catalog
from adapters.providers.cli import codex_settings
from adapters.providers.cli.codex_events import ADAPTER_ID, MANIFEST, PATCH, SHELL, SILENT, Narration, failure
from adapters.providers.cli.installation import Inspection, detection, find, inspect, note_on
from adapters.providers.cli.json_rpc import METHOD_NOT_FOUND, JsonRpc, RpcError
from adapters.providers.cli.key_proxy import KeyProxy
from adapters.providers.cli.program import Program, place_of, station_of
from adapters.providers.cli.query import ProgramQuery, with_trouble
from adapters.providers.credentials import is_openai, openai_credentials
from adapters.risk import Intent
from adapters.sandbox.port import Door
from adapters.station import MCP_SERVER, Needs, Permission

PROGRAM: Final = "codex"
TRIED: Final = ("0.166.0", "0.166.0")
SERVER: Final = "app-server"
OPTIONS: Final = ("price", "thinking")


class CodexProvider:
    manifest: Manifest = MANIFEST
    needs = Needs(state=(".codex/sessions/*.jsonl",), memory_bytes=200 << 20)

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

    def query(self, given: QueryInput) -> "CodexQuery":
        return CodexQuery(given, self._proxy)

    async def close(self) -> None:
        await self._proxy.close()


class CodexQuery(ProgramQuery):
    def __init__(self, given: QueryInput, proxy: KeyProxy) -> None:
        super().__init__(given)
        self._proxy = proxy
        self._model = given.model or catalog.OPENAI.default
        vendor = catalog.OPENAI if is_openai(openai_credentials().base_url) else catalog.COMPATIBLE
        self._workspace, _ = place_of(given)
        self._narration = Narration(self._model, vendor, given.options, self._workspace)
        self._rpc: JsonRpc | None = None
        self._thread = ""
        self._turn = ""  # the one under way
        self._turn_known = asyncio.Event()
        self._ended: asyncio.Future[Mapping[str, Any]] | None = None
        self._numbers = itertools.count(1)
        self._steering = 0
        self._steered = asyncio.Condition()
        self._open: dict[str, str] = {}  # follow-ups it has taken and not answered, by our id

    # --- Follow-ups ---

    async def push(self, text: str) -> bool:
        """Into the turn under way. Codex refuses it when that has ended; what it has taken and then not looked at is
        said again in a turn of its own (`_turns`)."""
        if self.status in ("starting", "running"):
            await self._turn_known.wait()
        if not self._turn or self._rpc is None or self.waits:
            return False
        number, turn = f"follow-up-{next(self._numbers)}", self._turn
        self._open[number] = text
        self._steering += 1
        try:
            await self._steer(turn, text, number)
        except (RpcError, ProviderError):
            self._open.pop(number, None)
            return False
        finally:
            self._steering -= 1
            async with self._steered:
                self._steered.notify_all()
        return True

    async def _steer(self, turn: str, text: str, number: str | None = None) -> None:
        assert self._rpc is not None
        await self._rpc.call(
            "turn/steer", threadId=self._thread, expectedTurnId=turn, input=[_said(text)], clientUserMessageId=number
        )

    # --- The conversation ---

    async def converse(self) -> None:
        inspection = await _inspected()
        station, given = station_of(self.given), self.given
        async with self._proxy.admit() as admitted, station.tool_doors.open(given.tools) as tools:
            model_port, tool_port = station.sandbox.ports(2)
            try:
                async with self.start(
                    inspection.installation,
                    (SERVER,),
                    env={
                        "RUST_LOG": "error,codex_app_server=off",
                        "NO_COLOR": "1",
                        codex_settings.MODEL_TOKEN: admitted.token,
                        codex_settings.TOOL_TOKEN: tools.token,
                    },
                    doors=(Door(model_port, admitted.socket), Door(tool_port, tools.socket)),
                    files=codex_settings.files(
                        model_port=model_port,
                        tool_port=tool_port,
                        workspace=self._workspace,
                        obey_repository=given.policy.obey_repository,
                    ),
                ) as program:
                    await self._lead(program, inspection)
            except ProviderError as error:
                raise with_trouble(error, admitted) from None
            finally:
                self._turn = ""
                self._turn_known.set()

    async def _lead(self, program: Program, inspection: Inspection) -> None:
        """Talk and listen until one of both is over."""
        self._rpc = JsonRpc(program, self._answer, self._hear, version=False)
        listening = asyncio.create_task(self._rpc.run())
        talking = asyncio.create_task(self._talk(self._rpc, inspection))
        try:
            await asyncio.wait({listening, talking}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                # What broke it is nearer to the truth than that nobody answers any more.
                listening.result()
                if not talking.done() or talking.exception() is not None:
                    raise program.broke(await program.ended())
            talking.result()
        finally:
            for task in (talking, listening):
                task.cancel()
            await asyncio.gather(talking, listening, return_exceptions=True)

    async def _talk(self, rpc: JsonRpc, inspection: Inspection) -> None:
        try:
            await rpc.call(
                "initialize",
                clientInfo={"name": "longshore", "title": "Longshore", "version": MANIFEST.version},
                capabilities={"optOutNotificationMethods": [name for name in SILENT if name not in HEARD]},
            )
            await rpc.notify("initialized")
            await self._find_thread(rpc, inspection)
            await self._turns(rpc)
        except RpcError as error:
            raise ProviderError(f"codex refused: {error.message[:300]}", ErrorClass.INTERNAL) from None

    async def _find_thread(self, rpc: JsonRpc, inspection: Inspection) -> None:
        settings: dict[str, Any] = {
            "cwd": self._workspace,
            "model": self._model,
            "approvalPolicy": "untrusted",
            "approvalsReviewer": "user",
            "sandbox": "danger-full-access",
        }
        if self.given.system_prompt:
            settings["developerInstructions"] = self.given.system_prompt
        notes = [note_on(inspection, TRIED)]
        answer = None
        if self.given.continuation:
            try:
                answer = await rpc.call(
                    "thread/resume", threadId=self.given.continuation, excludeTurns=True, **settings
                )
            except RpcError as error:
                notes.append(f"codex does not know the conversation any more, and begins a new one: {error.message}")
        if answer is None:
            answer = await rpc.call("thread/start", **settings)
        try:
            self._thread = str(answer["thread"]["id"])
        except (LookupError, TypeError):
            raise ProviderError("codex began a conversation without a name", ErrorClass.INTERNAL) from None
        await self.begin(self._thread, inspection.version)
        for note in filter(None, notes):
            await self.say(Progress(text=note[:300]))

    async def _turns(self, rpc: JsonRpc) -> None:
        """The prompt's turn, and one for each follow-up that it took too late to look at."""
        inputs = [_prompt(self.given, self._workspace)]
        while inputs:
            await self._one_turn(rpc, inputs.pop(0))
            async with self._steered:
                await self._steered.wait_for(lambda: not self._steering)
            inputs += [[_said(text)] for text in self._open.values()]
            self._open.clear()
            if self.waits:
                return

    async def _one_turn(self, rpc: JsonRpc, said: list[dict[str, Any]]) -> None:
        self._ended = asyncio.get_running_loop().create_future()
        effort = self.given.options.get("thinking", "off")
        more = {} if effort == "off" else {"effort": effort, "summary": "auto"}
        answer = await rpc.call("turn/start", threadId=self._thread, input=said, **more)
        if not self._ended.done():
            self._turn = str(answer["turn"]["id"])
            self._turn_known.set()
        turn = await self._ended
        self._turn = ""
        if self.waits or turn.get("status") != "completed":
            await self._say_all(self._narration.went_on())
        else:
            await self._say_all(self._narration.answered())
        if not self.waits and turn.get("status") != "completed":
            raise failure(turn.get("error") or {"message": f"the turn is {turn.get('status')}"})

    # --- What it says ---

    async def _hear(self, method: str, said: Mapping[str, Any]) -> None:
        if said.get("threadId", self._thread) != self._thread:
            return
        if method == "turn/completed":
            turn = said.get("turn")
            self._turn = ""  # from here on, a follow-up comes too late
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(turn if isinstance(turn, dict) else {})
            return
        item = said.get("item")
        if isinstance(item, dict):
            await self._follow_up_seen(method, item)
        if self._thread:
            await self._say_all(self._narration.hear(method, said))

    async def _follow_up_seen(self, method: str, item: Mapping[str, Any]) -> None:
        """A follow-up is asked after an answer, or between two steps. Whatever is said after it, answers it."""
        if method == "item/started" and item.get("type") == "userMessage" and item.get("clientId") in self._open:
            await self._say_all(self._narration.answered())
        if method == "item/completed" and item.get("type") == "userMessage":
            self._open.pop(str(item.get("clientId")), None)

    async def _say_all(self, events: Any) -> None:
        event: ProviderEvent
        for event in events:
            await self.say(event)

    # --- What it asks ---

    async def _answer(self, method: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            match method:
                case "item/commandExecution/requestApproval":
                    return {"decision": await self._decide(_command(asked), str(asked.get("turnId")))}
                case "item/fileChange/requestApproval":
                    paths = self._narration.paths.get(str(asked.get("itemId")), ())
                    return {"decision": await self._decide(Intent(PATCH, paths=paths), str(asked.get("turnId")))}
                case "mcpServer/elicitation/request":
                    return await self._elicited(asked)
                case _:
                    raise RpcError(METHOD_NOT_FOUND, f"nobody here answers {method}")
        except RpcError:
            raise
        except Exception as error:
            if self._ended is not None and not self._ended.done():
                self._ended.set_exception(error)
            raise

    async def _decide(self, intent: Intent, turn: str) -> str:
        permission = await self.ask(intent)
        if permission.word == "deny":
            await self._explain(permission, turn)
        return {"allow": "accept", "deny": "decline", "wait": "cancel"}[permission.word]

    async def _explain(self, permission: Permission, turn: str) -> None:
        """Its no has no room for a reason."""
        try:
            await self._steer(turn, f"[Not allowed: {permission.summary}. {permission.why}]")
        except RpcError:
            return  # it has ended meanwhile

    async def _elicited(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Before a tool of an MCP server; ours have approvals of their own."""
        server, meta = str(asked.get("serverName")), asked.get("_meta")
        if not isinstance(meta, dict) or meta.get("codex_approval_kind") != "mcp_tool_call":
            return {"action": "decline"}
        if server == MCP_SERVER:
            return {"action": "accept", "content": {}}
        parameters = meta.get("tool_params")
        intent = Intent(f"mcp__{server}", details=parameters if isinstance(parameters, dict) else {})
        decision = await self._decide(intent, str(asked.get("turnId")))
        return {"action": decision, **({"content": {}} if decision == "accept" else {})}


HEARD: Final = ("item/agentMessage/delta",)


async def _inspected() -> Inspection:
    installation = find(PROGRAM)
    if installation is None:
        raise ProviderError("there is no program `codex`: run `make clis`, or install it", ErrorClass.INVALID_REQUEST)
    try:
        inspection = await inspect(installation)
    except OSError as error:
        raise ProviderError(f"codex does not run: {error}", ErrorClass.INTERNAL) from error
    if inspection.help and not inspection.offers(SERVER):
        raise ProviderError(
            f"codex {inspection.version} has no `{SERVER}`, by which it is led here: install {TRIED[1]} (`make clis`)",
            ErrorClass.INVALID_REQUEST,
        )
    return inspection


def _command(asked: Mapping[str, Any]) -> Intent:
    """A line for the shell, or for a program that already runs in one."""
    network = asked.get("networkApprovalContext")
    url = f"{network.get('protocol', 'https')}://{network.get('host', '')}" if isinstance(network, dict) else ""
    return Intent(SHELL, command=str(asked.get("command") or ""), url=url, details={"folder": asked.get("cwd")})


def _prompt(given: QueryInput, workspace: str) -> list[dict[str, Any]]:
    blocks = (ContentBlock("text", given.prompt),) if isinstance(given.prompt, str) else given.prompt
    return [_block(block, workspace) for block in blocks]


def _block(block: ContentBlock, workspace: str) -> dict[str, Any]:
    match block.type:
        case "text":
            return _said(block.text)
        case "image":
            return {"type": "localImage", "path": f"{workspace}/{block.path}"}
        case _:
            return _said(f"[attached: {workspace}/{block.path}]")


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
