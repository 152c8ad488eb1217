"""`claude-code`: Anthropic's Claude Code, led by lines of JSON on its pipes.

It asks before every command and every file, and the fleet's guard answers. Nothing in the workspace is obeyed as
settings, hooks or MCP servers unless the group's policy says so (`settings.py`)."""

import asyncio
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from adapters.contracts import Capabilities, ContentBlock, Detection, Manifest, QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Message, Progress, Result, UsageReport
from adapters.providers import catalog
from adapters.providers.cli.claude import settings as claude_settings
from adapters.providers.cli.claude.events import OUR_TOOLS, Reader, answered, failure, intent, is_lost, results
from adapters.providers.cli.installation import Inspection, detection, inspected, note_on
from adapters.providers.cli.key_proxy import KeyProxy, Pass
from adapters.providers.cli.options import check_none
from adapters.providers.cli.program import Program, place_of, station_of
from adapters.providers.cli.query import ProgramQuery, with_trouble
from adapters.providers.cli.usage_seen import beyond, in_all, used_by_model
from adapters.providers.credentials import anthropic_credentials
from adapters.sandbox.port import Door
from adapters.station import Needs, ToolDoor

ADAPTER_ID: Final = "claude-code"
PROGRAM: Final = "claude"
TRIED: Final = ("2.1.325", "2.1.325")
PARTING_SECONDS: Final = 10.0  # to end by itself after its answer, or after it was told to stop
LOST: Final = "the earlier conversation could not be found; this is a new one"
_CONVERSATION: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ClaudeCodeProvider:
    manifest = Manifest(
        adapter_id=ADAPTER_ID,
        version="1",
        vendor="anthropic",
        kind="cli",
        models=catalog.ANTHROPIC.models,
        capabilities=Capabilities(
            streaming=True,
            tools=True,
            resume=True,
            push=True,
            images=True,
            pdfs=True,
            mcp=True,
            approvals=True,
            structured_edits="file_events",
        ),
    )
    default_model = catalog.ANTHROPIC.default
    # Only whole conversations: those of its helpers, which lie a folder deeper, have no such names.
    needs = Needs(
        state=(f".claude/projects/*/{'?' * 8}-{'?' * 4}-{'?' * 4}-{'?' * 4}-{'?' * 12}.jsonl",),
        memory_bytes=350 << 20,
        program=PROGRAM,
    )

    def __init__(self) -> None:
        self._proxy = KeyProxy("anthropic", anthropic_credentials)

    async def detect(self) -> Detection:
        return await detection(PROGRAM, TRIED)

    def check(self, options: Mapping[str, Any]) -> None:
        check_none(ADAPTER_ID, options)

    def query(self, given: QueryInput) -> "ClaudeCodeQuery":
        return ClaudeCodeQuery(given, self._proxy)

    async def close(self) -> None:
        await self._proxy.close()


