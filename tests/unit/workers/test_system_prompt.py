"""The system prompt: made from the agent's folder, the same bytes every time, and nothing from elsewhere."""

from pathlib import Path

import pytest

from adapters.contracts import ToolSpec
from adapters.errors import ToolError
from adapters.policy import Policy
from adapters.tool_port import ToolContext
from adapters.tools.skills import MAX_BYTES, READ_SKILL, ReadSkillArguments
from adapters.web import Web
from adapters.workspace import Workspace
from workers.system_prompt import system_prompt

TOOLS = (ToolSpec("clock", "Tells the time.", {}),)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.spec("P18")
async def test_everything_of_an_agent_is_in_its_prompt(tmp_path: Path) -> None:
    _write(tmp_path / "global" / "AGENTS.md", "Be kind.")
    _write(tmp_path / "demo" / "AGENTS.md", "Count ships.")
    _write(tmp_path / "demo" / "CLAUDE.md", "never read: AGENTS.md is there")
    _write(tmp_path / "demo" / "SOUL.md", "Calm.")
    _write(
        tmp_path / "demo" / "skills" / "knots" / "SKILL.md",
        "---\nname: knots\ndescription: Tying knots\n---\nLong text",
    )
    prompt = await system_prompt(tmp_path, "demo", "Demo", TOOLS)
    in_order = ["You are Demo", "Be kind.", "Count ships.", "Calm.", "- knots: Tying knots", "- clock: Tells the time."]
    assert [prompt.index(part) for part in in_order] == sorted(prompt.index(part) for part in in_order)
    assert "never read" not in prompt
    assert "Long text" not in prompt
    assert await system_prompt(tmp_path, "demo", "Demo", TOOLS) == prompt


@pytest.mark.spec("P18")
async def test_the_main_agent_has_no_instructions_for_all(tmp_path: Path) -> None:
    _write(tmp_path / "global" / "CLAUDE.md", "For the others.")
    assert "For the others." not in await system_prompt(tmp_path, "main", "Main", ())
    assert "For the others." in await system_prompt(tmp_path, "helper", "Helper", ())


@pytest.mark.spec("P18")
async def test_an_empty_folder_makes_a_prompt_all_the_same(tmp_path: Path) -> None:
    assert (await system_prompt(tmp_path, "new", "New", ())).startswith("You are New, an agent.")


@pytest.mark.spec("P18")
async def test_links_that_lead_out_and_odd_files_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    _write(secret, "the secret")
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "AGENTS.md").symlink_to(secret)
    (folder / "SOUL.md").mkdir()
    (folder / "skills").symlink_to(tmp_path)
    assert "the secret" not in await system_prompt(tmp_path, "demo", "Demo", ())


@pytest.mark.spec("P18")
async def test_links_within_the_folder_are_followed_and_sizes_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    _write(folder / "data" / "rules.md", "Be brief.")
    _write(folder / "SOUL.md", "x" * (MAX_BYTES + 1000))
    (folder / "AGENTS.md").symlink_to("data/rules.md")
    prompt = await system_prompt(tmp_path, "demo", "Demo", ())
    assert "Be brief." in prompt
    assert prompt.endswith("\n\n" + "x" * MAX_BYTES)


@pytest.mark.spec("P18", "T1")
async def test_a_skill_is_read_on_demand(tmp_path: Path) -> None:
    _write(tmp_path / "skills" / "knots" / "SKILL.md", "How to tie a bowline")
    context = ToolContext(
        session_id="s",
        turn_id="t",
        call="c",
        agent_group="demo",
        sender_id=None,
        workspace=Workspace(tmp_path),
        outbox=tmp_path / "outbox",
        policy=Policy(),
        web=Web(),
    )
    assert await READ_SKILL.handler(ReadSkillArguments(name="knots"), context) == "How to tie a bowline"
    with pytest.raises(ToolError, match="there is no skill 'splices'"):
        await READ_SKILL.handler(ReadSkillArguments(name="splices"), context)
    with pytest.raises(ValueError, match="name"):
        ReadSkillArguments(name="../knots")


@pytest.mark.spec("P18", "T2")
async def test_what_may_be_named_in_a_call_is_told(tmp_path: Path) -> None:
    policy = Policy.model_validate(
        {
            "commands": ["git", "make"],
            "destinations": {"alerts": {"channel_type": "webhook", "platform_id": "secret-place"}},
            "agents": ["researcher"],
        }
    )
    tools = [ToolSpec(name, "Does it.", {}) for name in ("run_command", "send_message")]
    prompt = await system_prompt(tmp_path, "demo", "Demo", tools, policy)
    assert "Programs run_command may start: git, make." in prompt
    assert "send_message can name with `to`: alerts." in prompt
    assert "secret-place" not in prompt  # where that is, is not the agent's business
    assert "researcher" not in prompt  # it does not have the tool
