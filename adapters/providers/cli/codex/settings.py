"""The settings codex gets from us, as a file below its home: where the model and our tools are, and what is off.

Whatever is not here comes from codex itself, and from the workspace only if the policy says so. No key is written here:
what opens our doors is in variables, which its own shell does not pass on."""

import json
import os
from typing import Any, Final

from adapters.station import MCP_SERVER

MODEL_TOKEN: Final = "LONGSHORE_MODEL_TOKEN"  # noqa: S105 - the name of a variable, as the next
TOOL_TOKEN: Final = "LONGSHORE_TOOL_TOKEN"  # noqa: S105
START_SECONDS: Final = 30
# One of our tools may wait for a person, and has a limit of its own.
TOOL_SECONDS: Final = 3600
OFF: Final = (
    "api_key_model_discovery",
    "apps",
    "enable_request_compression",  # the way to the model passes a proxy that reads it
    "goals",  # turns of its own making
    "image_generation",
    "multi_agent",  # whose threads nobody here follows
    "plugins",
    "remote_plugin",
    "shell_snapshot",
    "skill_mcp_dependency_install",
    "tool_suggest",
    "unified_exec_tty",  # a line typed into a program that already runs is not asked about
    "unbounded_connection_retries",  # for ever
)


def files(*, model_port: int, tool_port: int, workspace: str, obey_repository: bool) -> dict[str, str]:
    """By their path below the home."""
    trust = "trusted" if obey_repository else "untrusted"
    config = {
        "model_provider": "longshore",
        "web_search": "disabled",  # it would look where the policy does not let it
        "check_for_update_on_startup": False,
        "analytics": {"enabled": False},
        "skills": {"bundled": {"enabled": False}},
        "feedback": {"enabled": False},
        "features": {**dict.fromkeys(OFF, False), "hooks": obey_repository},
        # Without an entry codex would trust the folder it is started in, and obey what lies in it. (It looks it up by
        # its real path.)
        "projects": {path: {"trust_level": trust} for path in (workspace, os.path.realpath(workspace))},
        "shell_environment_policy": {"inherit": "all", "exclude": [MODEL_TOKEN, TOOL_TOKEN]},
        "model_providers": {
            "longshore": {
                "name": "longshore",
                "base_url": f"http://127.0.0.1:{model_port}/v1",
                "env_key": MODEL_TOKEN,
                "wire_api": "responses",
                # The fleet retries, and holds no slot meanwhile.
                "request_max_retries": 0,
                "stream_max_retries": 0,
            }
        },
        "mcp_servers": {
            MCP_SERVER: {
                "url": f"http://127.0.0.1:{tool_port}/mcp",
                "bearer_token_env_var": TOOL_TOKEN,
                "required": True,  # else the first turn may begin without our tools
                "startup_timeout_sec": START_SECONDS,
                "tool_timeout_sec": TOOL_SECONDS,
                "default_tools_approval_mode": "approve",  # they have approvals of their own
            }
        },
    }
    return {".codex/config.toml": toml(config)}


def toml(settings: dict[str, Any]) -> str:
    """Strings of JSON are strings of TOML too."""
    return "".join(f"{json.dumps(name)} = {_value(value)}\n" for name, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_value(one)}" for name, one in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
