"""What is known of a provider when roles are given out: what it says of itself, who listens, how its turns ended."""

import os
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from adapters.contracts import Detection
from adapters.errors import BrokenDriverError
from adapters.model_port import AnyProvider
from adapters.providers.anthropic import AnthropicProvider
from adapters.providers.cli.codex import CodexProvider
from adapters.providers.cli.terminal import TerminalProvider
from adapters.providers.openai import OpenAIProvider
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from models import AgentGroup, Session, Turn
from models.base import new_id, now
from models.fitness import TURNS, WITHIN
from models.fleet import note_failure, note_limited, note_success, report_alive
from models.overview import first_id_of
from tests.support.api_fleet import model_api
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import refuse
from workers.workflows.candidates import Candidate, Record, candidates
from workers.workflows.fitness import ROLES, fitness_table
from workers.workflows.roles import choose

pytestmark = pytest.mark.spec("O2")


class Crew:
    """Turns that have ended, and what is known of those who ran them."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._number = 0
        self._session = ""

    async def turns(
        self,
        provider: str,
        *ends: str,
        ago: timedelta = timedelta(),
        minutes: float = 1,
        tried: list[str] | None = None,
    ) -> None:
        """`ends`: a status or an error's class, the earliest first. `minutes`: how long each took."""
        if not self._session:
            group, self._session = new_id(), new_id()
            await self.fleet.insert(AgentGroup, {"id": group, "folder": "one", "name": "one"})
            await self.fleet.insert(Session, {"id": self._session, "agent_group_id": group})
        at: datetime = await self.fleet.db.read(_clock) - ago
        rows = []
        for end in ends:
            self._number += 1
            status = end if end in ("completed", "cancelled", "running") else "failed"
            row = {"id": _id_of(at, self._number), "session_id": self._session, "number": self._number}
            row |= {"provider": provider, "status": status, "error_class": end if status == "failed" else None}
            times = {"started_at": at - timedelta(minutes=minutes), "ended_at": at}
            rows.append(row | times | {"tried": tried, "lease_token": 1})
        await self.fleet.insert(Turn, *rows)

    async def seen(self) -> dict[str, Candidate]:
        return {one.name: one for one in await candidates(self.fleet.runtime)}

    async def record(self, provider: str) -> Record:
        return (await self.seen())[provider].record


async def _clock(conn: Any) -> datetime:
    at: datetime = (await conn.execute(select(now()))).scalar_one()
    return at


def _id_of(moment: datetime, number: int) -> str:
    """One made at that moment; those of one moment in their order."""
    return f"{first_id_of(moment)}7{number >> 12:03x}-8{number & 0xFFF:03x}-{os.urandom(6).hex()}"


def registry_of(*providers: AnyProvider) -> Registry:
    return Registry(providers=Drivers("provider", {one.manifest.adapter_id: one for one in providers}))


@pytest.fixture
async def crew(make_fleet: MakeFleet, no_programs: None, monkeypatch: pytest.MonkeyPatch) -> Crew:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    known = registry_of(AnthropicProvider(), CodexProvider(), ScriptedProvider(), TerminalProvider())
    return Crew(await make_fleet(known))


async def test_completed_turns_and_faults_are_counted_by_provider(crew: Crew) -> None:
    await crew.turns("codex", "completed", "completed", "auth", "completed")
    await crew.turns("anthropic", "transport")
    assert await crew.record("codex") == Record(completed=3, faults=1, median_seconds=60.0)
    assert await crew.record("anthropic") == Record(faults=1)
    assert await crew.record("scripted") == Record()


async def test_only_what_is_its_own_fault_counts_against_it(crew: Crew) -> None:
    await crew.turns("anthropic", "tool", "output_sent", "cancelled", "worker_lost", "budget", "script")
    own = ("transport", "rate_limit", "quota", "auth", "invalid_request", "context_too_long", "provider_hang")
    await crew.turns("codex", *own, "internal", "unknown_provider")
    assert await crew.record("anthropic") == Record()
    assert await crew.record("codex") == Record(faults=9)


async def test_a_turn_that_another_went_on_with_counts_against_who_gave_up(crew: Crew) -> None:
    await crew.turns("anthropic", "completed", tried=["codex"])
    await crew.turns("anthropic", *["completed"] * TURNS)
    assert (await crew.record("codex"), (await crew.record("anthropic")).completed) == (Record(faults=1), TURNS)
    await crew.turns("anthropic", *["completed"] * (TURNS + 1), tried=["codex"])
    assert await crew.record("codex") == Record(faults=TURNS)


async def test_what_runs_or_was_stopped_by_a_person_says_nothing(crew: Crew) -> None:
    await crew.turns("codex", "completed", *["cancelled"] * TURNS, "running")
    assert await crew.record("codex") == Record(completed=1, median_seconds=60.0)


async def test_only_the_last_week_and_the_last_turns_count(crew: Crew) -> None:
    await crew.turns("codex", *["completed"] * 3, ago=WITHIN + timedelta(minutes=5))
    assert await crew.record("codex") == Record()
    await crew.turns("codex", *["auth"] * 3, ago=timedelta(hours=1))
    await crew.turns("codex", *["completed"] * (TURNS - 1))
    assert (await crew.record("codex")).faults == 1
    await crew.turns("codex", "completed")
    assert await crew.record("codex") == Record(completed=TURNS, median_seconds=60.0)


