"""How `claude` is started: its flags, its environment and the files it reads, so that it asks before every command and
every file, obeys nothing in the workspace, and looks nowhere outside.

Tokens are in the environment and in files of its home, never on a command line, which every user of the host can
read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from adapters.contracts import QueryInput
from adapters.providers import catalog
from adapters.providers.cli.installation import Inspection
from adapters.station import MCP_SERVER

SOURCES: Final = "--setting-sources"  # a version without it obeys the workspace
_PROMPT_FILE: Final = ".longshore/system-prompt.md"
_MCP_FILE: Final = ".longshore/mcp.json"
_SHELL_FILE: Final = ".longshore/shell.sh"  # read by each of its shells
_QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    # The fleet reschedules, and holds no slot meanwhile.
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    # Our tools are offered from the start, not found by a search.
    "ENABLE_TOOL_SEARCH": "false",
    # It ends with its answer; what it leaves in the background would end with it.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_WORKFLOWS": "1",
    # What lies outside the conversation's own file does not travel.
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_FILE_CHECKPOINTING": "1",
    # Else a file that somebody names in a message is read without asking.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}
_WITHOUT: Final = (
    *("AskUserQuestion", "CronCreate", "CronDelete", "CronList", "EnterPlanMode", "EnterWorktree", "ExitPlanMode"),
    *("ExitWorktree", "ListAgents", "Monitor", "ReportFindings", "ScheduleWakeup", "SendMessage", "WebFetch"),
    *("WebSearch", "Workflow"),
)
# Without these rules it only asks about what it finds dangerous itself: `cat .env` is not among that.
_ASKS: Final = ("Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "Skill", "Write")
_SETTINGS: Final = {"permissions": {"ask": list(_ASKS)}}


def environment(model_port: int, token: str, home: str) -> Mapping[str, str]:
    way = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model_port}", "ANTHROPIC_API_KEY": token}
    return {**_QUIET, **way, "CLAUDE_ENV_FILE": str(Path(home, _SHELL_FILE))}


def files(given: QueryInput, tool_port: int, token: str) -> Mapping[str, str]:
    """For its home."""
    server = {
        "type": "http",
        "url": f"http://127.0.0.1:{tool_port}/mcp",
        "headers": {"Authorization": f"Bearer {token}"},
        "alwaysLoad": True,
    }
    return {
        _MCP_FILE: json.dumps({"mcpServers": {MCP_SERVER: server}}),
        _PROMPT_FILE: given.system_prompt,
        _SHELL_FILE: "unset ANTHROPIC_API_KEY ANTHROPIC_BASE_URL\n",  # the model is for the agent, not for its commands
    }


def arguments(given: QueryInput, inspection: Inspection, home: str) -> list[str]:
    """What its help does not name is left out, except where it keeps the workspace from being obeyed."""
    obeys = given.policy.obey_repository
    settings = {**_SETTINGS, "enableAllProjectMcpServers": True} if obeys else _SETTINGS
    words = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    words += ["--permission-prompt-tool", "stdio", SOURCES, "project,local" if obeys else ""]
    words += ["--mcp-config", str(Path(home, _MCP_FILE)), "--settings", json.dumps(settings)]
    if not obeys:
        words += ["--strict-mcp-config"]
    for flag, value in {
        "--model": given.model or catalog.ANTHROPIC.default,
        "--include-partial-messages": None,
        "--replay-user-messages": None,
        "--allowedTools": f"mcp__{MCP_SERVER}",
        "--disallowedTools": ",".join(_WITHOUT),
        # A system prompt of the fleet may be another one in the next turn.
        "--system-prompt-snapshot": "off",
        **({} if obeys or given.raw else {"--disable-slash-commands": None}),
    }.items():
        if inspection.offers(flag):
            words += [flag] if value is None else [flag, value]
    if given.system_prompt and inspection.offers("--append-system-prompt[-file]"):
        words += ["--append-system-prompt-file", str(Path(home, _PROMPT_FILE))]
    elif given.system_prompt:
        words += ["--append-system-prompt", given.system_prompt]
    return words
