"""The page about tools is made from them, and every tool is fit to be shown to a model."""

import re
from pathlib import Path
from typing import Any

import pytest

from adapters.policy import Policy
from adapters.registry import Registry
from adapters.tool_port import Tool
from gateway.cli.tools import flags, page

ROOT = Path(__file__).parents[3]
REGISTRY = Registry()
TOOLS = [REGISTRY.tools.get(name) for name in REGISTRY.tools.names]
# Seed of the names: what agents of this kind are used to.
EXPECTED = {
    "T2": "send_message send_file send_card ask_user_question edit_message add_reaction send_to_agent",
    "T3": "schedule_task list_tasks cancel_task pause_task resume_task update_task",
    "T4": "register_agent_group reset_session list_sessions read_session",
    "T5": "read_file write_file edit_file list_files search_files run_command fetch_url",
}


@pytest.mark.spec("T1")
def test_the_page_is_what_the_tools_say() -> None:
    assert (ROOT / "docs/tools.md").read_text() == page(TOOLS), "longshore tools --markdown > docs/tools.md"


@pytest.mark.spec("T1", "T2", "T3", "T4", "T5")
@pytest.mark.parametrize("row", EXPECTED)
def test_every_tool_is_there(row: str) -> None:
    assert set(EXPECTED[row].split()) <= set(REGISTRY.tools.names)


@pytest.mark.spec("T1")
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_model_can_be_shown_it(tool: Tool[Any]) -> None:
    assert re.fullmatch(r"[a-z_]{1,64}", tool.name)
    assert "__" not in tool.name  # the names of MCP servers' tools
    assert tool.description[0].isupper()
    assert tool.spec.schema["type"] == "object"
    # A model that invents a parameter (an identity, a destination) is told so, not overheard.
    assert tool.spec.schema.get("additionalProperties") is False


@pytest.mark.spec("T1", "T6")
def test_flags() -> None:
    said = {tool.name: flags(tool) for tool in TOOLS}
    assert said["register_agent_group"] == ["admins only", "needs approval"]
    assert said["run_command"] == ["needs a sandbox"]
    assert said["send_to_agent"] == ["by policy"]
    assert said["read_file"] == []


def test_every_field_of_a_policy_is_explained() -> None:
    assert all(field.description for field in Policy.model_fields.values())
