"""What one caller, or somebody without any token, can take from all the others: their time, and their connections."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.http import waiting
from tests.support.api_callers import caller
from tests.support.api_seeds import seed
from tests.support.console_session import sign_in_user
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

pytestmark = [pytest.mark.spec("G2", "G3"), pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)]
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_to(await make_fleet(registry_with(tmp_path))) as opened:
        yield opened


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    """Sent without saying how long it is."""
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


@pytest.mark.parametrize("cookie", ["", "longshore_console=guessed"])
@pytest.mark.parametrize("path", ["/sign-in", "/enter", "/chat/say", "/dead/acts"])
async def test_long_forms_are_read_of_nobody_who_is_not_signed_in(gateway: Gateway, path: str, cookie: str) -> None:
    """A form is read before anybody is asked who they are; one of a megabyte takes half a second of everybody's."""
    headers = {"Origin": f"http://127.0.0.1:{gateway.port}", "Content-Type": FORM, "Cookie": cookie}
    for body in (b"&" * 1_000_000, pieces(b"token=" + b"%41" * 10_000)):
        answer = await gateway.client.post(f"/console{path}", content=body, headers=headers)
        assert (answer.status_code, "sign in first" in answer.text.lower()) == (413, True)


async def test_who_is_signed_in_says_as_much_as_they_like(gateway: Gateway) -> None:
    names = await seed(gateway.fleet, "demo", "tide")
    ada = await sign_in_user(gateway, "ada", "admin", names["group"])
    long = "ё" * 100_000  # six signs each, on the way
    said = await ada.post(f"/sessions/{names['session_id']}/say", {"text": long, "key": "k"})
    assert said.status_code == 303
    assert [row for row in await gateway.fleet.inbox() if row.content.get("text") == long]


async def test_one_caller_does_not_hold_all_connections_by_waiting(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_WAITS", 3)
    group = await gateway.fleet.add_group()
    ada, bo = await caller(gateway, "ada", "admin", group), await caller(gateway, "bo", "admin", group)
    sent = await ada.post("/v1/messages", {"agent_group": "demo", "text": "x"}, 202)
    path = f"/v1/messages/{sent['id']}"
    asked = [asyncio.create_task(ada.ask("GET", path, Prefer="wait=30")) for _ in range(5)]
    async with asyncio.timeout(20):
        over, waits = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(over) < 2:
            over, waits = await asyncio.wait(asked, timeout=0.1)
        assert len(waits) == 3
        assert {(one.result().status_code, "preference-applied" in one.result().headers) for one in over} == {
            (200, False)
        }
        others = await bo.ask("GET", path, Prefer="wait=1")
        assert others.headers["preference-applied"] == "wait=1"
        await gateway.fleet.settle_down()
        for one in waits:
            assert (await one).json()["status"] == "completed"
    again = await ada.ask("GET", path, Prefer="wait=1")
    assert again.headers["preference-applied"] == "wait=1", "those that are over count no more"
