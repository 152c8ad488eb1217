"""Commands: who may give them is asked before the agent sees anything, and whoever may not is told so."""

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import insert, update

from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from models import AgentGroup, Compaction, MessageIn, PendingQuestion, Session, Turn
from models.base import now
from tests.support.api_fleet import model_api
from tests.support.fake_platform import fetch_texts, grant_role, post_message, wire
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import rule, script
from workers.formatting import format_prompt, is_raw
from workers.intake.commands import FILTERED, command_in
from workers.refusals import RefusedError

ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


@pytest.fixture
async def staffed(fleet: Fleet) -> Fleet:
    group = await fleet.add_group(script="heard: {texts}")
    await wire(fleet, group)
    await grant_role(fleet, "ada", "member", group)
    await grant_role(fleet, "olga", "admin", group)
    return fleet


async def last(fleet: Fleet) -> str:
    return (await fetch_texts(fleet))[-1]


async def sessions_of_agent(fleet: Fleet) -> list[Any]:
    desk = {row.session_id for row in await fleet.outbox() if row.idempotency_key.startswith("desk:")}
    return [row for row in await fleet.sessions() if row.id not in desk]


# --- /status -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("M16", "M13")
async def test_status_says_what_the_agent_does_and_what_waits(staffed: Fleet) -> None:
    fleet = staffed
    await post_message(fleet, "/status", "ada")
    assert await last(fleet) == "demo is idle. Nothing was said here yet."
    await post_message(fleet, "hello", "ada")
    await post_message(fleet, "/status", "ada")
    assert await last(fleet) == "demo is idle. 1 message waits."
    working = {"lease_expires_at": now(60), "activity": "tool: run_command", "activity_since": now(-125)}
    await fleet.execute(update(Session).values(**working))
    await post_message(fleet, "/status", "ada")
    assert await last(fleet) == "demo is at work: tool: run_command, for 2 min. 1 message waits."
    await fleet.execute(update(Session).values(lease_expires_at=None, resume_after=now(60), activity="awaiting human"))
    await post_message(fleet, "/status", "ada")
    assert (await last(fleet)).startswith("demo waits: awaiting human, for ")
    await fleet.execute(update(Session).values(lease_expires_at=now(-5)))
    await post_message(fleet, "/status", "ada")
    assert "was interrupted" in await last(fleet)
    assert len(await fleet.inbox()) == 1  # none of these was for the agent


# --- Who may -------------------------------------------------------------------------------------------------------


@ONE_DATABASE
@pytest.mark.spec("M16", "C5")
@pytest.mark.parametrize("command", ["clear", "compact", "remote-control"])
async def test_a_member_is_told_that_it_is_for_admins(staffed: Fleet, command: str) -> None:
    await post_message(staffed, "hello", "ada")
    before = await sessions_of_agent(staffed)
    handled = await post_message(staffed, f"/{command} now", "ada")
    assert handled.handled == "command"
    assert await last(staffed) == f"/{command} is for admins of demo. You are a member."
    assert [row.id for row in await sessions_of_agent(staffed)] == [row.id for row in before]
    assert len(await staffed.inbox()) == 1


@pytest.mark.spec("M16", "C4")
async def test_a_strangers_command_is_a_strangers_message(staffed: Fleet) -> None:
    with pytest.raises(RefusedError, match="not known to demo"):
        await post_message(staffed, "/clear", "eve")
    assert await staffed.outbox() == []


@pytest.mark.spec("M16")
async def test_the_command_line_and_producers_are_not_gated(staffed: Fleet) -> None:
    await staffed.send("/clear")
    [row] = await staffed.inbox()
    assert row.content["text"] == "/clear"


# --- /clear --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("M16", "T4")
async def test_clear_begins_anew_in_the_same_place(staffed: Fleet) -> None:
    fleet = staffed
    old = await post_message(fleet, "hello", "ada")
    await fleet.settle_down()
    await post_message(fleet, "/clear", "olga")
    assert "demo begins anew" in await last(fleet)
    new = await post_message(fleet, "again", "ada")
    assert new.session_id != old.session_id
    assert {row.id: row.status for row in await fleet.sessions()}[old.session_id] == "closed"


@pytest.mark.spec("M16", "M1")
async def test_a_command_that_comes_twice_is_obeyed_once(staffed: Fleet) -> None:
    fleet = staffed
    await post_message(fleet, "hello", "ada")
    await fleet.settle_down()
    await post_message(fleet, "/clear", "olga", message_id="m1")
    new = await post_message(fleet, "again", "ada")
    again = await post_message(fleet, "/clear", "olga", message_id="m1")
    assert (again.duplicate, again.deliveries, again.wakes) == (True, [], [])
    assert (await post_message(fleet, "and again", "ada")).session_id == new.session_id


