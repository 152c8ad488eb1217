"""What `claude` prints (stream-json), as our events: no process, no clock, nothing sent back.

Whatever is missing or of the wrong kind in its messages is passed over: a newer version says more, and says some of it
differently."""

import json
import os.path
from collections.abc import Iterator, Mapping
from typing import Any, Final

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
    ToolProgress,
    ToolResult,
    UsageReport,
)
from adapters.providers import catalog
from adapters.providers.talking import remember
from adapters.providers.wire import BY_STATUS
from adapters.risk import Intent
from adapters.station import MCP_SERVER

OUR_TOOLS: Final = f"mcp__{MCP_SERVER}__"
LOST: Final = "No conversation found"
_WRITES: Final = ("Edit", "MultiEdit", "NotebookEdit", "Write")
_PATHS: Final = ("file_path", "notebook_path", "path")
# Said all the time, and nothing that anybody misses: its own book-keeping, and what other messages say as well.
_PASSED_OVER: Final = frozenset(
    {
        *("init", "status", "permission_denied", "ui_invalidate", "command_lifecycle", "rate_limit_event"),
        *("task_started", "task_progress", "task_updated", "task_notification", "hook_started", "hook_progress"),
        *(
            "hook_response",
            "thinking_tokens",
            "control_request",
            "control_response",
            "control_cancel_request",
            "keep_alive",
        ),
    }
)
_KINDS: Final = 50  # of messages nobody knows that are told of
_TYPE: Final = 60  # characters of such a kind's name


