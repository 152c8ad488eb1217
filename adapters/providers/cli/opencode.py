"""`opencode`, led over ACP (`opencode acp`), with any model that speaks OpenAI's chat protocol.

Its configuration comes by a variable, and asks before everything that it can ask about. What the workspace holds for it
(opencode.json, .opencode/) is not obeyed unless the group's policy says so. Plug-ins there it runs all the same: with
those it is not started."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput
from adapters.errors import WorkspaceError
from adapters.providers import catalog
from adapters.providers.cli.acp.driver import AcpDriver, Doors, Launch
from adapters.providers.cli.acp.query import AcpQuery
from adapters.providers.cli.installation import detection, inspected, note_on
from adapters.providers.cli.key_proxy import KeyProxy
from adapters.providers.cli.options import check_known, refusal
from adapters.providers.cli.usage_seen import Wire
from adapters.providers.credentials import is_openai, openai_credentials
from adapters.station import MCP_SERVER, Needs
from adapters.workspace import Workspace

PROGRAM: Final = "opencode"
TRIED: Final = ("1.18.33", "1.18.33")
COMMAND: Final = "acp"
PROVIDER: Final = "longshore"  # our model's door, among its providers
DATABASE: Final = ".local/share/opencode/opencode.db"
MODELS: Final = ".config/opencode/models.json"  # its list of all models there are takes seconds to read
INSTRUCTIONS: Final = ".config/opencode/longshore.md"
SETTINGS: Final = ("opencode.json", "opencode.jsonc")
MAX_SETTINGS: Final = 1 << 20
MAX_OUTPUT: Final = 32_000  # tokens
TOOL_MILLISECONDS: Final = 600_000
ASKED: Final = ("edit", "bash", "read", "grep", "webfetch", "websearch", "external_directory")


class OpencodeProvider(AcpDriver):
    manifest = Manifest(
        adapter_id="opencode",
        version="1",
        vendor="opencode",
        kind="cli",
        models=catalog.OPENAI.models,
        capabilities=Capabilities(
            streaming=True, tools=True, resume=True, push=True, images=True, mcp=True, approvals=True,
            structured_edits="file_events",
        ),
    )  # fmt: skip
    # A database, and what it has not yet written into its one file when the program is ended.
    needs = Needs(state=(DATABASE, f"{DATABASE}-wal"), memory_bytes=650 << 20, program=PROGRAM)

    # It writes its files itself, and then asks an editor to, whether there is one or not.
    passed_over = frozenset({"fs/write_text_file"})

    async def detect(self) -> Detection:
        return await detection(PROGRAM, TRIED)

    def check(self, options: Mapping[str, Any]) -> None:
        check_known(self.manifest.adapter_id, options, "price")

    def proxy(self, options: Mapping[str, Any]) -> tuple[Wire, KeyProxy]:
        return "openai", self._proxies.setdefault("openai", KeyProxy("openai", openai_credentials, final=True))

    def model(self, given: QueryInput) -> str:
        return given.model or catalog.OPENAI.default

    def vendor(self, given: QueryInput) -> catalog.Vendor:
        return catalog.OPENAI if is_openai(openai_credentials().base_url) else catalog.COMPATIBLE

    def query(self, given: QueryInput) -> AcpQuery:
        return AcpQuery(given, self)

    async def launch(self, given: QueryInput, doors: Doors) -> Launch:
        inspection = await inspected(PROGRAM)
        if inspection.help and not inspection.offers(COMMAND):
            raise refusal(
                f"opencode {inspection.version} has no `{COMMAND}`, by which it is led here: "
                f"install {TRIED[1]} (`make clis`)"
            )
        if not given.policy.obey_repository:
            found = await asyncio.to_thread(would_be_run, Path(given.cwd))
            if found:
                raise refusal(
                    f"opencode would run the plug-ins that the workspace's {found} names, and cannot be told not to: "
                    "take it away, or let it (obey_repository)"
                )
        return Launch(
            installation=inspection.installation,
            version=inspection.version,
            arguments=(COMMAND,),
            env=self._environment(given, doors),
            files={INSTRUCTIONS: given.system_prompt, MODELS: "{}"},
            notes=(note_on(inspection, TRIED),),
        )

    def _environment(self, given: QueryInput, doors: Doors) -> dict[str, str]:
        quiet = (
            "AUTOUPDATE",
            "MODELS_FETCH",
            "LSP_DOWNLOAD",
            "DEFAULT_PLUGINS",
            "SHARE",
            "TERMINAL_TITLE",
            "CHANNEL_DB",
        )
        env = {f"OPENCODE_DISABLE_{name}": "1" for name in quiet}
        if not given.policy.obey_repository:
            closed = ("OPENCODE_DISABLE_PROJECT_CONFIG", "OPENCODE_DISABLE_EXTERNAL_SKILLS", "OPENCODE_PURE")
            env |= dict.fromkeys(closed, "1")
        return env | {
            "OPENCODE_CONFIG_CONTENT": json.dumps(self._configuration(given, doors)),
            "OPENCODE_MODELS_PATH": f"{doors.home}/{MODELS}",
            "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
            "NO_COLOR": "1",
        }

    def _configuration(self, given: QueryInput, doors: Doors) -> dict[str, Any]:
        model = self.model(given)
        context = catalog.facts(self.vendor(given), model, given.options).context_tokens
        return {
            "model": f"{PROVIDER}/{model}",
            "small_model": f"{PROVIDER}/{model}",
            "enabled_providers": [PROVIDER],
            "provider": {
                PROVIDER: {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Longshore",
                    "options": {"baseURL": f"{doors.model_url}/v1", "apiKey": doors.model_token},
                    "models": {
                        model: {
                            "name": model,
                            "tool_call": True,
                            "attachment": True,
                            "modalities": {"input": ["text", "image"], "output": ["text"]},
                            "limit": {"context": context, "output": min(MAX_OUTPUT, context // 4)},
                        }
                    },
                }
            },
            "permission": {
                **dict.fromkeys(ASKED, "ask"),
                "task": "deny",  # a helper's questions reach nobody over ACP, and it waits for ever
                f"{MCP_SERVER}_*": "allow",
            },
            "agent": {"title": {"disable": True}},  # nobody sees it, and it would be one more call of the model
            "experimental": {"mcp_timeout": TOOL_MILLISECONDS},
            "instructions": [f"{doors.home}/{INSTRUCTIONS}"] if given.system_prompt else [],
            "autoupdate": False,
            "share": "disabled",
            "snapshot": False,
            "lsp": False,
            "formatter": False,
        }


def would_be_run(workspace: Path) -> str:
    """What it runs of a workspace although it was told to leave its settings alone; empty: nothing. What cannot be
    looked at is not trusted."""
    folder = workspace / ".opencode"
    if folder.is_symlink():
        return folder.name
    for name in ("plugin", "plugins"):
        if os.path.lexists(folder / name):
            return f"{folder.name}/{name}"
    for name in (*SETTINGS, *(f"{folder.name}/{name}" for name in SETTINGS)):
        if not os.path.lexists(workspace / name):
            continue
        try:
            text = Workspace(workspace).read(name, limit=MAX_SETTINGS + 1)
        except WorkspaceError:
            return name
        # A backslash can spell any word otherwise.
        if len(text) > MAX_SETTINGS or any(word in text for word in (b"plugin", b"policies", b"\\u")):
            return name
    return ""