@pytest.mark.spec("M16")
async def test_clear_keeps_what_waits_and_gives_up_what_runs(staffed: Fleet) -> None:
    """A turn that waits for a person, and a message behind it."""
    fleet = staffed
    accepted = await post_message(fleet, "hello", "ada")
    await fleet.settle_down()
    [answer] = await fleet.outbox()
    [turn] = await fleet.turns()
    await fleet.execute(update(Turn).values(status="running", ended_at=None))
    await fleet.execute(update(MessageIn).values(status="processing"))
    leased = {"lease_owner": "worker", "lease_expires_at": now(60), "lease_token": 7}
    await fleet.execute(update(Session).where(Session.id == accepted.session_id).values(**leased))
    question = {"session_id": accepted.session_id, "turn_id": turn.id, "message_out_id": answer.id, "question": {}}
    question |= {"channel_type": "fake", "platform_id": "room", "question": {"title": "Tea?", "text": "Which?"}}
    await fleet.execute(insert(PendingQuestion).values(expires_at=now(60), **question))
    await fleet.execute(update(Session).where(Session.id == accepted.session_id).values(resume_after=None))
    waiting = await fleet.send("wait for me", agent_group=None, channel_type="fake", platform_id="room", kind="task")
    cleared = await post_message(fleet, "/clear", "olga")
    assert "What it was at was given up" in await last(fleet)
    rows = {row.id: row for row in await fleet.inbox()}
    assert rows[accepted.message_id].status == "discarded"
    assert (rows[waiting.message_id].status, rows[waiting.message_id].seq) == ("pending", 1)
    new = rows[waiting.message_id].session_id
    assert new != accepted.session_id
    assert cleared.wakes == [(new, "scripted")]
    assert [row.status for row in await fleet.turns()] == ["cancelled"]
    assert [row.status for row in await fleet.rows(PendingQuestion)] == ["expired"]
    sessions = {row.id: row for row in await fleet.sessions()}
    assert (sessions[accepted.session_id].lease_owner, sessions[accepted.session_id].lease_token) == (None, 8)
    await fleet.settle_down()
    assert await last(fleet) == "heard: wait for me"


@pytest.mark.spec("M16", "S3")
async def test_clear_is_no_failure_of_a_task_that_was_to_be_tried_again(staffed: Fleet) -> None:
    """One that is paused after its first failure goes on all the same."""
    fleet = staffed
    failing = {"provider_options": {"script": "- play:\n  - fail: {class: transport}"}}
    await fleet.execute(update(AgentGroup).values(config=failing))
    place = {"agent_group": None, "channel_type": "fake", "platform_id": "room"}
    task = await fleet.send("look around", **place, kind="task", recurrence="@yearly", terms={"pause_after": 1})
    due = {"process_after": now(-1), "scheduled_for": now(-1)}
    await fleet.execute(update(MessageIn).where(MessageIn.id == task.message_id).values(**due))
    assert await fleet.wake(task.session_id) == "waiting"
    await post_message(fleet, "/clear", "olga")
    runs = {row.status: row for row in await fleet.inbox()}
    assert runs.keys() == {"discarded", "pending"}
    assert (runs["discarded"].error, runs["discarded"].error_class) == ("given up by /clear", None)
    assert not any("it failed" in text for text in await fetch_texts(fleet))


# --- /compact ------------------------------------------------------------------------------------------------------


@ONE_DATABASE
@pytest.mark.spec("M16", "M9")
async def test_compact_is_told_where_there_is_none(staffed: Fleet) -> None:
    await post_message(staffed, "/compact", "olga")
    assert await last(staffed) == "demo runs on scripted, which has no /compact. /clear lets it begin anew."
    await post_message(staffed, "/remote-control", "olga")
    assert await last(staffed) == "demo runs on scripted, which has no /remote-control."


# --- Commands for programs -------------------------------------------------------------------------------------------


@pytest.fixture
async def programmed(make_fleet: MakeFleet) -> Fleet:
    """An agent that runs on what calls itself claude-code."""
    provider: Any = ScriptedProvider()
    fleet = await make_fleet(Registry(providers=Drivers("provider", {"claude-code": provider, "scripted": provider})))
    group = await fleet.add_group(provider="claude-code", config={"commands": ["review"]})
    await wire(fleet, group)
    await grant_role(fleet, "ada", "member", group)
    await grant_role(fleet, "olga", "admin", group)
    return fleet


