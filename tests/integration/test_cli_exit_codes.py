"""What `longshore` exits with: 0 fine, 1 refused or failed, 2 wrong usage, 69 a service is away, 130 interrupted."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import desk
from gateway.cli.main import app

pytestmark = [pytest.mark.spec("G4"), pytest.mark.parametrize("database_kind", ["sqlite"])]

NOBODY = "127.0.0.1:1"  # where nothing ever listens
AWAY = {"DATABASE_URL": f"postgresql://me:hunter2@{NOBODY}/x"}
NO_BROKER = {"REDIS_URL": f"redis://{NOBODY}/0"}
TABLE = [
    (0, "sessions", {}),
    (0, "--help", {}),
    (0, "groups add --help", {}),
    (0, "--version", {}),
    (0, "wirings --json", {}),
    (1, "sessions zzz", {}),
    (1, "sessions", {"DATABASE_URL": "nonsense"}),
    (1, "attach zzz", {}),  # not at a terminal
    (1, "send demo hello", {"REDIS_URL": "", "LONGSHORE_HOME": "/nonexistent"}),
    (2, "nonsense", {}),
    (2, "sessions --limit 0", {}),
    (2, "sessions --sing", {}),
    (2, "send demo", {}),
    (2, "tail zzz --agent demo", {}),
    (2, "groups", {}),  # shows its help
    (69, "sessions", AWAY),
    (69, "migrate", AWAY),
    (69, "tail", AWAY),
    (69, "health", {}),
    (69, "queues", NO_BROKER),
]


@pytest.fixture
def env(database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(desk, "configure_logs", lambda *_, **__: None)  # the whole process's
    return {
        "COLUMNS": "200",
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "DEFAULT_PROVIDER": "scripted",
        "LONGSHORE_HOME": str(tmp_path / "home"),
    }


@pytest.mark.parametrize(("code", "line", "changes"), TABLE)
def test_the_table(code: int, line: str, changes: dict[str, str], env: dict[str, str]) -> None:
    done = CliRunner().invoke(app, line.split(), env=env | changes)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == code, done.output
    assert "hunter2" not in done.output
    # What went wrong is for people, and never among what a program reads.
    said = done.stdout if line == "groups" else done.stderr
    assert bool(said) == bool(code), done.output


def test_an_interruption_is_130(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(desk, "_at_desk", interrupted)
    done = CliRunner().invoke(app, ["sessions"], env=env)
    assert (done.exit_code, done.output) == (130, "")


@pytest.mark.parametrize("line", ["sessions", "doctor"])
def test_a_command_in_a_wrong_folder_says_so_and_makes_nothing_there(
    line: str, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = CliRunner().invoke(app, [line], env=env | {"DATABASE_URL": "", "LONGSHORE_HOME": ".longshore"})
    assert done.exit_code == 1
    assert "there is no database at sqlite:///.longshore/longshore.db" in done.output
    assert "`longshore up`" in done.output
    assert list(tmp_path.joinpath("elsewhere").iterdir()) == []
