"""docs/cli.md: every command and no other, with an example that could be typed."""

import re
import shlex
from pathlib import Path

import pytest

from gateway.cli.completion import PATIENCE_SECONDS
from gateway.cli.main import CONTENTS
from tests.support.command_tree import commands, has_option

pytestmark = pytest.mark.spec("G4")

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| `longshore ([^`]+)` \|$", PAGE, re.MULTILINE)


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    assert sorted(words for words, _, _ in ROWS) == sorted(commands())


def test_they_stand_under_the_panels_of_the_help() -> None:
    parts = re.split(r"^### ", PAGE.partition("## Chat")[0], flags=re.MULTILINE)[1:]
    listed = {
        part.splitlines()[0]: {row.split()[0] for row in re.findall(r"^\| `([^`]+)`", part, re.M)} for part in parts
    }
    assert listed == {panel: set(entries) for panel, entries in CONTENTS.items()}


@pytest.mark.parametrize(("words", "example"), [(words, example) for words, _, example in ROWS])
def test_an_example_calls_its_command_with_options_it_has(words: str, example: str) -> None:
    assert f"{example} ".startswith(f"{words} ")
    given = [word for word in shlex.split(example) if word.startswith("--")]
    assert [option for option in given if not has_option(commands()[words], option)] == []


def test_the_wait_for_a_database_is_as_said() -> None:
    assert f"within {PATIENCE_SECONDS:g} seconds" in PAGE
