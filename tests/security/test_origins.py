"""By which name the gateway is called, from which page, and what its answers say to browsers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_callers import Caller, caller
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

pytestmark = [
    pytest.mark.spec("G2", "G3"),
    pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True),
]
APP = "https://app.example"
EVIL = "https://evil.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    settings = {"public_url": "https://agents.example", "hosts": "ship, Other.Example", "origins": f"{APP}/, http://b"}
    fleet = await make_fleet(registry_with(tmp_path), **settings)
    async with gateway_to(fleet) as gateway:
        yield gateway


@pytest.fixture
async def owner(gateway: Gateway) -> Caller:
    return await caller(gateway, "olga", "owner")


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:8400", True),
        ("localhost:8400", True),
        ("LOCALHOST", True),
        ("[::1]:8400", True),
        ("192.168.1.7:8400", True),  # an address cannot be led elsewhere
        ("agents.example", True),
        ("agents.example:443", True),
        ("ship:8400", True),
        ("other.example", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("agents.example.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("agents.example@evil.example", False),
        ("evil.example:agents.example", False),
        ("agents.example:x", False),
        ("2130706433", False),
        ("[::1", False),
        ("ADDRESS", False),
        ("", False),
    ],
)
async def test_the_gateway_answers_to_its_own_names_only(
    gateway: Gateway, owner: Caller, host: str, known: bool
) -> None:
    answer = await owner.ask("GET", "/v1/groups", Host=host)
    assert answer.status_code == (200 if known else 421)
    if not known:
        assert "LONGSHORE_PUBLIC_URL or LONGSHORE_HOSTS" in answer.json()["detail"]
        console = await gateway.client.get("/console/sign-in", headers={"Host": host})
        assert console.status_code == 421


async def test_webhooks_and_probes_come_by_any_name(gateway: Gateway) -> None:
    headers = {"Host": "whatever.example", "Origin": EVIL}
    assert (await gateway.client.get("/healthz", headers=headers)).status_code == 200
    sent = await gateway.client.post("/channels/platform", content=b"{}", headers=headers)
    assert (sent.status_code, "not signed" in sent.json()["detail"]) == (401, True)


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://127.0.0.1:1", "file://", f"{APP}.evil.example", f"{APP}:8443", "http://[", "x"]
)
async def test_pages_of_others_change_nothing(gateway: Gateway, owner: Caller, origin: str) -> None:
    for method, path, body in (
        ("POST", "/v1/groups", {"agent": "ann"}),
        ("PATCH", "/v1/groups/ann", {"name": "x"}),
        ("DELETE", "/v1/wirings/x", None),
        ("POST", "/web/presses", {"token": "x"}),
        ("POST", "/console/sign-in", {}),
    ):
        answer = await owner.ask(method, path, body, Origin=origin)
        assert (answer.status_code, "nothing was done" in answer.json()["detail"]) == (403, True), path
        assert "access-control-allow-origin" not in answer.headers
    assert (await owner.get("/v1/groups"))["items"] == []


async def test_listed_pages_and_our_own_may(gateway: Gateway, owner: Caller) -> None:
    ours = {"Origin": f"http://127.0.0.1:{gateway.port}"}
    for number, origin in enumerate((APP, "http://b", "https://agents.example", ours["Origin"])):
        answer = await owner.ask("POST", "/v1/groups", {"agent": f"a{number}"}, Origin=origin)
        assert answer.status_code == 201
        assert answer.headers.get("access-control-allow-origin") == (None if origin == ours["Origin"] else origin)
        assert "access-control-allow-credentials" not in answer.headers
        assert "Origin" in answer.headers["vary"]
    refused = await owner.ask("GET", "/v1/groups/none", Origin=APP)
    assert refused.headers["access-control-allow-origin"] == APP  # they may read why


async def test_browsers_ask_beforehand(gateway: Gateway) -> None:
    asked = await gateway.client.options("/v1/messages", headers={"Origin": APP} | PREFLIGHT)
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, APP)
    allowed = asked.headers["access-control-allow-headers"]
    assert all(name in allowed for name in ("Authorization", "Idempotency-Key", "Last-Event-ID"))
    for path, origin in (("/v1/messages", EVIL), ("/console/sign-in", APP), ("/console/", APP)):
        refused = await gateway.client.options(path, headers={"Origin": origin} | PREFLIGHT)
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers


async def test_a_page_of_others_reads_nothing(gateway: Gateway, owner: Caller) -> None:
    for path in ("/v1/groups", "/openapi.json", "/healthz", "/console/sign-in"):
        answer = await owner.ask("GET", path, Origin=EVIL)
        assert "access-control-allow-origin" not in answer.headers


async def test_every_answer_has_the_headers(gateway: Gateway, owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    answers = [
        await owner.ask("GET", "/v1/groups"),
        await owner.ask("GET", "/v1/groups/none"),
        await owner.ask("GET", "/nothing"),
        await owner.ask("PUT", "/healthz"),
        await owner.ask("GET", "/healthz"),
        await gateway.client.get("/console/sign-in"),
        await gateway.client.get("/v1/groups", headers={"Host": "evil.example"}),
        await gateway.client.post("/v1/groups", headers={"Origin": EVIL}),
        await gateway.client.post("/channels/none"),
    ]
    monkeypatch.setattr("gateway.http.api.groups.agent_groups", broken)
    answers.append(await owner.ask("GET", "/v1/groups"))
    assert [answer.status_code for answer in answers] == [200, 404, 404, 405, 200, 200, 421, 403, 404, 500]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] in ("no-referrer", "same-origin")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