async def test_a_busy_provider_hides_none_that_is_used_less(crew: Crew) -> None:
    await crew.turns("codex", "completed")
    await crew.turns("scripted", *["completed"] * (10 * TURNS))
    assert (await crew.record("codex")).completed == 1


async def test_the_median_is_of_the_completed_ones(crew: Crew) -> None:
    for minutes in (1, 2, 30):
        await crew.turns("codex", "completed", minutes=minutes)
    await crew.turns("codex", *["provider_hang"] * 3, minutes=60)
    assert (await crew.record("codex")).median_seconds == 120


async def test_what_a_provider_says_of_itself_and_what_it_lacks_here(crew: Crew) -> None:
    seen = await crew.seen()
    assert list(seen) == ["anthropic", "codex", "scripted", "terminal"]
    codex, anthropic, terminal = seen["codex"], seen["anthropic"], seen["terminal"]
    assert (codex.kind, codex.vendor, codex.capabilities) == ("cli", "openai", CodexProvider().manifest.capabilities)
    assert "no program `codex`" in (codex.absent or "")
    assert (anthropic.absent, anthropic.missing_key) == (None, "ANTHROPIC_API_KEY")
    assert terminal.wants_options == "which program it runs is for them to say"
    assert (codex.wants_options, seen["scripted"].wants_options) == (None, None)


async def test_who_listens_and_how_the_account_asked_last_is(crew: Crew) -> None:
    db = crew.fleet.db

    async def work(conn: Any) -> None:
        await report_alive(conn, "w1", "worker", pid=1, queues=["agent.codex", "agent.anthropic"])
        await report_alive(conn, "w2", "worker", pid=2, queues=["agent.codex"])
        await note_failure(conn, "anthropic", "old", "gone", threshold=1, pause=60, longest=60)
        await note_limited(conn, "codex", "", "slow down", 60)

    await db.transact(work)
    seen = await crew.seen()
    assert [(seen[name].workers, seen[name].health) for name in ("codex", "anthropic", "scripted")] == [
        (2, "limited"),
        (1, "down"),
        (0, "ok"),
    ]
    await db.transact(lambda conn: note_success(conn, "anthropic", "new"))
    assert (await crew.seen())["anthropic"].health == "ok"


async def test_of_all_that_are_installed_only_agents_that_say_what_they_run_are_chosen_by_themselves(
    make_fleet: MakeFleet, no_programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OMNARA_API_KEY"):
        monkeypatch.setenv(variable, "fake")
    found = [replace(one, absent=None) for one in await candidates((await make_fleet()).runtime)]
    fit = {role: {row.provider for row in fitness_table(found) if row.role == role and row.score} for role in ROLES}
    agents = {"anthropic", "claude-code", "codex", "gemini", "openai", "openclaw", "opencode"}
    assert fit == dict.fromkeys(ROLES, agents)


class Broken(ScriptedProvider):
    """Fails at whatever it is asked, and quotes what it was given."""

    manifest = ScriptedProvider.manifest

    async def detect(self) -> Detection:
        raise BrokenDriverError("its library is too old")


class Careless(ScriptedProvider):
    def check(self, options: Any) -> None:
        raise KeyError("sk-ant-" + "x" * 40)


async def test_drivers_that_fail_are_named_and_do_no_harm_to_the_others(
    make_fleet: MakeFleet, no_programs: None
) -> None:
    drivers: dict[str, AnyProvider] = {"broken": Broken(), "careless": Careless(), "scripted": ScriptedProvider()}
    crew = Crew(await make_fleet(Registry(providers=Drivers("provider", drivers))))
    seen = await crew.seen()
    assert seen["broken"].trouble == "its library is too old"
    assert seen["careless"].wants_options == "it failed when its options were checked (KeyError)"
    assert choose(list(seen.values())).planner == "scripted"


async def test_a_provider_whose_real_turns_fail_loses_its_roles(
    make_fleet: MakeFleet, no_programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with model_api(monkeypatch) as api:
        fleet = await make_fleet(registry_of(AnthropicProvider(), OpenAIProvider()))
        await fleet.add_group(provider="anthropic")
        roles = choose(await candidates(fleet.runtime))
        assert (roles.planner, roles.builders, roles.reviewers["anthropic"]) == ("anthropic", ("anthropic",), "openai")
        api.fail(refuse("unauthenticated", times=None))
        for number in range(4):
            await fleet.send(f"hello {number}", platform_id=str(number))
            assert await fleet.answer_wakes() == ["failed"]
        [failing] = [one for one in await candidates(fleet.runtime) if one.name == "anthropic"]
        assert (failing.record, failing.health) == (Record(faults=4), "limited")
        roles = choose(await candidates(fleet.runtime))
        assert (roles.planner, roles.builders, roles.reviewers["openai"]) == ("openai", ("openai",), "anthropic")
