"""Every route of the API is asked without a token, with wrong ones, with too small a scope, and by people whose
business it is not. The list is the OpenAPI document's, and the document has all routes: none can be forgotten."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from gateway.http import api
from gateway.http.api import routes as all_routes
from models import Token
from models.people import AgentGroupMember
from models.tokens import SCOPES, Scope, hash_secret, revoke_token
from tests.support.api_callers import ALL_SCOPES, Caller, caller, make_token
from tests.support.api_seeds import seed
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

pytestmark = [
    pytest.mark.spec("G2", "G3"),
    pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True),
]
WORD = "quetzalcoatl"  # in all that is the other agent's
# What makes a request complete; what is not named here needs no body.
BODIES: dict[str, Any] = {
    "send_message": {"agent_group": "{folder}", "text": "x"},
    "say": {"text": "x"},
    "make_replay": {},
    "decide_approval": {"decision": "approve"},
    "answer_question": {"answer": "x"},
    "add_agent": {"agent": "new"},
    "change_group": {"name": "x"},
    "wire": {"agent": "{folder}", "channel": "fake", "chat": "room"},
    "add_task": {"agent": "{folder}", "prompt": "x", "every": "@daily"},
    "change_task": {"prompt": "x"},
}
# What somebody without any standing may read: lists, with nothing of the others' in them.
OPEN_LISTS = {
    "list_sessions",
    "list_dead",
    "list_undelivered",
    "list_approvals",
    "list_questions",
    "list_groups",
    "list_wirings",
    "list_tasks",
    "list_workflows",
    "usage",
    "budgets",
    "show_fleet",
}


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    id: str
    scope: Scope

    def filled(self, ids: dict[str, str]) -> tuple[str, Any]:
        """The address and the body, about these rows."""
        names = ids | ({"message_id": ids["undelivered"]} if "undelivered" in self.path else {})
        body = {key: value.format(**names) for key, value in BODIES[self.id].items()} if self.id in BODIES else None
        return self.path.format(**names), body


def operations_in(document: dict[str, Any]) -> list[Operation]:
    found = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/v1/"):
                [[scope]] = [one["token"] for one in operation["security"]]
                found.append(Operation(method.upper(), path, operation["operationId"], scope))
    return found


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path, no_programs: None) -> AsyncIterator[Gateway]:
    fleet = await make_fleet(registry_with(tmp_path))
    async with gateway_to(fleet) as gateway:
        yield gateway


@pytest.fixture
async def operations(gateway: Gateway) -> list[Operation]:
    return operations_in((await gateway.client.get("/openapi.json")).json())


@pytest.fixture
async def ids(gateway: Gateway) -> dict[str, str]:
    return await seed(gateway.fleet, "other", WORD)


async def knock(gateway: Gateway, operation: Operation, ids: dict[str, str], token: str | None) -> httpx2.Response:
    path, body = operation.filled(ids)
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    async with gateway.client.stream(operation.method, path, json=body, headers=headers) as answer:
        if answer.headers["content-type"].startswith("text/event-stream"):
            return answer  # it was let in, and would go on for ever
        await answer.aread()
        return answer


def test_the_document_has_every_route(operations: list[Operation]) -> None:
    """Also those that are hidden from it: all that the API's files make."""
    modules = [import_module(f"gateway.http.api.{found.name}") for found in iter_modules(api.__path__)]
    routes = {
        (method, f"/v1{route.path}")
        for module in modules
        for router in vars(module).values()
        if isinstance(router, APIRouter) and router is not all_routes.router
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert len(routes) > 40
    assert routes == {(operation.method, operation.path) for operation in operations}
    assert {operation.scope for operation in operations} == set(SCOPES)
    assert set(BODIES) | OPEN_LISTS <= {operation.id for operation in operations}


async def test_without_a_good_token_there_is_nothing(
    gateway: Gateway, operations: list[Operation], ids: dict[str, str]
) -> None:
    user = "web:olga"
    over = await make_token(gateway.fleet, user, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    gone = await make_token(gateway.fleet, user)
    [row] = [row for row in await gateway.fleet.rows(Token) if row.token_hash == hash_secret(gone)]
    await gateway.fleet.db.transact(lambda conn: revoke_token(conn, row.id))
    await caller(gateway, "olga", "owner")  # who may do everything, with another token
    for operation in operations:
        for token in (None, "lst_wrong", over, gone):
            answer = await knock(gateway, operation, ids, token)
            assert answer.status_code == 401, (operation, token)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"
            assert WORD not in answer.text


async def test_a_token_is_good_for_its_scopes_only(
    gateway: Gateway, operations: list[Operation], ids: dict[str, str]
) -> None:
    """Of an owner, so that nothing but the scope stands in the way."""
    owner = await caller(gateway, "olga", "owner")
    tokens = {
        scope: await make_token(gateway.fleet, owner.user_id, [other for other in ALL_SCOPES if other != scope])
        for scope in ALL_SCOPES
    }
    for operation in operations:
        answer = await knock(gateway, operation, ids, tokens[operation.scope])
        assert answer.status_code == 403, operation
        assert f"lacks the scope {operation.scope!r}" in answer.json()["detail"]


async def people(gateway: Gateway, ids: dict[str, str]) -> list[Caller]:
    """A stranger; a member of the agent; an admin of another one. All with every scope."""
    elsewhere = await gateway.fleet.add_group("elsewhere")
    member = await caller(gateway, "mia")
    row = {"user_id": member.user_id, "agent_group_id": ids["group"], "added_by": "cli"}
    await gateway.fleet.insert(AgentGroupMember, row)
    return [await caller(gateway, "eve"), member, await caller(gateway, "ada", "admin", elsewhere)]


async def test_what_is_none_of_their_business_is_shown_to_nobody(
    gateway: Gateway, operations: list[Operation], ids: dict[str, str]
) -> None:
    before = await everything(gateway)
    everybody = await people(gateway, ids)
    for operation in operations:
        for person in everybody:
            answer = await knock(gateway, operation, ids, person.token)
            expected = (200,) if operation.id in OPEN_LISTS else (403, 404)
            assert answer.status_code in expected, (operation, person.user_id, answer.status_code)
            assert WORD not in answer.text, (operation, person.user_id)
    assert await everything(gateway) == before


async def test_the_owner_sees_all_of_it(gateway: Gateway, operations: list[Operation], ids: dict[str, str]) -> None:
    """So that the test above looks where there is something to see."""
    owner = await caller(gateway, "olga", "owner")
    seen = {}
    for operation in operations:
        if operation.method == "GET" and not operation.path.endswith("/events"):
            seen[operation.id] = WORD in (await knock(gateway, operation, ids, owner.token)).text
    blind = {name for name, found in seen.items() if not found}
    assert blind <= {"show_replay", "list_providers", "show_fleet", "list_steps", "budgets", "show_turn", "list_turns"}


async def everything(gateway: Gateway) -> list[Any]:
    """The rows that any of this could change."""
    fleet = gateway.fleet
    sessions = [(row.id, row.status) for row in await fleet.sessions()]
    return [await fleet.inbox(), await fleet.outbox(), await fleet.turns(), sessions]
