"""Tab: the names of commands, options and values, as three shells ask for them; nothing when the database is away."""

import asyncio
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection
from typer.testing import CliRunner

from gateway.cli.main import app
from models import AgentGroup, Database
from models.base import new_id
from models.groups import ensure_messaging_group
from models.lookup import short
from models.sessions import Session

pytestmark = pytest.mark.spec("G4")

BIN = Path(sys.executable).parent
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])
HOSTILE = "$(touch owned)\"`'"


@pytest.fixture
def env(database_url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": f"{BIN}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(tmp_path),
        "DATABASE_URL": database_url,
        "LONGSHORE_HOME": str(tmp_path / "home"),
    }


@pytest.fixture
def session(database_url: str) -> str:
    """One of the agent `demo`; there is an agent `pilot`, too, and one with a name no shell should read."""
    session_id = new_id()

    async def make() -> None:
        db = Database(database_url)

        async def work(conn: AsyncConnection) -> None:
            groups = {folder: new_id() for folder in ("demo", "pilot", HOSTILE)}
            for folder, group in groups.items():
                await conn.execute(insert(AgentGroup).values(id=group, folder=folder, name=folder))
            place = await ensure_messaging_group(conn, "local", HOSTILE)
            values = {"id": session_id, "agent_group_id": groups["demo"], "messaging_group_id": place}
            await conn.execute(insert(Session).values(values))

        await db.transact(work)
        await db.close()

    asyncio.run(make())
    return session_id


def offered(line: str, env: dict[str, str]) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    asked = {"_LONGSHORE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner().invoke(app, [], env=env | asked, prog_name="longshore")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("longshore app", ["approvals", "approve"]),
        ("longshore groups s", ["show", "set"]),
        ("longshore tail --j", ["--json"]),
        ("longshore send ", ["demo", "pilot"]),
        ("longshore send p", ["pilot"]),
        ("longshore tail --agent d", ["demo"]),
        ("longshore groups set demo --provider op", ["openai", "openclaw", "opencode"]),
        ("longshore wire demo gith", ["github"]),
        ("longshore approve ", []),
    ],
)
def test_a_word_is_completed(line: str, values: list[str], env: dict[str, str], session: str) -> None:
    assert offered(line, env) == values


def test_a_session_is_completed_by_what_a_terminal_shows_of_it(env: dict[str, str], session: str) -> None:
    assert offered("longshore tail ", env) == [short(session)]
    assert offered("longshore sessions zzzz", env) == []


@ONE_DATABASE
@pytest.mark.parametrize(
    "url", ["postgresql://me@127.0.0.1:1/x", "sqlite:////nonexistent/longshore.db", "nonsense", "sqlite:///{}/new.db"]
)
def test_without_a_database_nothing_is_offered_and_nothing_made(url: str, env: dict[str, str], tmp_path: Path) -> None:
    assert offered("longshore send ", env | {"DATABASE_URL": url.format(tmp_path)}) == []
    assert not (tmp_path / "new.db").exists()


@ONE_DATABASE
def test_a_database_that_does_not_answer_is_not_waited_for(env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/x"
        asked = {"_LONGSHORE_COMPLETE": "complete_bash", "COMP_WORDS": "longshore send ", "COMP_CWORD": "2"}
        done = subprocess.run(["longshore"], env=env | asked | {"DATABASE_URL": url}, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@ONE_DATABASE
def test_bash_completes_by_the_script_it_is_given(env: dict[str, str], session: str, tmp_path: Path) -> None:
    script = """
        source /dev/stdin <<< "$(_LONGSHORE_COMPLETE=source_bash longshore)"
        COMP_WORDS=(longshore send "") COMP_CWORD=2
        _longshore_completion longshore
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "--norc", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["demo", "pilot"], done.stderr
    assert not (tmp_path / "owned").exists()


@ONE_DATABASE
@pytest.mark.parametrize(
    ("shell", "asked", "said"),
    [
        ("zsh", {}, '_arguments \'*: :(("demo"\n"pilot"))\''),
        ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "demo\npilot"),
    ],
)
def test_zsh_and_fish_ask_in_their_own_ways(
    shell: str, asked: dict[str, str], said: str, env: dict[str, str], session: str
) -> None:
    script = CliRunner().invoke(app, [], env=env | {"_LONGSHORE_COMPLETE": f"source_{shell}"}, prog_name="longshore")
    assert "longshore" in script.stdout
    asked = asked | {"_LONGSHORE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "longshore send "}
    done = CliRunner().invoke(app, [], env=env | asked, prog_name="longshore")
    assert done.stdout.strip() == said


@ONE_DATABASE
def test_the_script_is_installed_and_shown(env: dict[str, str], tmp_path: Path) -> None:
    # What a shell started is asked which shell that was.
    run = {"env": env, "capture_output": True, "text": True}
    shown = subprocess.run(["bash", "-c", "longshore --show-completion; exit $?"], check=True, **run)  # type: ignore[call-overload]
    assert "complete_bash" in shown.stdout
    subprocess.run(["bash", "-c", "longshore --install-completion; exit $?"], check=True, **run)  # type: ignore[call-overload]
    assert (tmp_path / ".bash_completions" / "longshore.sh").read_text().strip() == shown.stdout.strip()
    assert "longshore.sh" in (tmp_path / ".bashrc").read_text()
