"""What an agent says over the Agent Client Protocol, as our events: text, thoughts, tool calls, files, questions.

Pure: it remembers what an answer has come to so far, and does nothing. Messages are read by the protocol's own schema,
which passes over what does not fit it; a kind of update that it does not know becomes a note."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    FileEditToolCallContent,
    PermissionOption,
    PromptResponse,
    RequestPermissionRequest,
    SessionNotification,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)
from pydantic import ValidationError

from adapters.errors import ErrorClass, ProviderError
from adapters.events import (
    DiffAvailable,
    FilesTouched,
    Message,
    Progress,
    ProviderEvent,
    Result,
    TextDelta,
    Thinking,
    ToolCall,
    ToolResult,
)
from adapters.providers.catalog import Tokens, tokens
from adapters.providers.talking import CALLS, fits, joined
from adapters.risk import Intent

# Updates about the agent's own screen, and echoes of what we have said.
SILENT: Final = (
    *("user_message_chunk", "available_commands_update", "current_mode_update", "config_option_update"),
    *("session_info_update", "usage_update"),
)
SHOWN: Final = 2_000  # characters of what somebody is told about
_WRITING: Final = ("edit", "delete", "move")
_ADDRESS: Final = re.compile(r"https?://[^\s\"'<>)\]]+")

# How a program names the tool of a call: from its id, its title and its kind.
NameOf = Callable[[str, str, str], str]


@dataclass
class Call:
    """A tool call of the program, as far as it has told."""

    id: str
    name: str
    kind: str = ""
    title: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    paths: dict[str, None] = field(default_factory=dict)  # in the order they were named
    diffs: dict[str, str] = field(default_factory=dict)
    said: bool = False
    over: bool = False
    large: bool = False  # more than anybody can judge, and not kept

    def learn(self, update: ToolCallUpdate | ToolCallStart) -> None:
        self.kind = update.kind or self.kind
        self.title = update.title or self.title
        if isinstance(update.raw_input, dict) and update.raw_input:
            self.given = update.raw_input
        for location in update.locations or ():
            self.paths[location.path] = None
        for part in update.content or ():
            if isinstance(part, FileEditToolCallContent):
                self.paths[part.path] = None
                before, after = (len((text or "").splitlines()) for text in (part.old_text, part.new_text))
                self.diffs[part.path] = f"{before} -> {after} lines"
        if not fits([self.title, self.given, *self.paths, *self.diffs]):
            self.title = ""
            self.large = True
            self.forget()

    def forget(self) -> None:
        self.given, self.paths, self.diffs = {}, {}, {}

    @property
    def command(self) -> str:
        said = self.given.get("command")
        return said if isinstance(said, str) else self.title if self.kind == "execute" else ""

    @property
    def url(self) -> str:
        said = self.given.get("url")
        found = _ADDRESS.search(self.title) if self.kind == "fetch" else None
        return said if isinstance(said, str) else found[0] if found else ""

    @property
    def preview(self) -> str:
        return self.command or (json.dumps(self.given, ensure_ascii=False)[:SHOWN] if self.given else self.title)


@dataclass(frozen=True)
class Asked:
    """A question of the program. `ours`: it is about one of our tools, which have approvals of their own."""

    call: Call
    intent: Intent
    ours: bool
    options: tuple[PermissionOption, ...]

    def option(self, word: str) -> dict[str, Any]:
        """The answer `allow` or `reject`: for this once if it can be, else as it can be."""
        for kind in (f"{word}_once", f"{word}_always"):
            for option in self.options:
                if option.kind == kind:
                    return {"outcome": {"outcome": "selected", "optionId": option.option_id}}
        return {"outcome": {"outcome": "cancelled"}}


class Listener:
    """`ours` are the names of our tools; `workspace` is where the program sees the agent's folder."""

    def __init__(self, program: str, workspace: str, ours: frozenset[str], name_of: NameOf) -> None:
        self._program = program
        self._workspace = workspace.rstrip("/") + "/"
        self._ours = ours
        self._name_of = name_of
        self._calls: dict[str, Call] = {}
        self._text = ""
        self._thought = ""
        self.busy = False  # it has said or done something since it was last asked

    # --- What it says ---

    def hear(self, said: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        try:
            update = SessionNotification.model_validate(said).update
        except ValidationError:
            yield Progress(text=f"{self._program}: {kind_of(said)}")
            return
        if isinstance(update, AgentThoughtChunk):
            if isinstance(update.content, TextContentBlock):
                self._thought = joined(self._thought, update.content.text)
            return
        if update.session_update in SILENT:
            return
        yield from self._thought_over()
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text)):
                self.busy = True
                self._text = joined(self._text, text)
                yield TextDelta(text=text)
            case ToolCallStart() | ToolCallProgress():
                self.busy = True
                yield from self._tool(update)
            case AgentPlanUpdate(entries=entries):
                steps = "; ".join(f"{entry.content} ({entry.status})" for entry in entries)
                yield Progress(text=f"plan: {steps}"[:SHOWN])
            case _:
                yield Progress(text=f"{self._program}: {update.session_update}")

    def went_on(self) -> Iterator[ProviderEvent]:
        """What was said so far was on the way."""
        yield from self._thought_over()
        if self._text.strip():
            yield Message(text=self._text)
        self._text = ""

    def answered(self) -> Iterator[ProviderEvent]:
        """What was said since the last tool is the answer."""
        yield from self._thought_over()
        if self._text.strip():
            yield Result(text=self._text)
        self._text = ""
        self.busy = False

    def _thought_over(self) -> Iterator[ProviderEvent]:
        """One event for a thought, which comes in pieces."""
        if self._thought.strip():
            yield Thinking(text=self._thought)
        self._thought = ""

    # --- What it does ---

    def _tool(self, update: ToolCallStart | ToolCallProgress) -> Iterator[ProviderEvent]:
        call = self._call(update)
        if call.over:
            return
        ended = update.status in ("completed", "failed")
        if ended or update.status == "in_progress" or call.given:
            yield from self.announced(call)
        if ended:
            yield from self.ended(call, ok=update.status == "completed")

    def announced(self, call: Call) -> Iterator[ProviderEvent]:
        if not call.said:
            call.said = True
            yield from self.went_on()
            yield ToolCall(id=call.id, name=call.name, preview=call.preview)

    def ended(self, call: Call, *, ok: bool) -> Iterator[ProviderEvent]:
        call.over = True
        yield ToolResult(id=call.id, name=call.name, ok=ok)
        if ok and (call.diffs or call.kind in _WRITING):
            if touched := tuple(path for path in map(self._relative, call.paths) if not path.startswith(("/", ".."))):
                yield FilesTouched(paths=touched)
            if call.diffs:
                summary = "; ".join(f"{self._relative(path)}: {lines}" for path, lines in call.diffs.items())
                yield DiffAvailable(summary=summary[:SHOWN])
        call.forget()

    def _call(self, update: ToolCallStart | ToolCallUpdate) -> Call:
        call = self._calls.get(update.tool_call_id)
        if call is None:
            name = self._name_of(update.tool_call_id, update.title or "", update.kind or "")
            call = self._calls[update.tool_call_id] = Call(update.tool_call_id, name)
            if len(self._calls) > CALLS:
                del self._calls[next(iter(self._calls))]
        call.learn(update)
        return call

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._workspace)

    # --- What it asks ---

    def asked(self, said: Mapping[str, Any]) -> Asked:
        """Raises ValueError if the question is none."""
        request = RequestPermissionRequest.model_validate(said)
        call = self._call(request.tool_call)
        if call.large:
            raise ValueError("the call is larger than anybody can judge")
        self.busy = True
        # A program's own tools have kinds, and models choose their titles.
        ours = call.name in self._ours and call.kind in ("", "other")
        intent = Intent(
            call.name,
            command=call.command,
            paths=tuple(map(self._relative, call.paths)),
            url=call.url,
            details={"title": call.title, **call.given},
            writes=call.kind not in ("read", "search"),
        )
        return Asked(call, intent, ours, tuple(request.options))


