"""Routing with rows: followed threads, several agents in a chat, and the dry run that explains it."""

import json
from typing import Any

import pytest

from gateway.cli import desk
from models import AgentGroup, Engagement, MessagingGroup, Wiring
from models.base import Base
from tests.support.command_line import Cli
from tests.support.fake_platform import ROOM, grant_role, post_message, wire
from tests.support.fleet import Fleet
from workers.refusals import RefusedError

pytestmark = pytest.mark.both_databases


STICKY: dict[str, Any] = {"trigger_rules": {"mentionOnly": True, "sticky": True}, "session_mode": "per-thread"}


async def agent_of(fleet: Fleet, message_id: str) -> str:
    groups: dict[str, str] = {row.id: row.folder for row in await fleet.rows(AgentGroup)}
    return groups[next(row.agent_group_id for row in await fleet.inbox() if row.id == message_id)]


@pytest.mark.spec("M2")
async def test_an_agent_called_once_in_a_thread_follows_it(fleet: Fleet) -> None:
    group = await fleet.add_group()
    await wire(fleet, group, **STICKY)
    await grant_role(fleet, "ada", "member", group)
    with pytest.raises(RefusedError):
        await post_message(fleet, "not for you", "ada", thread_id="t1")
    first = await post_message(fleet, "you there", "ada", thread_id="t1", is_mention=True)
    second = await post_message(fleet, "and this", "ada", thread_id="t1")
    assert second.session_id == first.session_id
    for thread in ("t2", None):
        with pytest.raises(RefusedError):
            await post_message(fleet, "not for you", "ada", thread_id=thread)
    assert [(row.agent_group_id, row.thread_id) for row in await fleet.rows(Engagement)] == [(group, "t1")]


@pytest.mark.spec("M2", "C4")
async def test_a_stranger_engages_nobody(fleet: Fleet) -> None:
    group = await fleet.add_group()
    await wire(fleet, group, policy="request_approval", **STICKY)
    await post_message(fleet, "you there", "eve", thread_id="t1", is_mention=True)
    assert await fleet.rows(Engagement) == []


@pytest.mark.spec("M2")
async def test_several_agents_in_one_chat(fleet: Fleet) -> None:
    worker, boss = await fleet.add_group("worker"), await fleet.add_group("boss")
    await wire(fleet, worker, **STICKY)
    await wire(fleet, boss, trigger_rules={"pattern": "@boss"}, priority=5)
    await grant_role(fleet, "ada", "owner")
    said = [("do this", True), ("@boss look", True), ("and that", False), ("@boss again", False)]
    heard = [await post_message(fleet, text, "ada", thread_id="t1", is_mention=mention) for text, mention in said]
    assert [await agent_of(fleet, one.message_id) for one in heard] == ["worker", "boss", "worker", "boss"]


# --- longshore route -----------------------------------------------------------------------------------------------


async def everything(fleet: Fleet) -> dict[str, list[Any]]:
    return {mapper.local_table.description: await fleet.rows(mapper.class_) for mapper in Base.registry.mappers}


@pytest.mark.spec("M2", "G4")
async def test_a_dry_run_explains_and_writes_nothing(fleet: Fleet, cli: Cli) -> None:
    worker, boss = await fleet.add_group("worker"), await fleet.add_group("boss")
    await wire(fleet, worker, policy="request_approval", **STICKY)
    await wire(fleet, boss, trigger_rules={"pattern": "@boss"}, priority=5)
    await grant_role(fleet, "ada", "member", worker)
    accepted = await post_message(fleet, "you there", "ada", thread_id="t1", is_mention=True)
    before = await everything(fleet)

    async def explain(*arguments: str) -> dict[str, Any]:
        ran = await cli("route", "--channel", "fake", *arguments, "--json")
        assert ran.code == 0, ran.err
        found: dict[str, Any] = json.loads(ran.out)
        return found

    found = await explain("--chat", ROOM, "--text", "and now?", "--thread", "t1", "--sender", "ada")
    assert found == {
        "place": "fake room",
        "policy": "request_approval",
        "wirings": [
            {"agent": "boss", "takes": "passes", "reason": "its pattern '@boss' does not match"},
            {"agent": "worker", "takes": "answers", "reason": "it follows this thread"},
        ],
        "registers": None,
        "agent": "worker",
        "wakes": True,
        "session": accepted.session_id,
        "command": None,
        "outcome": "stored",
        "sender": "fake:ada",
        "admission": "a member of worker: let in",
    }
    stranger = await explain("--text", "@boss help", "--sender", "fake:eve")  # the only place needs no name
    assert (stranger["agent"], stranger["session"]) == ("boss", None)
    assert stranger["admission"] == "not known to boss: it would wait, and those who decide would be asked"
    command = await explain("--text", "/clear", "--mention", "--sender", "ada")
    assert command["command"] == "/clear is for admins of worker. You are a member."
    nobody = await explain("--text", "hello", "--sender", "ada")
    assert (nobody["agent"], nobody["admission"]) == (None, "no agent here listens to it, so it is refused")
    unwired = await explain("--chat", "attic", "--text", "hello")
    assert unwired["admission"] == "nobody is wired: longshore wire AGENT fake attic"
    code = await explain("--text", "LS-0000-0000-0000", "--direct")
    assert "one-time code" in code["command"]
    assert await everything(fleet) == before

    shown = (await cli("route", "--channel", "fake", "--text", "you", "--mention", "--sender", "ada")).out
    assert "✗ boss passes: its pattern '@boss' does not match" in shown
    assert "→ worker answers: it is mentioned" in shown
    assert "answered by worker, in a new session" in shown
    assert await everything(fleet) == before


