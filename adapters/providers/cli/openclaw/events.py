"""What openclaw says, as our events: the lines of our plug-in while it works, and the JSON it prints at its end."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from adapters.errors import ErrorClass, ProviderError
from adapters.events import (
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
from adapters.providers.cli.openclaw.plugin import KEY
from adapters.providers.talking import LONGEST_TEXT, joined, remember
from adapters.risk import Intent
from adapters.station import MCP_SERVER

OUR_TOOLS: Final = f"{MCP_SERVER}__"
_READS: Final = ("read", "ls")
_WRITES: Final = ("write", "edit", "apply_patch")
_PATCHED: Final = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
# What it says beside that: said in another way, or of no use to anybody.
_QUIET: Final = ("lifecycle", "usage", "item", "command_output", "approval", "patch", "plan")


def our_line(line: str) -> Mapping[str, Any] | None:
    """What the plug-in says in this line; None if it is not the plug-in's."""
    if not line.startswith(f'{{"{KEY}":'):
        return None
    said = _read(line)[KEY]
    return said if isinstance(said, dict) else {}


def intent(tool: str, params: Mapping[str, Any], workspace: str) -> Intent:
    if tool == "exec":
        return Intent(tool, command=str(params.get("command", "")), details=params)
    paths = tuple(_paths(tool, params, workspace))
    return Intent(tool, paths=paths, writes=tool not in _READS, details=params)


class Events:
    """The lines of one run. It remembers the calls that are under way, and what of a text was written already."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._edits: dict[str, tuple[str, ...]] = {}
        self._written = ""

    def take(self, stream: str, data: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        phase = data.get("phase")
        match stream:
            case "assistant" if delta := data.get("delta"):
                self._written = joined(self._written, str(delta))
                yield TextDelta(text=str(delta))
            case "thinking" | "reasoning" if delta := data.get("delta"):
                yield Thinking(text=str(delta))
            case "item" if data.get("kind") == "preamble" and phase == "end" and data.get("progressText"):
                yield from self.whole(Message(text=str(data["progressText"])))
            case "tool":
                yield from self._tool(phase, str(data.get("toolCallId")), str(data.get("name")), data)
            case "assistant" | "thinking" | "reasoning":
                return
            case _ if stream not in _QUIET:
                yield Progress(text=f"{stream} {phase or ''}".strip()[:100])

    def whole(self, said: Message | Result) -> Iterator[ProviderEvent]:
        """A whole text, with what of it was not written before: it writes in pieces, and not the last one always."""
        if len(self._written) <= LONGEST_TEXT and said.text.startswith(self._written) and said.text != self._written:
            yield TextDelta(text=said.text[len(self._written) :])
        self._written = ""
        yield said

    def _tool(self, phase: object, number: str, tool: str, data: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        name = tool.removeprefix(OUR_TOOLS)
        if phase == "start":
            args = data.get("args")
            args = args if isinstance(args, dict) else {}
            if tool in _WRITES:
                remember(self._edits, number, tuple(_paths(tool, args, self._workspace)))
            yield ToolCall(id=number, name=name, preview=_preview(args))
        elif phase == "result":
            ok = not data.get("isError")
            yield ToolResult(id=number, name=name, ok=ok)
            if (paths := self._edits.pop(number, ())) and ok:
                yield FilesTouched(paths=paths)


@dataclass(frozen=True)
class End:
    """How a run ended, by its own account. `error` is empty if it went well."""

    text: str
    error: str = ""


def end_of(printed: str) -> End | None:
    """None: it has printed nothing. Some versions print plain lines in spite of `--json`: those are the answer then.
    What begins as JSON and is none is an error."""
    printed = printed.strip()
    if not printed.startswith("{"):
        return End(printed) if printed else None
    told = _read(printed)
    listed = told.get("payloads")
    payloads = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    texts = [str(one["text"]) for one in payloads if one.get("text") and not one.get("isError")]
    errors = [str(one["text"]) for one in payloads if one.get("text") and one.get("isError")]
    for place in (told, told.get("meta")):
        if isinstance(place, dict) and isinstance(failed := place.get("error"), dict):
            errors.insert(0, str(failed.get("message", "no reason given")))
    return End("\n\n".join(texts), "; ".join(errors)[:500])


def _read(text: str) -> dict[str, Any]:
    """What begins as an object."""
    try:
        read: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProviderError(f"openclaw said something that is no JSON: {text[:200]!r}", ErrorClass.INTERNAL) from error
    return read


def _paths(tool: str, params: Mapping[str, Any], workspace: str) -> Iterator[str]:
    """Relative to the workspace where they are in it."""
    named = _PATCHED.findall(str(params.get("input", ""))) if tool == "apply_patch" else [params.get("path")]
    for path in named:
        if isinstance(path, str) and path:
            pure = PurePosixPath(workspace, path)
            yield str(pure.relative_to(workspace)) if pure.is_relative_to(workspace) else str(pure)


def _preview(args: Mapping[str, Any]) -> str:
    for name in ("command", "path"):
        if isinstance(args.get(name), str):
            return str(args[name])[:1000]
    return json.dumps(args, ensure_ascii=False)[:1000] if args else ""
