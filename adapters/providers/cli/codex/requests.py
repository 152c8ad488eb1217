"""What goes between us and codex besides events: the prompt as it takes it, and what it asks as an Intent. Pure."""

from collections.abc import Mapping
from typing import Any

from adapters.contracts import ContentBlock, QueryInput
from adapters.providers.cli.codex.events import SHELL
from adapters.risk import Intent


def prompt(given: QueryInput, workspace: str) -> list[dict[str, Any]]:
    blocks = (ContentBlock("text", given.prompt),) if isinstance(given.prompt, str) else given.prompt
    return [_block(block, workspace) for block in blocks]


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def history_item(text: str) -> dict[str, Any]:
    """What the user said, in the words of the model's API."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def thread_settings(given: QueryInput, model: str, workspace: str) -> dict[str, Any]:
    """`untrusted` is its word for asking before every command and every change of files."""
    settings = {
        "cwd": workspace,
        "model": model,
        "approvalPolicy": "untrusted",
        "approvalsReviewer": "user",
        "sandbox": "danger-full-access",
    }
    return {**settings, "developerInstructions": given.system_prompt} if given.system_prompt else settings


def command_intent(asked: Mapping[str, Any]) -> Intent | None:
    """None: it does not say what it is about."""
    network, command = asked.get("networkApprovalContext"), asked.get("command")
    url = f"{network.get('protocol', 'https')}://{network.get('host', '')}" if isinstance(network, dict) else ""
    command = command if isinstance(command, str) and command.strip() else ""
    return (
        Intent(SHELL, command=command, url=url, details={"folder": str(asked.get("cwd"))}) if command or url else None
    )


def mcp_intent(asked: Mapping[str, Any]) -> Intent | None:
    """None if it is not about calling a tool: a server that wants something else of a person gets nothing."""
    meta = asked.get("_meta")
    if not isinstance(meta, dict) or meta.get("codex_approval_kind") != "mcp_tool_call":
        return None
    return Intent(
        f"mcp__{asked.get('serverName')}",
        details={"asked": str(asked.get("message")), "arguments": meta.get("tool_params")},
    )


def _block(block: ContentBlock, workspace: str) -> dict[str, Any]:
    match block.type:
        case "text":
            return said(block.text)
        case "image":
            return {"type": "localImage", "path": f"{workspace}/{block.path}"}
        case _:
            return said(f"[attached: {workspace}/{block.path}]")
