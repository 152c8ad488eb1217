"""Secrets among an agent's settings: whoever may look at an agent does not read them, and whoever changes something
else beside them, with `(set)` where they stand, leaves them as they are."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from models import AgentGroup
from tests.support.api_callers import caller
from tests.support.console_session import sign_in_user, text_of
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

pytestmark = [pytest.mark.spec("G2", "G3"), pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)]
OPTIONS: dict[str, Any] = {
    "command": "sh",
    "args": ["--api-key", "hunter1", "--mode=quick", "--token=hunter1"],
    "env": {"AUTH_HOST": "hunter1", "MODE": "quick"},
}
SERVER = {"command": "uvx", "args": ["mcp-server-time==2025.9.25"], "env": {"API_KEY": "$LONGSHORE_SECRET_TIME"}}
CONFIG = {"provider_options": OPTIONS, "policy": {"mcp_servers": {"time": SERVER}}}


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_to(await make_fleet(registry_with(tmp_path))) as opened:
        await opened.fleet.add_group(config=CONFIG, provider="acp")
        yield opened


async def config_of(gateway: Gateway) -> dict[str, Any]:
    [row] = await gateway.fleet.rows(AgentGroup)
    config: dict[str, Any] = row.config
    return config


TYPED_OPTIONS = """
command: sh
args: [--api-key, (set), --mode=slow, --token=(set)]
env: {AUTH_HOST: (set), MODE: slow}
"""
TYPED_POLICY = """
mcp_servers:
  time:
    command: uvx
    args: [mcp-server-time==2025.9.25]
    env: {API_KEY: (set)}
without: [clock]
"""


async def test_a_secret_stays_when_something_beside_it_is_changed(gateway: Gateway) -> None:
    ada = await sign_in_user(gateway)
    form = {"name": "demo", "provider": "acp", "options": TYPED_OPTIONS, "policy": TYPED_POLICY}
    answer = await ada.post("/groups/demo", form)
    assert "Saved" in text_of(answer), text_of(answer)
    assert await config_of(gateway) == {
        "provider_options": {
            "command": "sh",
            "args": ["--api-key", "hunter1", "--mode=slow", "--token=hunter1"],
            "env": {"AUTH_HOST": "hunter1", "MODE": "slow"},
        },
        "policy": {"mcp_servers": {"time": SERVER}, "without": ["clock"]},
    }


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ("options", "command: sh\nenv: {AUTH_HOST: (set), AUTH_PORT: (set)}"),
        ("options", "command: sh\nargs: [--mode=slow, --token=(set)]"),
        ("policy", "mcp_servers: {other: {command: uvx, args: [a==1], env: {API_KEY: (set)}}}"),
    ],
)
async def test_what_is_shown_instead_of_a_secret_is_never_kept_as_one(gateway: Gateway, field: str, typed: str) -> None:
    ada = await sign_in_user(gateway)
    shown = {"name": "demo", "provider": "acp", "options": TYPED_OPTIONS, "policy": TYPED_POLICY}
    answer = await ada.post("/groups/demo", shown | {field: typed})
    assert (answer.status_code, "is only what is shown" in text_of(answer)) == (422, True)
    assert await config_of(gateway) == CONFIG


async def test_words_that_only_look_like_it_are_words(gateway: Gateway) -> None:
    owner = await caller(gateway, "olga", "owner")
    script = "say: a (set) of keys\nthen: keyboard=us"
    await owner.post("/v1/groups", {"agent": "ann", "provider": "scripted", "options": {"script": script}}, 201)
    assert (await owner.get("/v1/groups/ann"))["options"] == {"script": script}


async def test_over_the_api_neither(gateway: Gateway) -> None:
    owner = await caller(gateway, "olga", "owner")
    shown = await owner.get("/v1/groups/demo")
    for part in ("options", "policy"):
        told = await owner.patch("/v1/groups/demo", {part: shown[part]}, 422)
        assert "is only what is shown" in told["detail"]
    assert await config_of(gateway) == CONFIG


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Authorization": "Basic aHVudGVyMg"}},
        {"headers": {"x-auth": "hunter2"}},
        {"headers": {"Cookie": "sid=hunter2"}},
        {"proxy": "http://ada:hunter2@proxy.example:3128/"},
        {"base_url": "https://api.example/v1?api_key=hunter2"},
        {"args": ["--api-key", "hunter2"]},
        {"args": ["--token=hunter2"]},
        {"bearer": "hunter2"},
    ],
)
async def test_an_admin_who_looks_reads_no_secret_however_it_is_called(
    gateway: Gateway, options: dict[str, Any]
) -> None:
    group = await gateway.fleet.add_group("ann", config={"provider_options": options})
    admin = await caller(gateway, "ada", "admin", group)
    page = await (await sign_in_user(gateway, "bo", "admin", group)).get("/groups/ann")
    for text in (str(await admin.get("/v1/groups/ann")), page.text):
        assert ("hunter2" in text, "aHVudGVyMg" in text) == (False, False)