@ONE_DATABASE
@pytest.mark.spec("M16")
@pytest.mark.parametrize(
    ("text", "sender", "stored"),
    [
        ("/cost", "ada", "/cost"),
        ("  /context@my_bot all", "ada", "/context all"),
        ("/review main.py", "ada", "/review main.py"),
        ("/compact keep the numbers", "olga", "/compact keep the numbers"),
        ("/remote-control", "olga", "/remote-control"),
    ],
)
async def test_what_is_for_the_program_reaches_it_as_it_is(
    programmed: Fleet, text: str, sender: str, stored: str
) -> None:
    accepted = await post_message(programmed, text, sender)
    assert accepted.wake_provider == "claude-code"
    [row] = await programmed.rows(MessageIn)
    assert (row.content["text"], row.content["raw"], row.follow_up) == (stored, True, "separate")
    assert format_prompt([row]) == stored
    assert is_raw([row])
    assert await programmed.outbox() == []


@ONE_DATABASE
@pytest.mark.spec("M16")
async def test_what_is_not_in_a_table_is_ordinary_text(programmed: Fleet) -> None:
    for text in ("/etc/passwd is mine", "/unheard-of", "/Clear", "//cost", "please /clear", "/1"):
        await post_message(programmed, text, "ada")
    rows = await programmed.rows(MessageIn)
    assert len(rows) == 6
    assert not any("raw" in row.content for row in rows)


@ONE_DATABASE
@pytest.mark.spec("M16")
@pytest.mark.parametrize("name", ["login", "exit", "permissions", "model", "vim"])
async def test_what_nobody_may_tell_a_program_is_dropped_with_a_reason(programmed: Fleet, name: str) -> None:
    await post_message(programmed, f"/{name} x", "olga")
    assert await programmed.inbox() == []
    assert (await fetch_texts(programmed))[0] == f"/{name} was not passed on: {FILTERED[name]}."


@pytest.mark.spec("M16")
def test_a_command_among_other_messages_is_a_text_like_theirs() -> None:
    def row(number: int, content: dict[str, Any]) -> Any:
        return SimpleNamespace(seq=number, kind="chat", content=content, created_at=SimpleNamespace(strftime=str))

    both = [row(1, {"text": "hello"}), row(2, {"text": "/cost", "raw": True})]
    assert not is_raw(both)
    assert "<message" in format_prompt(both)


@pytest.mark.spec("M16")
async def test_a_command_goes_to_the_agent_that_would_answer(fleet: Fleet) -> None:
    """In a group with several agents, and where an agent answers only when it is called."""
    worker, boss = await fleet.add_group("worker"), await fleet.add_group("boss")
    await wire(fleet, worker, trigger_rules={"mentionOnly": True})
    await wire(fleet, boss, trigger_rules={"pattern": "boss"}, priority=5)
    await grant_role(fleet, "olga", "owner")
    with pytest.raises(RefusedError, match="listens to such a message"):  # maybe another bot's
        await post_message(fleet, "/status", "olga")
    await post_message(fleet, "/status boss", "olga")
    await post_message(fleet, "/status", "olga", is_mention=True)
    assert [text.split()[0] for text in await fetch_texts(fleet)] == ["boss", "worker"]


@pytest.mark.spec("M16")
def test_the_tables_do_not_overlap() -> None:
    for name in FILTERED:
        command = command_in(f"/{name}", "claude-code", {"commands": [name]})  # nor can a group's own words undo them
        assert command is not None
        assert command.kind == "filtered"
    assert command_in("/x", "scripted", {"commands": "x"}) is None


@pytest.mark.spec("M16", "P17")
async def test_compact_sums_up_before_the_next_answer(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = script(rule("about to be replaced", "They like ships."), rule(None, "You said: {text}"))
    async with model_api(monkeypatch, rules):
        group = await fleet.add_group(provider="anthropic")
        await wire(fleet, group)
        await grant_role(fleet, "olga", "admin", group)
        await post_message(fleet, "/compact", "olga")
        assert "nothing to sum up" in await last(fleet)
        await post_message(fleet, "I like ships", "olga")
        await fleet.settle_down()
        await post_message(fleet, "/compact", "olga")
        await fleet.settle_down()
        assert "archived and summed up" in await last(fleet)
        assert await fleet.rows(Compaction) == []  # nothing is done, and nothing paid, before somebody says something
        await post_message(fleet, "and now?", "olga")
        await fleet.settle_down()
        assert (await last(fleet)).startswith("You said: ")
        assert [row.summary for row in await fleet.rows(Compaction)] == ["They like ships."]
        await post_message(fleet, "and then?", "olga")
        await fleet.settle_down()
        assert len(await fleet.rows(Compaction)) == 1
        assert {row.status for row in await fleet.inbox()} == {"completed"}
