"""What providers say of themselves is other people's words: a secret in them is shown at none of the doors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adapters.contracts import Detection
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Refused
from gateway.cli import desk
from gateway.cli.main import app
from gateway.doctor import examine
from models.fleet import note_limited
from tests.support.api_callers import caller
from tests.support.console_session import sign_in_user
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import gateway_to, registry_with

SECRET = "ghp_" + "a1B2" * 9


class Broken(ScriptedProvider):
    async def detect(self) -> Detection:
        raise OSError(f"cannot log in with {SECRET}")


class Talkative(ScriptedProvider):
    async def detect(self) -> Detection:
        return Detection(installed=True, version=f"1 {SECRET}", details=f"goes by {SECRET}")


@pytest.mark.spec("F9", "G4")
@pytest.mark.parametrize("database_kind", ["sqlite"])  # the words do not depend on it
async def test_a_secret_in_what_a_provider_says_is_shown_at_no_door(
    make_fleet: MakeFleet, database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = registry_with(tmp_path)
    made: dict[str, Any] = {"broken": Broken(), "scripted": ScriptedProvider(), "talkative": Talkative()}
    registry.providers = Drivers("provider", made)
    registry.providers.refused.append(Refused("odd", "odd 1", f"its key is {SECRET}"))
    fleet = await make_fleet(registry)
    await fleet.db.transact(lambda conn: note_limited(conn, "scripted", "", f"429 for {SECRET}", 240))
    environment = {"DATABASE_URL": database_url, "REDIS_URL": redis_url, "LONGSHORE_HOME": str(tmp_path / "home")}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(desk, "configure_logs", lambda *_, **__: None)  # the whole process's
    monkeypatch.setattr(desk.Desk, "registry", registry)
    monkeypatch.setattr(desk.out, "_width", 200)  # wherever the tests are run

    async with gateway_to(fleet) as gateway:
        shown = {
            "api": (await (await caller(gateway, "olga", "owner")).ask("GET", "/v1/providers")).text,
            "console": (await (await sign_in_user(gateway)).get("/providers/list")).text,
        }
    for words in (["providers"], ["providers", "--json"]):
        shown[" ".join(words)] = (await asyncio.to_thread(CliRunner().invoke, app, words)).stdout
    for door, text in shown.items():
        for said in ("cannot log in with", "goes by", "429 for", "its key is"):
            assert f"{said} [redacted]" in text, (door, text)
        assert SECRET not in text, door
    checks = str([check async for check in examine(fleet.runtime.settings, registry)])
    assert SECRET not in checks
    assert "cannot log in with [redacted]" in checks
