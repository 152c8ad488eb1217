"""A gateway that others can reach does not start before there is a token."""

import asyncio
import os
from asyncio.subprocess import STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.cli.gateway import _is_loopback
from tests.support.api_callers import make_token
from tests.support.fleet import Fleet
from tests.support.piped_process import PipedProcess, open_process

pytestmark = pytest.mark.spec("G2")


@asynccontextmanager
async def started(fleet: Fleet, *arguments: str) -> AsyncIterator[PipedProcess]:
    settings = fleet.runtime.settings
    own = {"DATABASE_URL": settings.database_url, "REDIS_URL": settings.redis_url, "LONGSHORE_HOME": str(settings.home)}
    command = ("longshore", "gateway", "--port", "0", *arguments)
    async with open_process(command, os.environ | own, Path.cwd(), stderr=STDOUT) as process:
        yield process


async def said(process: PipedProcess, words: str) -> str:
    """All it says, up to these words or its end."""
    text = ""
    async with asyncio.timeout(60):
        while words not in text and (line := await process.stdout.readline()):
            text += line.decode()
    return text


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_nobody_can_reach_a_gateway_without_a_token(fleet: Fleet) -> None:
    async with started(fleet, "--host", "0.0.0.0") as process:
        text = " ".join((await said(process, "\x00")).split())
        assert await process.wait() == 1
        assert "others can reach 0.0.0.0, and there is no token by which to tell who calls" in text
        assert "longshore token add NAME" in text
        assert "gateway.listens" not in text
    await make_token(fleet, "web:ada")
    async with started(fleet, "--host", "0.0.0.0") as process:
        assert "gateway.listens" in await said(process, "gateway.listens")


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("ship", False),
        ("localhost.example", False),
    ],
)
def test_which_addresses_others_can_reach(host: str, alone: bool) -> None:
    assert _is_loopback(host) is alone
