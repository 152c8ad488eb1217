"""What codex's app-server says, as our events. Pure: it starts nothing, and asks nobody.

A text is an answer only when nothing comes after it: until then it is held back, and it becomes a Message if the agent
goes on. All of this was written by a model or a program: fields that are missing or of another kind are passed over."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from adapters.contracts import Capabilities, Manifest
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
    UsageReport,
)
from adapters.providers import catalog
from adapters.providers.cli.usage_seen import beyond, in_all
from adapters.providers.talking import joined, remember
from adapters.risk import Intent
from adapters.station import MCP_SERVER

ADAPTER_ID: Final = "codex"
MANIFEST: Final = Manifest(
    adapter_id=ADAPTER_ID,
    version="1",
    vendor="openai",
    kind="cli",
    models=catalog.OPENAI.models,
    capabilities=Capabilities(
        streaming=True, tools=True, resume=True, push=True, images=True, mcp=True, approvals=True,
        structured_edits="file_events",
    ),
)  # fmt: skip
SHELL: Final = "shell"
PATCH: Final = "apply_patch"
TOLD: Final = 300  # characters of a warning that are shown
# Of no interest to anybody who watches an agent, or told by something else.
SILENT: Final = (
    "account/rateLimits/updated",
    "account/updated",
    "app/list/updated",
    "configWarning",
    "item/commandExecution/outputDelta",
    "item/commandExecution/terminalInteraction",
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/mcpToolCall/progress",
    "item/plan/delta",
    "item/reasoning/summaryPartAdded",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "mcpServer/startupStatus/updated",
    "remoteControl/status/changed",
    "serverRequest/resolved",
    "skills/changed",
    "thread/name/updated",
    "thread/settings/updated",
    "thread/started",
    "thread/status/changed",
    "turn/started",
)
_SILENT_ITEMS: Final = ("userMessage", "hookPrompt", "agentMessage", "reasoning", "plan", "functionCallOutput")
_COUNTS: Final = ("inputTokens", "outputTokens", "cachedInputTokens", "cacheWriteInputTokens")
_CLASSES: Final = {
    "contextWindowExceeded": ErrorClass.CONTEXT_TOO_LONG,
    "usageLimitExceeded": ErrorClass.QUOTA,
    "sessionBudgetExceeded": ErrorClass.QUOTA,
    "rateLimitExceeded": ErrorClass.RATE_LIMIT,
    "serverOverloaded": ErrorClass.TRANSPORT,
    "internalServerError": ErrorClass.TRANSPORT,
    "httpConnectionFailed": ErrorClass.TRANSPORT,
    "responseStreamConnectionFailed": ErrorClass.TRANSPORT,
    "responseStreamDisconnected": ErrorClass.TRANSPORT,
    "responseTooManyFailedAttempts": ErrorClass.TRANSPORT,
    "unauthorized": ErrorClass.AUTH,
    "badRequest": ErrorClass.INVALID_REQUEST,
    "modelNotFound": ErrorClass.INVALID_REQUEST,
    "cyberPolicy": ErrorClass.INVALID_REQUEST,
}


class Narration:
    """One query's conversation. `changes` are the changes of files that are under way."""

    def __init__(self, model: str, vendor: catalog.Vendor, options: Mapping[str, Any], workspace: str) -> None:
        self._model = model
        self._vendor = vendor
        self._options = options
        self._workspace = workspace
        self.changes: dict[str, Mapping[str, Any]] = {}
        self._held = ""  # said, and perhaps the answer
        self._begun = ""  # being said
        self._diff = ""
        self._used: dict[str, int] | None = None
        self._told = catalog.Tokens()  # in reports
        self._at_work = False
        self._named: set[str] = set()

    def hear(self, method: str, said: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        item = said.get("item")
        self._at_work = self._at_work or method.startswith("item/")
        match method:
            case "item/agentMessage/delta":
                if self._held:  # another text begins
                    yield from self.went_on()
                self._begun = joined(self._begun, _text(said.get("delta")))
                yield TextDelta(text=_text(said.get("delta")))
            case "item/started" if isinstance(item, dict):
                yield from self._started(item)
            case "item/completed" if isinstance(item, dict):
                yield from self._completed(item)
            case "thread/tokenUsage/updated":
                yield from self._usage(said.get("tokenUsage"))
            case "turn/diff/updated":
                self._diff = _text(said.get("diff"))
            case "error":
                error = said.get("error")
                if said.get("willRetry") and isinstance(error, dict):
                    yield Progress(text=_text(error.get("message"))[:TOLD])
            case "warning" | "deprecationNotice" | "guardianWarning":
                yield Progress(text=_text(said.get("message") or said.get("summary"))[:TOLD])
            case "thread/compacted":
                yield Progress(text="the conversation was shortened")
            case _ if method not in SILENT:
                yield from self._unknown(method)

    def went_on(self) -> Iterator[ProviderEvent]:
        """The agent says or does more: what it said before was not its answer. A follow-up cuts it short."""
        if text := self._held or self._begun:
            yield Message(text=text)
        self._held = self._begun = ""

    def answered(self) -> Iterator[ProviderEvent]:
        """Nothing comes after what it said last."""
        if self._diff:
            yield DiffAvailable(summary=shortstat(self._diff))
        if self._held:
            yield Result(text=self._held)
        self._held = self._diff = ""
        yield from self.went_on()

    def _started(self, item: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        kind, number = _text(item.get("type")), _text(item.get("id"))
        if kind == "fileChange":
            remember(self.changes, number, item)
        call = self._call(kind, number, item)
        if call is not None:
            yield from self.went_on()
            yield call
        elif kind not in _SILENT_ITEMS:
            yield from self._unknown(kind)

    def _completed(self, item: Mapping[str, Any]) -> Iterator[ProviderEvent]:
        kind, number = _text(item.get("type")), _text(item.get("id"))
        if kind == "agentMessage":
            self._begun = ""
            yield from self.went_on()
            self._held = _text(item.get("text"))
            if item.get("phase") == "commentary":
                yield from self.went_on()
        elif kind == "reasoning":
            parts = item.get("summary")
            if text := "\n\n".join(filter(None, map(_text, parts if isinstance(parts, list) else []))):
                yield Thinking(text=text)
        elif (call := self._call(kind, number, item)) is not None:
            ok = _succeeded(kind, item)
            yield ToolResult(id=number, name=call.name, ok=ok)
            paths = changed_paths(self.changes.pop(number, {}), self._workspace)
            if ok and paths:
                yield FilesTouched(paths=paths)

    def _call(self, kind: str, number: str, item: Mapping[str, Any]) -> ToolCall | None:
        match kind:
            case "commandExecution":
                return ToolCall(id=number, name=SHELL, preview=_text(item.get("command")))
            case "fileChange":
                return ToolCall(id=number, name=PATCH, preview=", ".join(changed_paths(item, self._workspace)))
            case "mcpToolCall":
                server, tool = _text(item.get("server")), _text(item.get("tool"))
                name = tool if server == MCP_SERVER else f"mcp__{server}__{tool}"
                return ToolCall(id=number, name=name, preview=str(item.get("arguments") or ""))
            case "webSearch":
                return ToolCall(id=number, name="web_search", preview=_text(item.get("query")))
            case "imageView":
                return ToolCall(id=number, name="view_image", preview=_text(item.get("path")))
            case _:
                return None

    def _usage(self, usage: object) -> Iterator[UsageReport]:
        """It counts over the whole thread, begins with what was before, and may tell the same count twice."""
        told: Mapping[str, Any] = usage if isinstance(usage, dict) else {}
        total, last = _counts(told.get("total")), _counts(told.get("last"))
        before = self._used or {name: total[name] - last[name] for name in _COUNTS}
        self._used = total
        new = {name: total[name] - before[name] for name in _COUNTS}
        if any(count < 0 for count in new.values()):
            new = last  # it counts anew
        if self._at_work and any(new.values()):
            cached, written = new["cachedInputTokens"], new["cacheWriteInputTokens"]
            used = catalog.Tokens(
                input=max(0, new["inputTokens"] - cached - written),
                output=new["outputTokens"],
                cache_read=cached,
                cache_write=written,
            )
            self._told = in_all([self._told, used])
            yield catalog.usage_report(self._vendor, self._model, used, self._options)

    def unreported(self, seen: Mapping[str, catalog.Tokens]) -> Iterator[UsageReport]:
        """What its model's server has counted and it has not told: its shell can ask the model as well."""
        for model, used in beyond(seen, {self._model: self._told}):
            yield catalog.usage_report(self._vendor, model or self._model, used, self._options)

    def _unknown(self, name: str) -> Iterator[Progress]:
        name = name[:100]
        if name not in self._named and len(self._named) < 50:
            self._named.add(name)
            yield Progress(text=f"codex: {name}")


def change_intent(item: Mapping[str, Any], workspace: str) -> Intent | None:
    """What is approved is this very change, not any of these files. None: nobody can read what it is about."""
    changes = item.get("changes")
    readable = isinstance(changes, list) and all(isinstance(one, dict) and _text(one.get("path")) for one in changes)
    if not changes or not readable:
        return None
    return Intent(PATCH, paths=changed_paths(item, workspace), details={"changes": changes})


def changed_paths(item: Mapping[str, Any], workspace: str) -> tuple[str, ...]:
    """What a change of files is about, relative to the workspace where it is in it."""
    changes = item.get("changes")
    found: list[str] = []
    for change in changes if isinstance(changes, list) else []:
        if isinstance(change, dict):
            kind = change.get("kind")
            moved = kind.get("move_path") if isinstance(kind, dict) else None
            found += [path.removeprefix(f"{workspace}/") for path in map(_text, (change.get("path"), moved)) if path]
    return tuple(dict.fromkeys(found))


def failure(error: object) -> ProviderError:
    """Of a turn that codex says has failed."""
    told: Mapping[str, Any] = error if isinstance(error, dict) else {}
    info = told.get("codexErrorInfo")
    name = next(iter(info), "") if isinstance(info, dict) else info
    message = _text(told.get("message")) or "no reason given"
    return ProviderError(f"codex: {message[:TOLD]}", _CLASSES.get(str(name), ErrorClass.INTERNAL))


def shortstat(diff: str) -> str:
    """As `git diff --shortstat` says it."""
    lines = diff.splitlines()
    files = sum(line.startswith("diff --git ") for line in lines)
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    counts = ((files, "file", " changed"), (added, "insertion", "(+)"), (removed, "deletion", "(-)"))
    return ", ".join(f"{count} {word}{'s' * (count != 1)}{end}" for count, word, end in counts)


def _succeeded(kind: str, item: Mapping[str, Any]) -> bool:
    result = item.get("result")
    return (
        item.get("status", "completed") == "completed"
        and item.get("exitCode") in (0, None)
        and item.get("error") is None
        and not (kind == "mcpToolCall" and isinstance(result, dict) and result.get("isError"))
    )


def _counts(told: object) -> dict[str, int]:
    counts: Mapping[str, Any] = told if isinstance(told, dict) else {}
    return {name: catalog.tokens(counts.get(name)) for name in _COUNTS}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
