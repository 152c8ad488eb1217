"""What the Gemini CLI is told about itself: its environment, and the settings in its home."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from adapters.contracts import QueryInput
from adapters.providers.cli.acp.driver import Doors
from adapters.providers.cli.gemini import sessions

PROGRAM: Final = "gemini"
TRIED: Final = ("0.61.0", "0.61.0")
POLICIES: Final = f"{sessions.FOLDER}/policies/longshore.toml"
# It reads without asking, otherwise. A helper's questions reach nobody over ACP, and it waits for ever: it has none.
# Searching is the vendor's errand, past the policy's hosts (`errands.py`).
ASKED: Final = """[[rule]]
toolName = ["read_file", "read_many_files"]
decision = "ask_user"
priority = 999

[[rule]]
toolName = ["invoke_agent", "google_web_search"]
decision = "deny"
priority = 999
"""


def has_settings(given: QueryInput) -> bool:
    return os.path.lexists(Path(given.cwd, sessions.FOLDER))


def environment(doors: Doors) -> dict[str, str]:
    return {
        "GEMINI_API_KEY": doors.model_token,
        "GOOGLE_GEMINI_BASE_URL": doors.model_url,
        "GEMINI_CLI_NO_RELAUNCH": "true",  # else a wrapper stands between us and it, deaf to signals
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "NO_COLOR": "1",
    }


def files(given: QueryInput, more: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Its settings. The fleet does the retrying, and the updating."""
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {
            "maxAttempts": 1,
            "sessionRetention": {"enabled": False},
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
        },
        "tools": {"useRipgrep": False},  # it would have to be downloaded
        "advanced": {"ignoreLocalEnv": not given.policy.obey_repository, "autoConfigureMemory": False},
        **(more or {}),
    }
    return {
        f"{sessions.FOLDER}/settings.json": json.dumps(settings),
        f"{sessions.FOLDER}/GEMINI.md": given.system_prompt,
    }