@pytest.mark.spec("M2", "G4")
async def test_a_dry_run_without_a_place_names_those_there_are(fleet: Fleet, cli: Cli) -> None:
    none = await cli("route", "--channel", "fake", "--text", "x")
    assert (none.code, "no agent listens there yet" in none.err) == (2, True)
    group = await fleet.add_group()
    for chat in ("one", "two"):
        await wire(fleet, group, chat)
    several = await cli("route", "--channel", "fake", "--text", "x")
    assert "agents listen in: one, two" in several.err
    assert (await cli("route", "--channel", "nowhere", "--text", "x")).code == 1


# --- longshore wire ------------------------------------------------------------------------------------------------


@pytest.mark.spec("M2", "C4", "G4")
async def test_wirings_are_made_listed_and_removed(fleet: Fleet, cli: Cli) -> None:
    await fleet.add_group()
    senders = ("--include-sender", "fake:ada", "--include-sender", "bob", "--exclude-sender", "eve")
    wired = await cli("wire", "demo", "fake", "room", "--mention-only", *senders, "--unknown", "request_approval")
    assert wired.code == 0, wired.err
    [wiring] = await fleet.rows(Wiring)
    assert wiring.trigger_rules == {
        "mentionOnly": True,
        "includeSenders": ["ada", "bob"],
        "excludeSenders": ["eve"],
        "sticky": True,
    }
    [place] = await fleet.rows(MessagingGroup)
    assert place.unknown_sender_policy == "request_approval"
    listed = (await cli("wirings")).out
    assert "request_approval" in listed
    assert "mentions; only ada, bob; not eve; follows threads" in listed
    again = await cli("wire", "demo", "fake", "room", "--pattern", "^x", "--scope", "triggered", "--priority", "3")
    assert again.code == 0
    [row] = json.loads((await cli("wirings", "--json")).out)
    assert (row["trigger_rules"], row["priority"]) == ({"pattern": "^x"}, 3)
    assert row["unknown_sender_policy"] == "request_approval"  # what is not said stays
    assert (await cli("unwire", "demo", "fake", "room")).code == 0
    assert await fleet.rows(Wiring) == []
    assert (await cli("unwire", "demo", "fake", "room")).code == 1


@pytest.mark.spec("M2", "G4")
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_the_list_of_wirings_says_what_they_do_also_on_a_narrow_screen(
    fleet: Fleet, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.add_group()
    rules = ("--scope", "triggered", "--exclude-sender", "eve", "--follow-up", "reject")
    await cli("wire", "--unknown", "request_approval", *rules, "demo", "fake", "--", "-100123")
    assert "mentions; not eve; overhears the rest; refuses more while at work" in (await cli("wirings")).out
    monkeypatch.setattr(desk.out, "_width", 80)
    assert "request_approval" in (await cli("wirings")).out


@pytest.mark.spec("G4")
@pytest.mark.parametrize("database_kind", ["postgresql"], indirect=True)
async def test_what_the_database_does_not_take_is_said_in_a_sentence(
    fleet: Fleet, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.add_group()
    for name in ("workers.operations.wirings.check_name", "gateway.cli.people.check_name"):
        monkeypatch.setattr(name, lambda _, given, *__: given)  # whatever a check may not know of
    for arguments in (("wire", "demo", "fake", "x" * 300), ("people", "show", "a\x00b")):
        refused = await cli(*arguments)
        assert (refused.code, "the database does not take this:" in refused.err) == (1, True)


@pytest.mark.spec("G4")
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_an_owner_without_a_chat_is_listed_as_such(fleet: Fleet, cli: Cli) -> None:
    await grant_role(fleet, "olga", "owner")
    assert "no chat yet" in (await cli("owners", "list")).out
    refused = await cli("owners", "add", "fake", "u" * 300, "chat")
    assert "at most 255" in refused.err


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("demo", "fake", "room", "--pattern", "("), "is not a regular expression"),
        (("demo", "fake", "room", "--scope", "allowlisted"), "name somebody"),
        (("nobody", "fake", "room"), "there is no agent 'nobody'"),
        (("demo", "nowhere", "room"), "there is no channel 'nowhere'"),
        (("demo", "fake", "room", "--unknown", "whatever"), "'whatever' is not one of"),
        (("demo", "fake", "room", "--priority", "99999999999999"), "Invalid value for '--priority'"),
        (("demo", "fake", "x" * 300), "the place has 300 characters; at most 255 are taken"),
        (("demo", "fake", "a\x00b"), "has characters that cannot be seen"),
        (("demo", "fake", " "), "the place is empty"),
        (("demo", "fake", "room", "--pattern", ""), "is empty: it would match everything"),
        (("demo", "fake", "room", "--pattern", "(a+)+$"), "could take too long"),
        (("demo", "fake", "room", "--include-sender", ""), "a sender is empty"),
        (("demo", "fake", "room", "--include-sender", "ada", "--exclude-sender", "fake:ada"), "both included and"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
async def test_a_wiring_that_makes_no_sense_is_refused(fleet: Fleet, cli: Cli, arguments: Any, said: str) -> None:
    await fleet.add_group()
    refused = await cli("wire", *arguments)
    assert refused.code != 0
    assert said in refused.err
    assert await fleet.rows(Wiring) == []
