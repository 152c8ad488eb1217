"""The command line in the test's own process."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import desk as desk_module
from gateway.cli.desk import Desk
from gateway.cli.main import app
from tests.support.fleet import Fleet


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str


Cli = Callable[..., Awaitable[CommandResult]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, database_url: str, redis_url: str, tmp_path: Path, fleet: Fleet) -> Cli:
    """The command line in this process, with the fleet's bells."""
    environment = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "LONGSHORE_HOME": str(tmp_path / "home"),
        "DEFAULT_PROVIDER": "scripted",
        "COLUMNS": "200",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(desk_module, "configure_logs", lambda *_, **__: None)  # the whole process's
    monkeypatch.setattr(Desk, "bells", fleet.bells)
    monkeypatch.setattr(desk_module.out, "_width", 200)  # wherever the tests are run

    async def run(*arguments: str) -> CommandResult:
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    return run
