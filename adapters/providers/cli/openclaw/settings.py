"""The settings openclaw reads: our model door and our tools, its own tools for files and commands, our plug-in, and
nothing else of all that it can do. Most of it would only cost seconds and memory at each start."""

from typing import Any, Final

from adapters.contracts import QueryInput
from adapters.providers import catalog
from adapters.providers.cli.openclaw.plugin import FOLDER, PLUGIN_ID
from adapters.station import MCP_SERVER

VENDOR: Final = "longshore"  # how it knows the model's server
TOOLS: Final = ("read", "ls", "write", "edit", "apply_patch", "exec")
DAYS: Final = 7 * 24 * 3600
MAX_OUTPUT: Final = 32_000  # tokens of one answer


def settings(
    given: QueryInput, *, model: str, api: str, model_url: str, key: str, tools_url: str, tools_token: str,
    workspace: str, home: str, vendor: catalog.Vendor,
) -> dict[str, Any]:  # fmt: skip
    """`key` and `tools_token` are worth something for this attempt only."""
    obeys = given.policy.obey_repository
    context = catalog.facts(vendor, model, {}).context_tokens
    entry = {
        "id": model,
        "name": model,
        "reasoning": False,
        "input": ["text", "image"],
        "contextWindow": context,
        "maxTokens": min(MAX_OUTPUT, context // 2),
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},  # the fleet reckons
    }
    return {
        "models": {
            "mode": "replace",
            "providers": {VENDOR: {"baseUrl": model_url, "apiKey": key, "api": api, "models": [entry]}},
        },
        "agents": {
            "defaults": {
                "model": {"primary": f"{VENDOR}/{model}"},
                "workspace": workspace,
                "skipBootstrap": True,
                "timeoutSeconds": DAYS,  # the fleet has its own watch
                **({} if obeys else {"skills": []}),
            }
        },
        "skills": {"allowBundled": ["none"]},
        "mcp": {
            "servers": {
                MCP_SERVER: {
                    "url": tools_url,
                    "transport": "streamable-http",
                    "headers": {"Authorization": f"Bearer {tools_token}"},
                    "requestTimeoutMs": 24 * 3600 * 1000,
                }
            }
        },
        "tools": {
            # Else our tools would have to be searched for first.
            "toolSearch": False,
            "allow": [*TOOLS, f"{MCP_SERVER}__*"],
            # Our plug-in asks before each command; its own approvals need a gateway with people at it.
            "exec": {"mode": "full"},
            "fs": {"workspaceOnly": True},
        },
        "plugins": {
            "allow": [PLUGIN_ID],
            "load": {"paths": [f"{home}/{FOLDER}"]},
            "slots": {"memory": "none"},
            "entries": {
                PLUGIN_ID: {
                    "enabled": True,
                    "hooks": {"allowConversationAccess": True},
                    "config": {"systemPrompt": given.system_prompt} if given.system_prompt else {},
                }
            },
        },
        # It would start two threads with a copy of half the program to look for old sessions.
        "session": {"maintenance": {"mode": "warn"}},
        "update": {"checkOnStart": False},
        "logging": {"level": "silent", "consoleLevel": "error"},
    }
