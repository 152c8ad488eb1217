"""Every page and every form of the console, asked by people whose business it is not, with sign-ins of too small a
scope, and with what no browser would send. The list is the console's own routes: none can be forgotten."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx2
import pytest
from fastapi.routing import APIRoute

from gateway.console.app import PAGES
from gateway.console.forms import groups as group_form
from gateway.console.forms import wirings as wiring_form
from models import AgentGroup, Approval, Audit, PendingQuestion, Wiring, Workflow
from models.people import AgentGroupMember
from models.tokens import SCOPES
from tests.support.api_seeds import seed
from tests.support.console_session import ConsoleUser, sign_in_user
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

pytestmark = pytest.mark.spec("G2", "G3")
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
WORD = "quetzalcoatl"  # in all that is the other agent's
NOT_ASKED = ("/sign-in", "/enter", "/sign-out")
# What a name in a path is to be, besides the ids of `seed`.
NAMES = {"operation": "cancel", "act": "discard", "what": "pause", "number": "1", "step_id": "nothing"}
# What makes a form complete; what is not named here has no field that must be there.
FORMS: dict[str, dict[str, str]] = {
    "/sessions/{session_id}/say": {"text": "x", "key": "k"},
    "/sessions/{session_id}/replay": {"key": "k", "all": "yes"},
    "/chat/say": {"text": "x", "key": "k"},
    "/chat/press": {"token": "x"},
    "/inbox/approvals/{approval_id}": {"decision": "approve", "shown": "{payload_hash}"},
    "/inbox/questions/{question_id}": {"answer": "x"},
    "/dead/acts": {"act": "discard", "message": "{message_id}"},
    "/groups/new": {"folder": "new"},
    "/groups/{folder}": {"name": "x", "model": "x"},
    "/wirings/new": {"agent": "{folder}", "channel": "fake", "chat": "room"},
    "/wirings/{wiring_id}": {"pattern": "x"},
}
# And what else any of them may have.
FIELDS = {*group_form.FIELDS, *wiring_form.FIELDS, "choice", "back", "turns", "delivery", "after", "code", "token"}
# What everybody has of their own, with nothing of the others' in it.
THEIR_OWN = {
    *(("GET", "/"), ("GET", "/counts"), ("GET", "/chat"), ("GET", "/chat/stream"), ("GET", "/inbox")),
    ("POST", "/chat/press"),  # what they press is no button of theirs: they are told so
}
# What an admin of some agent sees, of theirs.
OF_ADMINS = {
    *("/overview/now", "/overview/pace", "/sessions", "/dead", "/dead/undelivered", "/schedules", "/usage"),
    *("/groups", "/wirings", "/workflows"),
    "/dead/acts",  # the page again, with why it was not done
}


@dataclass(frozen=True)
class Route:
    method: str
    path: str

    def filled(self, ids: dict[str, str]) -> tuple[str, dict[str, str]]:
        """The address and the form, about these rows."""
        names = NAMES | ids | ({"message_id": ids["undelivered"]} if "undelivered" in self.path else {})
        query = "?before=9" if self.path.endswith("/earlier") else ""
        fields = {name: value.format(**names) for name, value in FORMS.get(self.path, {}).items()}
        return re.sub(r":\w+\}", "}", self.path).format(**names) + query, fields


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_to(await make_fleet(registry_with(tmp_path))) as opened:
        yield opened


@pytest.fixture
def routes() -> list[Route]:
    found = [route for router in PAGES for route in router.routes if isinstance(route, APIRoute)]
    listed = [Route(method, route.path) for route in found for method in sorted(route.methods or ())]
    assert len(listed) > 50
    assert set(FORMS) <= {route.path for route in listed}
    return listed


@pytest.fixture
async def ids(gateway: Gateway) -> dict[str, str]:
    ids = await seed(gateway.fleet, "other", WORD)
    [approval] = await gateway.fleet.rows(Approval)
    return ids | {"payload_hash": approval.payload_hash}


async def knock(person: ConsoleUser, route: Route, ids: dict[str, str]) -> httpx2.Response:
    path, fields = route.filled(ids)
    return await (person.glance(path) if route.method == "GET" else person.post(path, fields))


async def everything(gateway: Gateway, ids: dict[str, str]) -> list[Any]:
    """Of the agent's rows, all that any of this could change."""
    fleet = gateway.fleet
    sessions = [(row.id, row.status) for row in await fleet.sessions() if row.agent_group_id == ids["group"]]
    said = [row for row in [*await fleet.inbox(), *await fleet.outbox()] if row.session_id == ids["session_id"]]
    decided = [(row.id, row.status) for table in (Approval, PendingQuestion) for row in await fleet.rows(table)]
    agents = [(row.folder, row.name) for row in await fleet.rows(AgentGroup) if row.id == ids["group"]]
    kept = [await fleet.rows(table) for table in (Wiring, Audit, Workflow)]
    return [sessions, said, decided, agents, kept, await fleet.turns()]


