"""`gemini`: Google's Gemini CLI, led over ACP (`gemini --acp`).

It must trust its folder or it would not offer our tools, and a trusted folder's settings are obeyed. So it is started
outside the workspace, and reads none of them unless the group's policy says so."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput
from adapters.providers import catalog
from adapters.providers.cli import gemini_sessions
from adapters.providers.cli.acp import AcpDriver, Doors, Launch
from adapters.providers.cli.acp_options import check_none, inspected
from adapters.providers.cli.installation import detection, note_on
from adapters.providers.cli.key_proxy import KeyProxy, Wire
from adapters.providers.cli.program import station_of
from adapters.providers.credentials import gemini_credentials
from adapters.station import Needs

PROGRAM: Final = "gemini"
TRIED: Final = ("0.61.0", "0.61.0")
GOOGLE: Final = catalog.Vendor(
    default="gemini-3.8-flash",
    models=("gemini-3.1-pro-preview", "gemini-3.8-flash", "gemini-3.5-flash-lite", "gemini-2.5-pro"),
    context_tokens=1_000_000,
    priced_as="google",
)


class GeminiProvider(AcpDriver):
    manifest = Manifest(
        adapter_id="gemini",
        version="1",
        vendor="google",
        kind="cli",
        models=GOOGLE.models,
        capabilities=Capabilities(
            streaming=True, tools=True, resume=True, push=True, images=True, mcp=True, approvals=True,
            structured_edits="file_events",
        ),
    )  # fmt: skip
    needs = Needs(state=(gemini_sessions.STATE,), memory_bytes=350 << 20)

    async def detect(self) -> Detection:
        return await detection(PROGRAM, TRIED)

    def check(self, options: Mapping[str, Any]) -> None:
        check_none(self.manifest.adapter_id, options)

    def proxy(self, options: Mapping[str, Any]) -> tuple[Wire, KeyProxy]:
        return "gemini", self._proxies.setdefault("gemini", KeyProxy("gemini", gemini_credentials))

    def model(self, given: QueryInput) -> str:
        return given.model or GOOGLE.default

    def vendor(self, given: QueryInput) -> catalog.Vendor:
        return GOOGLE

    def tool_name(self, call_id: str, title: str, kind: str) -> str:
        """It puts the tool's name before each call's id."""
        from adapters.providers.cli.acp_events import own_name

        name, found, _ = call_id.partition("__")
        return own_name(name) if found else super().tool_name(call_id, title, kind)

    async def launch(self, given: QueryInput, doors: Doors) -> Launch:
        inspection = await inspected(PROGRAM)
        home = station_of(given).home
        await asyncio.to_thread(gemini_sessions.make_ready, home, given.continuation)
        obeys = given.policy.obey_repository
        seed, laid_out = "", {}
        if not obeys and os.path.lexists(Path(given.cwd, gemini_sessions.FOLDER)):
            # For a new conversation it would look for settings in the workspace, for an old one it does not.
            seed, laid_out = gemini_sessions.seed()
        return Launch(
            installation=inspection.installation,
            version=inspection.version,
            arguments=("--acp" if inspection.offers("--acp") else "--experimental-acp", "-m", self.model(given)),
            env=environment(doors),
            files=files(given) | gemini_sessions.registry(doors.workspace) | laid_out,
            notes=(note_on(inspection, TRIED),),
            outside=not obeys,
            choose=self.model(given),
            seed=seed,
        )


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
        "general": {"maxAttempts": 1, "enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "tools": {"useRipgrep": False},  # it would have to be downloaded
        "advanced": {"ignoreLocalEnv": not given.policy.obey_repository, "autoConfigureMemory": False},
        **(more or {}),
    }
    return {
        f"{gemini_sessions.FOLDER}/settings.json": json.dumps(settings),
        f"{gemini_sessions.FOLDER}/GEMINI.md": given.system_prompt,
    }
