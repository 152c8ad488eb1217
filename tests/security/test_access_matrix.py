"""Every act, by everybody: the table of docs/access.md is what the code says, and what happens when it is tried.

Each act is done through its real entry, as a person of each standing; where the table says no, it leaves nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from sqlalchemy import insert

from adapters.channel_port import ButtonPress
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from models import AgentGroup, Approval, BudgetDay, MessageIn, PendingQuestion, Session, Turn, UserRole, Wiring
from models import AgentGroupMember as Member
from models.base import Base, new_id, now
from models.cards import Card, token
from models.series import Series
from tests.support.api_callers import Caller, make_token
from tests.support.fake_platform import fetch_texts, grant_role, post_message, wire
from tests.support.fleet import Fleet, MakeFleet
from tests.support.open_gateway import Gateway, gateway_to
from tests.support.task_runs import add_run, clock
from workers.access import NEEDED, Act, Standing
from workers.consent import cards
from workers.consent.approvals import decide
from workers.consent.requests import hash_of
from workers.refusals import RefusedError

PAGE: Final = Path(__file__).parents[2] / "docs" / "access.md"
# The columns of the table, and what somebody in each of them is to the agent.
STANDINGS: Final = {
    "stranger": Standing.STRANGER,
    "member": Standing.MEMBER,
    "admin": Standing.ADMIN,
    "global admin": Standing.GLOBAL_ADMIN,
    "owner": Standing.OWNER,
    "member of another agent": Standing.STRANGER,
    "admin of another agent": Standing.STRANGER,
}
PEOPLE: Final = {column: column.replace(" ", "-") for column in STANDINGS}
PROVIDER: Final = "claude-code"  # by name: it has commands of its own
SCRIPT: Final = "echo '{\"wakeAgent\": false}'"


def _table() -> dict[str, dict[str, bool]]:
    """By act and column, as the page says."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    start = next(number for number, row in enumerate(cells) if row[0] == "act")
    rows: dict[str, dict[str, bool]] = {}
    for row in cells[start + 2 :]:
        if len(row) != len(cells[start]) or not set(row[1:]) <= {"yes", "no"}:
            break
        rows[row[0]] = {column: cell == "yes" for column, cell in zip(cells[start][1:], row[1:], strict=True)}
    return rows


TABLE: Final = _table()


@pytest.mark.spec("C5", "D4")
def test_the_page_says_what_the_code_says() -> None:
    assert {
        str(act): {column: standing >= needed for column, standing in STANDINGS.items()}
        for act, needed in NEEDED.items()
    } == TABLE
    assert set(NEEDED) == set(Act)


# --- What is tried -------------------------------------------------------------------------------------------------


class World:
    """Two agents, and one person of each kind. Everybody tries in a place of their own."""

    def __init__(self, fleet: Fleet, demo: str, until_the_end: AsyncExitStack) -> None:
        self.fleet = fleet
        self.demo = demo
        self._until_the_end = until_the_end
        self._gateway: Gateway | None = None

    async def gateway(self) -> Gateway:
        """One for everybody."""
        if self._gateway is None:
            self._gateway = await self._until_the_end.enter_async_context(gateway_to(self.fleet))
        return self._gateway

    async def place(self, person: str, policy: str) -> str:
        chat = f"chat-{person}"
        await wire(self.fleet, self.demo, chat, policy)
        return chat

    async def ask(self, chat: str, text: str) -> str:
        """The operator asks the agent something there that it cannot do alone. Returns the session."""
        accepted = await self.fleet.send(text, agent_group=None, channel_type="fake", platform_id=chat)
        self.fleet.bells.wakes.clear()
        assert await self.fleet.wake(accepted.session_id, PROVIDER) == "parked"
        return accepted.session_id

    async def press(self, person: str, session_id: str) -> None:
        """The first button of a card of that session."""
        card = next(row for row in await self.fleet.rows(Card) if row.session_id == session_id)
        await cards.press(self.fleet.db, "fake", ButtonPress(token(card.id, 1), card.platform_id, person))


