"""What the first agent is told about itself."""

from pathlib import Path

import pytest

from gateway.assistant import ensure_instructions

pytestmark = pytest.mark.spec("G6")


def test_instructions_are_written_once_and_never_over_somebodys_own(tmp_path: Path) -> None:
    root = tmp_path / "workspaces"
    ensure_instructions(root)
    file = root / "assistant" / "AGENTS.md"
    assert "ask_user_question" in file.read_text()
    file.write_text("mine")
    ensure_instructions(root)
    assert file.read_text() == "mine"
