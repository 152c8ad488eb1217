"""One attempt of codex, over its app-server: JSON-RPC on its pipes.

Its own sandbox cannot be nested in ours and is off; ours is the boundary. It asks before every command and every change
of files, and the fleet's guard answers."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from adapters.contracts import QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Progress, ProviderEvent
from adapters.providers import catalog
from adapters.providers.cli.codex import settings as codex_settings
from adapters.providers.cli.codex.events import MANIFEST, SILENT, Narration, change_intent, failure
from adapters.providers.cli.codex.requests import (
    command_intent,
    history_item,
    mcp_intent,
    prompt,
    said,
    thread_settings,
)
from adapters.providers.cli.installation import Inspection, inspected, note_on
from adapters.providers.cli.json_rpc import METHOD_NOT_FOUND, JsonRpc, RpcError
from adapters.providers.cli.key_proxy import KeyProxy
from adapters.providers.cli.program import Program, place_of, station_of
from adapters.providers.cli.query import ProgramQuery, with_trouble
from adapters.providers.cli.usage_seen import used_by_model
from adapters.providers.credentials import is_openai, openai_credentials
from adapters.providers.talking import fits
from adapters.risk import Intent
from adapters.sandbox.port import Door
from adapters.station import MCP_SERVER, Permission

PROGRAM: Final = "codex"
TRIED: Final = ("0.166.0", "0.166.0")
SERVER: Final = "app-server"
TOLD: Final = 300  # characters of what codex says is wrong
UNHEARD: Final = 100
UNREADABLE: Final = Permission("deny", "it does not say what it would do", summary="what nobody can read")


@dataclass
class FollowUp:
    """One that codex has taken. `seen`: the model has it before its eyes."""

    text: str
    seen: bool = False


class CodexQuery(ProgramQuery):
    def __init__(self, given: QueryInput, proxy: KeyProxy) -> None:
        super().__init__(given)
        self._proxy = proxy
        self._model = given.model or catalog.OPENAI.default
        self._workspace = ""
        self._narration = Narration(self._model, catalog.COMPATIBLE, given.options, "")
        self._rpc: JsonRpc | None = None
        self._thread = ""
        self._unheard: list[tuple[str, Mapping[str, Any]]] = []  # told before there is a thread
        self._turn = ""  # the one under way
        self._turn_known = asyncio.Event()
        self._turn_ended: asyncio.Future[Mapping[str, Any]] | None = None
        self._numbers = itertools.count(1)
        self._follow_ups: dict[str, FollowUp] = {}  # not answered yet, by our id
        self._pushing = 0
        self._pushed = asyncio.Condition()

    # --- The conversation ---

    async def converse(self) -> None:
        try:
            inspection = await _inspected()
            station, (self._workspace, _) = station_of(self.given), place_of(self.given)
            vendor = catalog.OPENAI if is_openai(openai_credentials().base_url) else catalog.COMPATIBLE
            self._narration = Narration(self._model, vendor, self.given.options, self._workspace)
            async with self._proxy.admit() as admitted, station.tool_doors.open(self.given.tools) as tools:
                model_port, tool_port = station.sandbox.ports(2)
                settings = codex_settings.files(
                    model_port=model_port,
                    tool_port=tool_port,
                    workspace=self._workspace,
                    obey_repository=self.given.policy.obey_repository,
                )
                env = {
                    codex_settings.MODEL_TOKEN: admitted.token,
                    codex_settings.TOOL_TOKEN: tools.token,
                    "RUST_LOG": "error,codex_app_server=off",  # which misses a sandbox that it does not need
                    "NO_COLOR": "1",
                }
                doors = (Door(model_port, admitted.socket), Door(tool_port, tools.socket))
                try:
                    async with self.start(
                        inspection.installation, (SERVER,), env=env, doors=doors, files=settings
                    ) as program:
                        await self._lead(program, inspection)
                except ProviderError as error:
                    raise with_trouble(error, admitted) from None
                finally:
                    await self._say_all(self._narration.unreported(used_by_model("openai", admitted.answers)))
        finally:
            self._turn = ""
            self._turn_known.set()

    async def _lead(self, program: Program, inspection: Inspection) -> None:
        rpc = self._rpc = JsonRpc(program, self._answer, self._hear, version=False)
        await rpc.lead(self._talk(rpc, inspection))

    async def _talk(self, rpc: JsonRpc, inspection: Inspection) -> None:
        try:
            await rpc.call(
                "initialize",
                clientInfo={"name": "longshore", "title": "Longshore", "version": MANIFEST.version},
                capabilities={"optOutNotificationMethods": list(SILENT)},
            )
            await rpc.notify("initialized")
            await self._find_thread(rpc, inspection)
            await self._take_turns(rpc)
        except RpcError as error:
            # -32600 to -32602: what was asked makes no sense to it, now or later.
            lasting = -32602 <= error.code <= -32600
            raise ProviderError(
                f"codex refused: {error.message[:TOLD]}",
                ErrorClass.INVALID_REQUEST if lasting else ErrorClass.INTERNAL,
            ) from None

    async def _find_thread(self, rpc: JsonRpc, inspection: Inspection) -> None:
        settings = thread_settings(self.given, self._model, self._workspace)
        notes, answer = [note_on(inspection, TRIED)], None
        if self.given.continuation:
            try:
                answer = await rpc.call(
                    "thread/resume", threadId=self.given.continuation, excludeTurns=True, **settings
                )
            except RpcError as error:
                notes.append(f"codex cannot go on with the conversation and begins a new one: {error.message}")
        if answer is None:
            answer = await rpc.call("thread/start", **settings)
        self._thread = _id(answer, "thread")
        await self.begin(self._thread, inspection.version)
        for note in filter(None, notes):
            await self.say(Progress(text=note[:TOLD]))
        unheard, self._unheard = self._unheard, []
        for method, told in unheard:
            await self._hear(method, told)

    async def _take_turns(self, rpc: JsonRpc) -> None:
        """One for the prompt, and one for each follow-up that was taken, but came too late to be answered in it."""
        inputs = [prompt(self.given, self._workspace)]
        while inputs:
            await self._take_turn(rpc, inputs.pop(0))
            async with self._pushed:
                await self._pushed.wait_for(lambda: not self._pushing)
            late = list(self._follow_ups.values())
            self._follow_ups.clear()
            if self.waits:
                await self._leave(rpc, [follow_up.text for follow_up in late if not follow_up.seen])
                return
            inputs += [[said(follow_up.text)] for follow_up in late]

    async def _leave(self, rpc: JsonRpc, texts: list[str]) -> None:
        """Follow-ups for whoever goes on with the conversation when the person has decided."""
        if texts:
            await rpc.call("thread/inject_items", threadId=self._thread, items=[history_item(text) for text in texts])

    async def _take_turn(self, rpc: JsonRpc, words: list[dict[str, Any]]) -> None:
        self._turn_ended = asyncio.get_running_loop().create_future()
        effort = self.given.options.get("thinking", "off")
        more = {} if effort == "off" else {"effort": effort, "summary": "auto"}
        answer = await rpc.call("turn/start", threadId=self._thread, input=words, **more)
        if not self._turn_ended.done():
            self._turn = _id(answer, "turn")
            self._turn_known.set()
        turn = await self._turn_ended
        if self.waits or turn.get("status") != "completed":
            await self._say_all(self._narration.went_on())
        else:
            await self._say_all(self._narration.answered())
        if not self.waits and turn.get("status") != "completed":
            raise failure(turn.get("error") or {"message": f"it says that the turn is {turn.get('status')}"})

    # --- Follow-ups ---

    async def push(self, text: str) -> bool:
        """Into the turn under way. Codex refuses it once that has ended."""
        if self.status in ("starting", "running"):
            await self._turn_known.wait()
        if not self._turn or self._rpc is None or self.waits:
            return False
        number = f"follow-up-{next(self._numbers)}"
        self._follow_ups[number] = FollowUp(text)
        self._pushing += 1
        try:
            await self._steer(self._turn, text, number)
        except (RpcError, ProviderError):
            self._follow_ups.pop(number, None)
            return False
        finally:
            self._pushing -= 1
            async with self._pushed:
                self._pushed.notify_all()
        return True

    async def _steer(self, turn: str, text: str, number: str | None = None) -> None:
        assert self._rpc is not None
        await self._rpc.call(
            "turn/steer", threadId=self._thread, expectedTurnId=turn, input=[said(text)], clientUserMessageId=number
        )

    async def _look_for_follow_ups(self, method: str, item: Mapping[str, Any]) -> None:
        """The model is shown one after an answer, or between two steps; what it does next answers it."""
        if item.get("type") != "userMessage":
            if method == "item/started":
                self._follow_ups = {n: one for n, one in self._follow_ups.items() if not one.seen}
        elif (shown := self._follow_ups.get(str(item.get("clientId")))) and not shown.seen:
            shown.seen = True
            await self._say_all(self._narration.answered())

    # --- What it says ---

    async def _hear(self, method: str, told: Mapping[str, Any]) -> None:
        if not self._thread:
            if len(self._unheard) < UNHEARD and fits(told):
                self._unheard.append((method, told))
            return
        if (told.get("threadId") or self._thread) != self._thread:
            return
        if method == "turn/completed":
            self._turn = ""  # from here on, a follow-up comes too late
            turn = told.get("turn")
            if self._turn_ended is not None and not self._turn_ended.done():
                self._turn_ended.set_result(turn if isinstance(turn, dict) else {})
            return
        if isinstance(item := told.get("item"), dict):
            await self._look_for_follow_ups(method, item)
        await self._say_all(self._narration.hear(method, told))

    async def _say_all(self, events: Iterable[ProviderEvent]) -> None:
        for event in events:
            await self.say(event)

    # --- What it asks ---

    async def _answer(self, method: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            match method:
                case "item/commandExecution/requestApproval":
                    return {"decision": await self._decide(command_intent(asked), asked)}
                case "item/fileChange/requestApproval":
                    change = self._narration.changes.get(str(asked.get("itemId")), {})
                    return {"decision": await self._decide(change_intent(change, self._workspace), asked)}
                case "mcpServer/elicitation/request":
                    intent = mcp_intent(asked)
                    ours = asked.get("serverName") == MCP_SERVER  # they have approvals of their own
                    action = "decline" if intent is None else "accept" if ours else await self._decide(intent, asked)
                    return {"action": action, "content": {} if action == "accept" else None}
                case _:
                    raise RpcError(METHOD_NOT_FOUND, f"nobody here answers {method}")
        except RpcError:
            raise
        except Exception as error:
            if self._turn_ended is not None and not self._turn_ended.done():
                self._turn_ended.set_exception(error)
            raise

    async def _decide(self, intent: Intent | None, asked: Mapping[str, Any]) -> str:
        permission = await self.ask(intent) if intent is not None else UNREADABLE
        if permission.word == "deny":
            # A no has no room for a reason. (The turn may have ended meanwhile.)
            with contextlib.suppress(RpcError):
                await self._steer(str(asked.get("turnId")), f"[Not allowed: {permission.summary}. {permission.why}]")
        return {"allow": "accept", "deny": "decline", "wait": "cancel"}[permission.word]


async def _inspected() -> Inspection:
    inspection = await inspected(PROGRAM)
    if inspection.help and not inspection.offers(SERVER):
        raise ProviderError(
            f"codex {inspection.version} has no `{SERVER}`, by which it is led here: install {TRIED[1]} (`make clis`)",
            ErrorClass.INVALID_REQUEST,
        )
    return inspection


def _id(answer: object, what: str) -> str:
    try:
        return str(answer[what]["id"])  # type: ignore[index]
    except (LookupError, TypeError):
        raise ProviderError(f"codex began a {what} and did not say which", ErrorClass.INTERNAL) from None