def kind_of(said: Mapping[str, Any]) -> str:
    update = said.get("update")
    kind = update.get("sessionUpdate") if isinstance(update, dict) else None
    return str(kind or "an update without a name")[:100]


@dataclass(frozen=True)
class Ending:
    """How an answer ended, and what the program says it has used."""

    reason: str
    used: Tokens


def ending(program: str, said: Any) -> Ending:
    try:
        response = PromptResponse.model_validate(said)
    except ValidationError:
        raise ProviderError(f"{program} ended its answer in a way that does not read", ErrorClass.INTERNAL) from None
    if usage := response.usage:
        cached = usage.cached_read_tokens or 0, usage.cached_write_tokens or 0
        return Ending(response.stop_reason, Tokens(usage.input_tokens, usage.output_tokens, *cached))
    quota = (response.field_meta or {}).get("quota")
    count = quota.get("token_count") if isinstance(quota, dict) else None
    if not isinstance(count, dict):
        count = {}
    return Ending(response.stop_reason, Tokens(tokens(count.get("input_tokens")), tokens(count.get("output_tokens"))))


_OURS: Final = (
    re.compile(r"(?:mcp_+)?longshore_+(\w+)"),
    re.compile(r"(\w+) \(longshore MCP Server\)"),
    re.compile(r"longshore[:/.](\w+)"),
)


def own_name(name: str) -> str:
    """Of one of our tools, as the fleet knows it: programs put the server's name around it."""
    for pattern in _OURS:
        if match := pattern.fullmatch(name):
            return match[1]
    return name


def name_by_title(call_id: str, title: str, kind: str) -> str:
    """Most programs first say a tool's name for a title; others a sentence, and then its kind must do."""
    own = own_name(title)
    return own if re.fullmatch(r"[\w.:/-]{1,64}", own) else kind or "tool"