class ClaudeCodeQuery(ProgramQuery):
    def __init__(self, given: QueryInput, proxy: KeyProxy) -> None:
        super().__init__(given)
        self._proxy = proxy
        self._program: Program | None = None  # while it listens
        self._unanswered: dict[str, None] = {}  # prompts, by the ids we gave them, in order
        self._taken: set[str] = set()  # of these, the ones the model has been shown
        self._refused = ""  # the tool call that waits for a person
        self._notes: list[str] = []
        self._told: dict[str, catalog.Tokens] = {}  # what it says it has used, by model

    # --- Follow-ups ---

    async def push(self, text: str) -> bool:
        if self._program is None:
            return False
        message = self._asked([_said(text)])
        if await self._program.write(message):
            return True
        self._unanswered.pop(message["uuid"], None)
        return False

    def _asked(self, content: list[dict[str, Any]]) -> dict[str, Any]:
        """It counts before it is written: from here on the program is not let go before it has answered."""
        number = str(uuid.uuid4())
        self._unanswered[number] = None
        return {"type": "user", "uuid": number, "message": {"role": "user", "content": content}}

    def _settle(self, result: Mapping[str, Any]) -> None:
        """Take off what it has answered: at least what it was asked first."""
        told = self._taken | answered(result)
        left = {number: None for number in self._unanswered if number not in told}
        if len(left) == len(self._unanswered):
            left.pop(next(iter(left), ""), None)
        self._unanswered = left

    # --- The conversation ---

    async def converse(self) -> None:
        inspection = await _inspected()
        if note := note_on(inspection, TRIED):
            self._notes.append(note)
        known = self._known_conversation()
        async with self._proxy.admit() as admitted, station_of(self.given).tool_doors.open(self.given.tools) as tools:
            try:
                if not await self._run(inspection, known, admitted, tools):
                    self._notes.append(LOST)
                    await self._run(inspection, None, admitted, tools)
            finally:
                await self._tell_rest(admitted)

    async def _tell_rest(self, admitted: Pass) -> None:
        """What its model's server has counted and it has not told: whatever it starts can ask the model as well."""
        seen = used_by_model("anthropic", admitted.answers)
        other = next((model for model in seen if model and model not in self._told), self.given.model)
        for _, used in beyond({"": in_all(seen.values())}, {"": in_all(self._told.values())}):
            await self.say(catalog.usage_report(catalog.ANTHROPIC, other or catalog.ANTHROPIC.default, used, {}))

    def _known_conversation(self) -> str | None:
        """None: it begins anew, because it was not asked to go on or cannot."""
        wanted = self.given.continuation
        if wanted is None:
            return None
        projects = station_of(self.given).home / ".claude" / "projects"
        if _CONVERSATION.fullmatch(wanted) and any(projects.glob(f"*/{wanted}.jsonl")):
            return wanted
        self._notes.append(LOST)
        return None

    async def _run(self, inspection: Inspection, known: str | None, admitted: Pass, tools: ToolDoor) -> bool:
        """False: the program does not know the conversation after all."""
        sandbox, (workspace, home) = station_of(self.given).sandbox, place_of(self.given)
        model_port, tool_port = sandbox.ports(2)
        async with self.start(
            inspection.installation,
            [*claude_settings.arguments(self.given, inspection, home), *(("--resume", known) if known else ())],
            env=claude_settings.environment(model_port, admitted.token, home),
            doors=(Door(model_port, admitted.socket), Door(tool_port, tools.socket)),
            files=claude_settings.files(self.given, tool_port, tools.token),
        ) as program:
            try:
                return await self._talk(program, inspection, workspace)
            except ProviderError as error:
                raise with_trouble(error, admitted) from error
            finally:
                self._program = None

    async def _talk(self, program: Program, inspection: Inspection, workspace: str) -> bool:
        reader, clock = Reader(workspace), asyncio.timeout(None)
        self._unanswered = {}
        await program.write(self._asked(_content(self.given, workspace)))
        # Without its word on what it has taken, nobody knows whether a follow-up was answered.
        self._program = program if inspection.offers("--replay-user-messages") else None
        try:
            async with clock:
                async for message in program.messages():
                    if is_lost(message) and self.given.continuation:
                        return False
                    await self._hear(message, reader, program, inspection.version, workspace)
                    if self.waits or not self._unanswered:
                        self._program = None  # whoever pushes now comes too late
                        if clock.when() is None:
                            clock.reschedule(asyncio.get_running_loop().time() + PARTING_SECONDS)
                        if message.get("type") == "result":
                            program.close_input()
        except TimeoutError:
            if not clock.expired():
                raise
        for event in reader.rest():
            await self.say(event)
        if self._unanswered and not self.waits:
            raise program.broke(await program.ended())
        return True

    async def _hear(
        self, message: Mapping[str, Any], reader: Reader, program: Program, version: str, workspace: str
    ) -> None:
        if message.get("type") == "control_request":
            await self._answer(message, program, workspace)
            return
        if isinstance(conversation := message.get("session_id"), str):
            await self.begin(conversation, version)
            while self._notes:
                await self.say(Progress(text=self._notes.pop(0)))
        if message.get("type") == "user":
            self._taken |= answered(message)
        for event in reader.take(message):
            if isinstance(event, UsageReport):
                self._told[event.model or ""] = in_all(
                    [self._told.get(event.model or "", catalog.Tokens()), _tokens(event)]
                )
            # Quicker than the interruption: said on the way, for the turn is not over.
            await self.say(Message(text=event.text) if self.waits and isinstance(event, Result) else event)
        if message.get("type") == "result":
            if not self.waits and (error := failure(message)):
                raise error
            self._settle(message)
        if self._refused and self._refused in results(message):
            # Not before: interrupted earlier, it would note down that a person said no.
            await program.write(
                {"type": "control_request", "request_id": str(uuid.uuid4()), "request": {"subtype": "interrupt"}}
            )

    async def _answer(self, message: Mapping[str, Any], program: Program, workspace: str) -> None:
        """What it asks of us: whether it may use a tool, and (which version ever) maybe more."""
        number, request = message.get("request_id"), message.get("request")
        if isinstance(request, dict) and request.get("subtype") == "can_use_tool":
            response = {"subtype": "success", "request_id": number, "response": await self._permit(request, workspace)}
        else:
            response = {"subtype": "error", "request_id": number, "error": "this is not answered here"}
        await program.write({"type": "control_response", "response": response})

    async def _permit(self, request: Mapping[str, Any], workspace: str) -> dict[str, Any]:
        tool, given = str(request.get("tool_name")), request.get("input")
        given = given if isinstance(given, dict) else {}
        if self.waits:
            return {"behavior": "deny", "message": "something else waits for a person; stop here"}
        if not tool.startswith(OUR_TOOLS):  # ours ask for themselves
            permission = await self.ask(intent(tool, given, workspace))
            if permission.word != "allow":
                self._refused = str(request.get("tool_use_id")) if self.waits else ""
                return {"behavior": "deny", "message": permission.why or "this is not allowed here"}
        return {"behavior": "allow", "updatedInput": given}


def _tokens(told: UsageReport) -> catalog.Tokens:
    return catalog.Tokens(told.input_tokens, told.output_tokens, told.cache_read_tokens, told.cache_write_tokens)


async def _inspected() -> Inspection:
    inspection = await inspected(PROGRAM)
    if not inspection.offers(claude_settings.SOURCES):
        raise ProviderError(
            f"claude {inspection.version} has no `{claude_settings.SOURCES}`, which keeps it from obeying what lies in "
            f"the workspace: install {TRIED[1]} (`make clis`)",
            ErrorClass.INVALID_REQUEST,
        )
    return inspection


def _content(given: QueryInput, workspace: str) -> list[dict[str, Any]]:
    blocks = (ContentBlock("text", given.prompt),) if isinstance(given.prompt, str) else given.prompt
    # It opens pictures and PDFs itself, with the tool it reads files with.
    return [
        _said(
            block.text if block.type == "text" else f"[attached {block.type}: {Path(workspace, block.path)}]",
            raw=given.raw,
        )
        for block in blocks
    ]


def _said(text: str, *, raw: bool = False) -> dict[str, Any]:
    """A slash at the very beginning is a command to the program, so it is there only in one."""
    return {"type": "text", "text": f" {text}" if text.startswith("/") and not raw else text}