@ONE_DATABASE
async def test_what_is_none_of_their_business_is_shown_to_nobody_and_stays_as_it_is(
    gateway: Gateway, routes: list[Route], ids: dict[str, str]
) -> None:
    elsewhere = await gateway.fleet.add_group("elsewhere")
    people = [
        await sign_in_user(gateway, "eve", "member"),
        await sign_in_user(gateway, "mia", "member"),
        await sign_in_user(gateway, "ada", "admin", elsewhere),
    ]
    await gateway.fleet.insert(
        AgentGroupMember, {"user_id": "web:mia", "agent_group_id": ids["group"], "added_by": "cli"}
    )
    before = await everything(gateway, ids)
    for route in routes:
        if route.path in NOT_ASKED:
            continue
        for person in people:
            answer = await knock(person, route, ids)
            theirs = (route.method, route.path) in THEIR_OWN or (person.name == "ada" and route.path in OF_ADMINS)
            assert answer.status_code in ((200,) if theirs else (403, 404)), (route, person.name, answer.status_code)
            assert WORD not in answer.text, (route, person.name)
    assert await everything(gateway, ids) == before


@ONE_DATABASE
async def test_a_sign_in_is_good_for_its_scopes_only(
    gateway: Gateway, routes: list[Route], ids: dict[str, str]
) -> None:
    """Of owners, so that nothing but the scope stands in the way."""
    lacking = {
        scope: await sign_in_user(gateway, f"no-{scope}", scopes=tuple(one for one in SCOPES if one != scope))
        for scope in SCOPES
    }
    nothing = await sign_in_user(gateway, "nothing", scopes=())
    before, asked = await everything(gateway, ids), set()
    for route in routes:
        if route.path in (*NOT_ASKED, "/", "/counts"):
            continue
        answer = await knock(nothing, route, ids)
        named = re.search(r"lacks the scope &#39;(\w+)&#39;", answer.text)
        assert (answer.status_code, named is not None) == (403, True), (route, answer.status_code)
        assert named is not None
        asked.add(named[1])
        answer = await knock(lacking[named[1]], route, ids)  # type: ignore[index]
        assert (answer.status_code, named[0] in answer.text) == (403, True), (route, answer.status_code)
        assert WORD not in answer.text, route
    assert asked == set(SCOPES)
    assert await everything(gateway, ids) == before


@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)  # which takes less than SQLite
@pytest.mark.parametrize("odd", ["x\x00y", "9" * 400, "[-1"])
async def test_what_no_browser_sends_breaks_nothing(
    odd: str, gateway: Gateway, routes: list[Route], ids: dict[str, str]
) -> None:
    """By an owner: whatever stands in a field, an address or a query is taken or refused, and nothing is at a loss."""
    ada = await sign_in_user(gateway)
    query = urlencode(dict.fromkeys(("after", "before", "agent", "q", "status", "days", "code"), odd))
    answers = []
    for route in routes:
        if route.path in (*NOT_ASKED, "/providers/list") or route.path.endswith("/stream"):
            continue
        path, fields = route.filled(ids)
        elsewhere = re.sub(r"\{\w+\}", quote(odd, safe=""), route.path)
        if route.method == "GET":
            answers += [await ada.get(f"{path.partition('?')[0]}?{query}"), await ada.get(elsewhere)]
            continue
        forms = [dict.fromkeys({*fields, *FIELDS}, odd), *(fields | {name: odd} for name in fields)]
        answers += [await ada.post(path, form) for form in forms]
        answers.append(await ada.post(elsewhere, fields))
    assert [(answer.request.method, answer.url.path) for answer in answers if answer.status_code >= 500] == []