Prepare = Callable[[World, str], Awaitable[Callable[[], Awaitable[bool]]]]


async def _talk(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "strict")

    async def happens() -> bool:
        try:
            await post_message(world.fleet, "hello", person, chat)
        except RefusedError:
            return False
        return any(row.sender_id == person for row in await world.fleet.inbox())

    return happens


async def _answer(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    session_id = await world.ask(await world.place(person, "strict"), "ask")

    async def happens() -> bool:
        await world.press(person, session_id)
        [question] = [row for row in await world.fleet.rows(PendingQuestion) if row.session_id == session_id]
        return (question.status, question.answered_by) == ("answered", f"fake:{person}")

    return happens


async def _approve(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    session_id = await world.ask(await world.place(person, "strict"), "act")

    async def happens() -> bool:
        await world.press(person, session_id)
        [approval] = [row for row in await world.fleet.rows(Approval) if row.session_id == session_id]
        return (approval.status, approval.decided_by) == ("approved", f"fake:{person}")

    return happens


async def _raise_budget(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "strict")
    accepted = await world.fleet.send("hello", agent_group=None, channel_type="fake", platform_id=chat)
    payload = {"agent_group_id": world.demo, "user_id": "", "day": "2026-01-31", "usd": 5.0}
    asked = {"id": new_id(), "session_id": accepted.session_id, "category": "budget", "summary": "more", "risk": "low"}
    row = {**asked, "payload": payload, "payload_hash": hash_of(payload), "expires_at": now(60)}
    await world.fleet.execute(insert(Approval).values(**row))

    async def extra() -> float:
        return float(sum(row.extra_usd for row in await world.fleet.rows(BudgetDay) if row.day == payload["day"]))

    async def happens() -> bool:
        before = await extra()
        decided = await _decides(world, asked["id"], person)
        raised = await extra() - before
        assert raised == (5.0 if decided else 0.0)
        return raised > 0

    return happens


async def _admit(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "request_approval")
    newcomer = f"newcomer-{person}"
    await post_message(world.fleet, "let me in", newcomer, chat)
    [request] = [row for row in await world.fleet.rows(Approval) if row.payload.get("sender") == newcomer]

    async def happens() -> bool:
        decided = await _decides(world, request.id, person)
        is_in = any(row.user_id == f"fake:{newcomer}" for row in await world.fleet.rows(Member))
        assert is_in == decided
        return is_in

    return happens


async def _decides(world: World, approval_id: str, person: str) -> bool:
    try:
        await decide(world.fleet.db, approval_id, approve=True, user_id=f"fake:{person}")
    except RefusedError as error:
        if "you may not decide this" in str(error):
            return False
        raise
    return True


async def _register(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "public")

    async def happens() -> bool:
        accepted = await post_message(world.fleet, f"make {person}.", person, chat)
        await world.fleet.wake(accepted.session_id, PROVIDER)
        # Also what they may is approved by somebody first. It does not make theirs what they may not.
        for approval in await world.fleet.rows(Approval):
            if approval.session_id == accepted.session_id:
                await decide(world.fleet.db, approval.id, approve=True)
                assert await world.fleet.wake(accepted.session_id, PROVIDER) == "completed"
        return any(row.folder == f"made-by-{person}" for row in await world.fleet.rows(AgentGroup))

    return happens


async def _status(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "public")

    async def happens() -> bool:
        await post_message(world.fleet, "/status", person, chat)
        return (await fetch_texts(world.fleet, chat))[-1].startswith("demo is idle")

    return happens


async def _clear(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "public")
    accepted = await world.fleet.send("hello", agent_group=None, channel_type="fake", platform_id=chat)

    async def happens() -> bool:
        await post_message(world.fleet, "/clear", person, chat)
        closed = [row.id for row in await world.fleet.sessions() if row.status == "closed"]
        return closed.count(accepted.session_id) == 1

    return happens


def _raw(command: str) -> Prepare:
    async def prepare(world: World, person: str) -> Callable[[], Awaitable[bool]]:
        chat = await world.place(person, "public")

        async def happens() -> bool:
            await post_message(world.fleet, command, person, chat)
            return any(row.platform_id == chat and row.content.get("raw") for row in await world.fleet.inbox())

        return happens

    return prepare


async def _set_script(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "public")

    async def happens() -> bool:
        accepted = await post_message(world.fleet, "watch the log", person, chat)
        status = await world.fleet.wake(accepted.session_id, PROVIDER)
        tasks = [row.id for row in await world.fleet.inbox() if row.kind == "task" and row.platform_id == chat]
        asked = [row for row in await world.fleet.rows(Approval) if row.session_id == accepted.session_id]
        assert (status, len(asked)) == (("completed", 0) if tasks else ("parked", 1))
        scripts = {row.id: row.script for row in await world.fleet.rows(Series)}
        assert all(scripts[task] == SCRIPT for task in tasks)
        return bool(tasks)

    return happens


async def _loosen(world: World, person: str) -> Callable[[], Awaitable[bool]]:
    chat = await world.place(person, "public")
    accepted = await world.fleet.send("hello", agent_group=None, channel_type="fake", platform_id=chat)
    world.fleet.bells.wakes.clear()
    assert await world.fleet.wake(accepted.session_id, PROVIDER) == "completed"
    task: dict[str, Any] = {"id": _task_of(person), "series_id": _task_of(person), "platform_id": chat, "seq": 1000}
    date = await clock(world.fleet) + timedelta(days=1)
    await add_run(world.fleet, date, session_id=accepted.session_id, **task)
    await world.fleet.insert(Series, {"id": task["id"], "agent_group_id": world.demo, "daily_usd": 1.0})

    async def happens() -> bool:
        await post_message(world.fleet, f"let {person} spend more", person, chat)
        assert await world.fleet.wake(accepted.session_id, PROVIDER) == "completed"
        [usd] = [row.daily_usd for row in await world.fleet.rows(Series) if row.id == _task_of(person)]
        return bool(usd == 5.0)

    return happens


def _over_http(method: str, path: str, body: dict[str, Any] | None = None) -> Prepare:
    """With a token that is good for everything: only the standing stands in the way."""

    async def prepare(world: World, person: str) -> Callable[[], Awaitable[bool]]:
        user_id = f"fake:{person}"
        bearer = await make_token(world.fleet, user_id)

        async def happens() -> bool:
            client = (await world.gateway()).client
            return (await Caller(client, user_id, bearer).ask(method, path, body)).status_code < 400

        return happens

    return prepare


def _task_of(person: str) -> str:
    return f"task-of-{person}"


TRIALS: Final[dict[Act, Prepare]] = {
    Act.TALK: _talk,
    Act.ANSWER: _answer,
    Act.STATUS: _status,
    Act.CLEAR: _clear,
    Act.COMPACT: _raw("/compact"),
    Act.REMOTE_CONTROL: _raw("/remote-control"),
    Act.APPROVE: _approve,
    Act.RAISE_BUDGET: _raise_budget,
    Act.ADMIT: _admit,
    Act.SET_SCRIPT: _set_script,
    Act.LOOSEN_TASK: _loosen,
    Act.REGISTER_AGENT: _register,
    Act.PRODUCE: _over_http("POST", "/v1/messages", {"agent_group": "demo", "text": "hello"}),
    Act.OVERSEE: _over_http("GET", "/v1/groups/demo"),
    Act.OPERATE: _over_http("POST", "/v1/tasks", {"agent": "demo", "prompt": "tea", "every": "@daily"}),
    Act.CONFIGURE: _over_http("PATCH", "/v1/groups/demo", {"model": "another"}),
}
# What an act leaves behind. (That it was tried may be answered. Whoever asks an agent for something has been heard.)
TRACES: Final[tuple[type[Base], ...]] = (AgentGroup, Wiring, Member, UserRole, BudgetDay, Series)
TRACES_UNLESS_HEARD: Final[tuple[type[Base], ...]] = (MessageIn, Approval, PendingQuestion, Turn, Session)


async def _traces(world: World, act: Act) -> dict[str, list[Any]]:
    tables = TRACES if act in (Act.SET_SCRIPT, Act.LOOSEN_TASK, Act.REGISTER_AGENT) else TRACES + TRACES_UNLESS_HEARD
    found = {table.__tablename__: await world.fleet.rows(table) for table in tables}
    [desk] = [row.id for row in found["agent_groups"] if row.folder == ".front-desk"] or [""]
    return {
        name: [row for row in rows if desk not in (row._mapping.get("id"), row._mapping.get("agent_group_id"))]
        for name, rows in found.items()
    }


def _script() -> str:
    made = [
        {
            "when": f"make {person}\\.",
            "play": [
                {
                    "tool": "register_agent_group",
                    "with": {
                        "name": person,
                        "folder": f"made-by-{person}",
                        "platformId": f"room-of-{person}",
                        "channelType": "fake",
                    },
                },
                {"answer": "{result}"},
            ],
        }
        for person in PEOPLE.values()
    ]
    question = {"title": "Tea?", "question": "Which?", "options": ["green", "black"]}
    asks = {"when": "^ask$", "play": [{"tool": "ask_user_question", "with": question}, {"answer": "thanks"}]}
    acts = {"when": "^act$", "play": [{"tool": "clock"}, {"answer": "done"}]}
    watch = {"prompt": "Say what is new in the log.", "recurrence": "@daily", "script": SCRIPT}
    watches = {"when": "^watch", "play": [{"tool": "schedule_task", "with": watch}, {"answer": "{result}"}]}
    loosens = [
        {
            "when": f"let {person} spend",
            "play": [
                {"tool": "update_task", "with": {"taskId": _task_of(person), "dailyUsd": 5}},
                {"answer": "{result}"},
            ],
        }
        for person in PEOPLE.values()
    ]
    return yaml.safe_dump([*made, asks, acts, watches, *loosens, {"play": [{"answer": "hello"}]}])


@pytest.fixture
async def world(make_fleet: MakeFleet) -> AsyncIterator[World]:
    provider: Any = ScriptedProvider()
    registry = Registry(providers=Drivers("provider", {PROVIDER: provider}))
    fleet = await make_fleet(registry, default_provider=PROVIDER, sandbox="none")  # no script comes to be run here
    config = {"provider_options": {"script": _script()}, "policy": {"approve": ["clock"]}}
    demo = await fleet.add_group(provider=PROVIDER, config=config)
    other = await fleet.add_group("other", provider=PROVIDER)
    roles = {
        "member": ("member", demo),
        "admin": ("admin", demo),
        "global admin": ("admin", None),
        "owner": ("owner", None),
        "member of another agent": ("member", other),
        "admin of another agent": ("admin", other),
    }
    for column, (role, group_id) in roles.items():
        await grant_role(fleet, PEOPLE[column], role, group_id)
    async with AsyncExitStack() as stack:
        yield World(fleet, demo, stack)


@pytest.mark.spec("C5", "D4", "C4", "C6", "M16")
@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize("act", Act)
async def test_what_the_table_says_happens_and_nothing_else(world: World, act: Act, database_kind: str) -> None:
    happened: dict[str, bool] = {}
    for column, person in PEOPLE.items():
        happens = await TRIALS[act](world, person)
        before = await _traces(world, act)
        happened[column] = await happens()
        assert happened[column] or await _traces(world, act) == before, f"{column} has left something"
    assert happened == TABLE[act]
