"""The Gemini CLI without ACP, for versions that do not offer it: one prompt, one answer, then it ends.

It can ask nobody, so it gets no shell; follow-ups come too late. It reads the settings of the folder it works in, so
it does not start where there are any that must not be obeyed."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from adapters.errors import ErrorClass, ProviderError
from adapters.events import FilesTouched, Message, Progress, ProviderEvent, Result, TextDelta, ToolCall, ToolResult
from adapters.providers.cli.acp.driver import Doors
from adapters.providers.cli.installation import Inspection
from adapters.station import MCP_SERVER

LONGEST_PROMPT: Final = 100_000  # bytes: it is an argument of the command line
NOTE: Final = "this version has no --acp: it runs without a shell, without approvals, and takes no follow-ups"
_EDITS: Final = ("write_file", "replace")
_OURS: Final = f"mcp_{MCP_SERVER}_"


def tools(doors: Doors) -> dict[str, Any]:
    """Our tools, in its settings."""
    headers = {"Authorization": f"Bearer {doors.tools_token}"}
    return {"mcpServers": {MCP_SERVER: {"httpUrl": doors.tools_url, "headers": headers, "trust": True}}}


def fitting(prompt: str) -> str:
    """Raises ProviderError if it does not fit on a command line."""
    if len(prompt.encode("utf-8", "replace")) > LONGEST_PROMPT:
        raise ProviderError(
            f"a prompt of more than {LONGEST_PROMPT:,} bytes needs a gemini with --acp, and not interactive",
            ErrorClass.INVALID_REQUEST,
        )
    return prompt


def arguments(inspection: Inspection, prompt: str, model: str, continuation: str | None) -> tuple[str, ...]:
    wanted = [
        ("--approval-mode", "auto_edit"),
        ("--model", model),
        *([("--output-format", "stream-json")] if streams(inspection) else []),
        *([("--resume", continuation)] if continuation else []),
    ]
    offered = [word for flag, value in wanted if inspection.offers(flag) for word in (flag, value)]
    return (*offered, f"--prompt={fitting(prompt)}")


def streams(inspection: Inspection) -> bool:
    return inspection.offers("stream-json")


class Stream:
    """Its stream of JSON, as events. `session` is known once it has begun."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace.rstrip("/") + "/"
        self._names: dict[str, str] = {}
        self._edits: dict[str, str] = {}
        self._text = ""
        self.session = ""
        self.ended = False

    def take(self, said: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        match said:
            case {"type": "init", "session_id": str(session)}:
                self.session = session
            case {"type": "message", "role": "assistant", "content": str(text)}:
                self._text += text
                yield TextDelta(text=text)
            case {"type": "message"}:
                return  # what we have said
            case {"type": "tool_use", "tool_id": str(number), "tool_name": str(name)}:
                yield from self._call(number, name, said.get("parameters"))
            case {"type": "tool_result", "tool_id": str(number)}:
                ok = said.get("status") == "success"
                yield ToolResult(id=number, name=self._names.get(number, ""), ok=ok)
                if ok and number in self._edits:
                    yield FilesTouched(paths=(self._edits[number],))
            case {"type": "result", "status": "success"}:
                self.ended = True
                yield Result(text=self._text)
            case {"type": "result"}:
                error = said.get("error")
                told = error.get("message") if isinstance(error, dict) else None
                raise ProviderError(f"gemini failed: {str(told or 'without a reason')[:300]}", ErrorClass.INTERNAL)
            case _:
                yield Progress(text=f"gemini: {str(said.get('type'))[:100]}")

    def _call(self, number: str, name: str, given: Any) -> Iterator[ProviderEvent]:
        if self._text.strip():
            yield Message(text=self._text)
        self._text = ""
        self._names[number] = name.removeprefix(_OURS)
        path = given.get("file_path") if isinstance(given, dict) else None
        if (
            name in _EDITS
            and isinstance(path, str)
            and not (path := path.removeprefix(self._workspace)).startswith("/")
        ):
            self._edits[number] = path
        yield ToolCall(id=number, name=self._names[number], preview=json.dumps(given)[:2000])