class Reader:
    """The messages of one attempt, in order. `workspace` is where the program sees it."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._held = ""  # a text that is an answer if nothing follows, and a remark on the way otherwise
        self._told: set[str] = set()

    def take(self, message: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        match message.get("type"):
            case "stream_event":
                yield from self._delta(message)
            case "assistant" if not _is_error(message):
                yield from self._assistant(message)
            case "user":
                yield from self._results(message)
            case "result":
                yield from self._result(message)
            case "tool_progress":
                yield ToolProgress(
                    id=_text(message.get("parent_tool_use_id")) or _text(message.get("tool_use_id")),
                    name=our_name(_text(message.get("tool_name"))),
                    elapsed=_seconds(message.get("elapsed_time_seconds")),
                )
            case "system" if message.get("subtype") == "api_retry":
                yield Progress(text=f"the model is asked again (status {message.get('error_status')})"[:200])
            case "system" if message.get("subtype") == "compact_boundary":
                yield Progress(text="the conversation was shortened to make room")
            case "assistant":
                return
            case other:
                yield from self._unknown(_text(message.get("subtype")) if other == "system" else _text(other))

    def rest(self) -> Iterator[ProviderEvent]:
        """What it said last, and was not an answer."""
        if self._held:
            yield Message(text=self._held)
        self._held = ""

    def _delta(self, message: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        delta = _mapping(_mapping(message.get("event")).get("delta"))
        # What a helper of the agent writes is for the agent.
        if delta.get("type") == "text_delta" and message.get("parent_tool_use_id") is None:
            yield TextDelta(text=_text(delta.get("text")))

    def _assistant(self, message: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        own = message.get("parent_tool_use_id") is None
        for block in _blocks(message):
            match block.get("type"):
                case "text" if own:
                    yield from self.rest()
                    self._held = _text(block.get("text"))
                case "thinking" if own and _text(block.get("thinking")):
                    yield Thinking(text=_text(block.get("thinking")))
                case "tool_use":
                    yield from self.rest()
                    number, name = _text(block.get("id")), _text(block.get("name"))
                    given = _mapping(block.get("input"))
                    remember(self._calls, number, (name, given))
                    yield ToolCall(id=number, name=our_name(name), preview=_preview(given))

    def _results(self, message: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        for block in _blocks(message):
            number = _text(block.get("tool_use_id"))
            if block.get("type") != "tool_result" or number not in self._calls:
                continue
            name, given = self._calls.pop(number)
            ok = block.get("is_error") is not True
            yield ToolResult(id=number, name=our_name(name), ok=ok)
            path = touched(given, self._workspace) if ok and name in _WRITES else None
            if path is not None:
                yield FilesTouched(paths=(path,))
                if change := _change(_mapping(message.get("tool_use_result")).get("structuredPatch")):
                    yield DiffAvailable(summary=f"{path}: {change}")

    def _result(self, message: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        answer = None if message.get("is_error") is not False else _text(message.get("result"))
        if answer is not None and answer.strip() == self._held.strip():
            self._held = ""
        yield from self.rest()
        yield from _usage(message)
        if answer is not None:
            yield Result(text=answer)

    def _unknown(self, kind: str) -> Iterator[ProviderEvent]:
        kind = (kind or "a message without a type")[:_TYPE]
        if kind not in _PASSED_OVER and kind not in self._told and len(self._told) < _KINDS:
            self._told.add(kind)
            yield Progress(text=f"claude: {kind}")


def failure(message: Mapping[str, Any]) -> ProviderError | None:
    """Of a `result`. The subtype says `success` also when the model could not be asked."""
    if message.get("is_error") is False:
        return None
    errors = message.get("errors")
    told = _text(message.get("result")) or " / ".join(map(str, errors if isinstance(errors, list) else ()))
    status = message.get("api_error_status")
    error_class = BY_STATUS.get(status, ErrorClass.TRANSPORT) if isinstance(status, int) else ErrorClass.INTERNAL
    if "prompt is too long" in told.lower():
        error_class = ErrorClass.CONTEXT_TOO_LONG
    return ProviderError(f"claude could not answer: {told[:500] or message.get('subtype')}", error_class)


def is_lost(message: Mapping[str, Any]) -> bool:
    """Whether it says that there is no such conversation."""
    return message.get("type") == "result" and message.get("is_error") is True and LOST in str(message.get("errors"))


def answered(message: Mapping[str, Any]) -> set[str]:
    """The ids of the prompts that a `result` is about, or that a repeated prompt is."""
    listed = message.get("user_message_uuids")
    if message.get("type") == "user":
        listed = [message.get("uuid")] if message.get("isReplay") is True else []
    return {one for one in listed if isinstance(one, str)} if isinstance(listed, list) else set()


def results(message: Mapping[str, Any]) -> set[str]:
    """The ids of the tool calls whose results it brings."""
    found = _blocks(message) if message.get("type") == "user" else ()
    return {_text(block.get("tool_use_id")) for block in found if block.get("type") == "tool_result"}


def intent(tool: str, given: Mapping[str, Any], workspace: str) -> Intent:
    """What it wants to do, when it asks whether it may."""
    return Intent(
        tool,
        command=_text(given.get("command")),
        paths=tuple(_relative(_text(given[name]), workspace) for name in (*_PATHS, "glob") if _text(given.get(name))),
        url=_text(given.get("url")),
        details=given,
        writes=tool not in ("Glob", "Grep", "LS", "Read"),
    )


def our_name(tool: str) -> str:
    return tool.removeprefix(OUR_TOOLS)


def touched(given: Mapping[str, Any], workspace: str) -> str | None:
    """The file of the workspace that an edit is about."""
    path = next((_text(given[name]) for name in _PATHS if _text(given.get(name))), "")
    relative = _relative(path, workspace)
    return relative if path and not os.path.isabs(relative) else None


def _relative(path: str, workspace: str) -> str:
    """To the workspace, if it is below it."""
    whole = os.path.normpath(os.path.join(workspace, path))
    return os.path.relpath(whole, workspace) if whole.startswith(f"{workspace}/") else whole


def _usage(message: Mapping[str, Any]) -> Iterator[UsageReport]:
    """Of this run: `total_cost_usd` and `modelUsage` count what earlier runs of the conversation used as well."""
    for model, used in _mapping(message.get("model_usage_since_last_result")).items():
        used = _mapping(used)
        spent = catalog.Tokens(
            input=catalog.tokens(used.get("inputTokens")),
            output=catalog.tokens(used.get("outputTokens")),
            cache_read=catalog.tokens(used.get("cacheReadInputTokens")),
            cache_write=catalog.tokens(used.get("cacheCreationInputTokens")),
        )
        yield _report(str(model), spent, used.get("costUSD"))
    if "model_usage_since_last_result" not in message:
        used = _mapping(message.get("usage"))
        spent = catalog.Tokens(
            input=catalog.tokens(used.get("input_tokens")),
            output=catalog.tokens(used.get("output_tokens")),
            cache_read=catalog.tokens(used.get("cache_read_input_tokens")),
            cache_write=catalog.tokens(used.get("cache_creation_input_tokens")),
        )
        if spent != catalog.Tokens():
            yield _report(next(iter(_mapping(message.get("modelUsage"))), catalog.ANTHROPIC.default), spent, None)


def _report(model: str, spent: catalog.Tokens, cost: object) -> UsageReport:
    """The program knows prices itself; of a model that it does not know it says zero."""
    report = catalog.usage_report(catalog.ANTHROPIC, model, spent, {})
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 < cost < 10**6
    return report.model_copy(update={"cost_usd": float(cost)}) if known else report  # type: ignore[arg-type]


def _change(patch: object) -> str:
    """In the words of `git diff --shortstat`."""
    hunks = [_mapping(hunk).get("lines") for hunk in patch] if isinstance(patch, list) else []
    lines = [_text(line) for hunk in hunks if isinstance(hunk, list) for line in hunk]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{added} insertions(+), {removed} deletions(-)" if lines else ""


def _preview(given: Mapping[str, Any]) -> str:
    for name in ("command", *_PATHS, "pattern", "query", "url", "description"):
        if _text(given.get(name)):
            return _text(given[name])[:1000]
    return json.dumps(given, ensure_ascii=False)[:1000] if given else ""


def _is_error(message: Mapping[str, Any]) -> bool:
    """What the program puts in the model's mouth when the model could not be asked; the result says it as well."""
    return bool(message.get("error")) or _mapping(message.get("message")).get("model") == "<synthetic>"


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = _mapping(message.get("message")).get("content")
    return [_mapping(block) for block in content] if isinstance(content, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 10**9 else 0.0
