"""People and programs with tokens, at the gateway's API."""

from collections.abc import Collection
from typing import Any, get_args

import httpx2

from models import UserRole
from models.people import remember_user
from models.tokens import Scope, new_token, put_token
from tests.support.fleet import Fleet
from tests.support.open_gateway import Gateway

ALL_SCOPES: tuple[Scope, ...] = get_args(Scope)


class Caller:
    """Speaks HTTP with a token."""

    def __init__(self, client: httpx2.AsyncClient, user_id: str, token: str) -> None:
        self.user_id, self.token = user_id, token
        self._client = client

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        sent = {"Authorization": f"Bearer {self.token}"} | {name.replace("_", "-"): v for name, v in headers.items()}
        given = {} if body is None else {"json": body}
        return await self._client.request(method, path, headers=sent, **given)

    async def get(self, path: str, expected: int = 200) -> Any:
        return await self._answer("GET", path, None, expected)

    async def post(self, path: str, body: Any = None, expected: int = 200) -> Any:
        return await self._answer("POST", path, body, expected)

    async def patch(self, path: str, body: Any, expected: int = 200) -> Any:
        return await self._answer("PATCH", path, body, expected)

    async def put(self, path: str, body: Any, expected: int = 200) -> Any:
        return await self._answer("PUT", path, body, expected)

    async def delete(self, path: str, expected: int = 200) -> Any:
        return await self._answer("DELETE", path, None, expected)

    async def _answer(self, method: str, path: str, body: Any, expected: int) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.status_code == expected, answer.text
        return answer.json()


async def make_token(fleet: Fleet, user_id: str, scopes: Collection[Scope] = ALL_SCOPES, **given: Any) -> str:
    token = new_token()

    async def work(conn: Any) -> None:
        await remember_user(conn, user_id, "web", user_id)
        await put_token(conn, token, user_id, user_id, scopes, **given)

    await fleet.db.transact(work)
    return token


async def caller(
    gateway: Gateway,
    name: str,
    role: str | None = None,
    group: str | None = None,
    scopes: Collection[Scope] = ALL_SCOPES,
) -> Caller:
    """Somebody with a token; `role` and `group` as in user_roles (an admin without a group is a global one)."""
    user_id = f"web:{name}"
    token = await make_token(gateway.fleet, user_id, scopes)
    if role is not None:
        await gateway.fleet.insert(UserRole, {"user_id": user_id, "role": role, "agent_group_id": group})
    return Caller(gateway.client, user_id, token)
