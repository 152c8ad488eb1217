"""`longshore --help`: a table of contents that is read on any terminal, and costs next to nothing."""

import subprocess
import sys

import pytest
from rich.cells import cell_len
from typer.core import TyperCommand
from typer.testing import CliRunner

from gateway.cli.main import CONTENTS, app
from tests.support.command_tree import commands

pytestmark = pytest.mark.spec("G4")

ASKED_FOR = "up send chat tail sessions groups wire tasks approve dead replay providers usage doctor migrate token"


def helped(*words: str, columns: int = 100, **env: str) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(columns), **env}, prog_name="longshore")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("columns", [100, 60, 40])
def test_every_command_is_in_the_table_and_fits(columns: int) -> None:
    lines = helped(columns=columns).splitlines()
    assert all(cell_len(line) <= columns for line in lines)
    text = "\n".join(lines)
    assert [panel for panel in CONTENTS if f"─ {panel} ─" not in text] == []
    names = [name for entries in CONTENTS.values() for name in entries]
    assert [name for name in names if f"│ {name} " not in text] == []
    assert "─ Commands ─" not in text, "a command without a panel"
    assert "\x1b" not in text, "colours in a pipe"


def test_a_commands_line_is_short_and_ends() -> None:
    for entries in CONTENTS.values():
        for name, entry in entries.items():
            assert entry.line.endswith((".", "?")), name
            assert len(entry.line) <= 60, name


@pytest.mark.parametrize("words", commands())
def test_every_command_explains_itself(words: str) -> None:
    text = helped(*words.split(), columns=40)
    assert f"longshore {words}" in " ".join(text.split())
    assert all(cell_len(line) <= 40 for line in text.splitlines())


@pytest.mark.parametrize(("words", "command"), commands().items(), ids=commands())
def test_every_option_says_what_it_is_for(words: str, command: TyperCommand) -> None:
    assert [param.opts for param in command.params if not getattr(param, "help", None)] == []


def test_what_was_asked_for_is_there() -> None:
    assert set(ASKED_FOR.split()) <= {words.split()[0] for words in commands()}


def test_colours_are_for_terminals_and_only_if_wanted() -> None:
    program = (
        "import sys; from gateway.cli.main import app; "
        "sys.stdout.isatty = sys.stderr.isatty = lambda: True; app(['--help'], prog_name='longshore')"
    )

    def shown(**env: str) -> str:
        env = {"PATH": "/usr/bin:/bin", "TERM": "xterm-256color", "COLUMNS": "80", "LANG": "C.UTF-8"} | env
        return subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
        ).stdout

    assert "\x1b[1;36mup" in shown().replace("\x1b[0m", "")
    assert "36m" not in shown(NO_COLOR="1")


def test_the_table_of_contents_imports_no_command() -> None:
    program = (
        "import sys; from gateway.cli.main import app; "
        "app(['--help'], prog_name='longshore', standalone_mode=False); "
        "sys.exit(any(name in sys.modules for name in ('sqlalchemy', 'redis', 'pydantic', 'celery')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
