"""`longshore dead`, `cancel`, `reset`, `close` and `replay` at the command line: what they do, say and refuse."""

import asyncio
import json

import pytest

from models import Audit
from tests.support.command_line import Cli
from tests.support.fleet import Fleet

FAILS = "- when: broken\n  play:\n    - fail: {class: auth}\n- play:\n    - answer: 'You said: {texts}'\n"


@pytest.mark.spec("M11", "G4")
async def test_dead_letters_at_the_command_line(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group(script=FAILS)
    for text in ("broken", "broken too"):
        await fleet.send(text, platform_id=text)
    await fleet.settle_down()
    first, second = [row for row in await fleet.inbox() if row.status == "failed"]
    shown = json.loads((await cli("dead", "show", first.id[-8:], "--json")).out)
    assert (shown["id"], shown["status"], shown["agent"]) == (first.id, "failed", "demo")
    wrong = await cli("dead", "retry", first.id, "--provider", "nobody")
    assert wrong.code == 1
    assert "there is no provider 'nobody' here; installed: " in wrong.err
    tried = await cli("dead", "retry", first.id, "--provider", "scripted", "--model", "m1")
    assert (tried.code, tried.err) == (0, "")
    assert "is back in the queue of demo on scripted (m1)" in tried.out
    [row] = [row for row in await fleet.inbox() if row.id == first.id]
    assert (row.status, row.provider, row.model) == ("pending", "scripted", "m1")
    again = await cli("dead", "retry", first.id)
    assert (again.code, "no dead letter ends with" in again.err) == (1, True)
    everything = await cli("dead", "retry", "--all")
    assert (everything.code, everything.out) == (0, "1 back in the queue\n")
    assert len(fleet.bells.wakes) == 2
    await fleet.settle_down()
    put_away = await cli("dead", "discard", second.id)
    assert put_away.out == f"message {second.id[-8:]} was put away\n"
    assert (await cli("dead", "retry")).code == 2
    assert {line.act for line in await fleet.rows(Audit)} == {"dead.retry", "dead.discard"}


@pytest.mark.spec("M11", "G4")
async def test_one_that_cannot_be_tried_again_does_not_keep_the_others(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group(script=FAILS)
    await fleet.add_group("lost", provider="gone")
    await fleet.send("broken")
    await fleet.send("hello", agent_group="lost")
    await fleet.settle_down()
    said = await cli("dead", "retry", "--all")
    assert (said.code, said.out) == (1, "1 back in the queue\n")
    assert "there is no provider 'gone' here" in said.err


@pytest.mark.spec("M15", "G4")
async def test_sessions_are_steered_by_the_end_of_their_id(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group(script="- when: wait\n  play:\n    - fail: {class: transport}\n- play:\n    - answer: ok\n")
    session_id = (await fleet.send("wait")).session_id
    await fleet.answer_wakes()
    cancelled = await cli("cancel", session_id[-8:])
    assert (cancelled.code, cancelled.out) == (0, "turn 1 of demo was cancelled\n")
    twice = await cli("cancel", session_id)
    assert twice.code == 1
    assert "it has just ended (turn 1: cancelled)" in twice.err
    assert json.loads((await cli("reset", session_id, "--json")).out)["session"] == session_id
    new = next(row.id for row in await fleet.sessions() if row.status == "active")
    assert (await cli("close", new)).out == f"session {new[-8:]} of demo is closed\n"
    assert (await cli("close", new)).code == 1
    assert (await cli("cancel", "nothing")).code == 1
    assert [line.act for line in await fleet.rows(Audit, Audit.id)] == ["turn.cancel", "session.reset", "session.close"]


@pytest.mark.spec("M15", "G4")
async def test_a_replay_is_made_watched_compared_and_closed(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group(script="You said: {texts}")
    for text in ("one", "two"):
        session_id = (await fleet.send(text)).session_id
        await fleet.settle_down()
    made = await cli("replay", session_id[-8:], "--turn", "2")
    assert (made.code, made.err) == (0, "")
    new = next(row.id for row in await fleet.sessions() if row.replay_of is not None)
    assert f"1 turn of {session_id[-8:]} replayed on scripted, session {new}" in made.out
    assert f"longshore tail {new[-8:]}" in made.out
    waiting = asyncio.ensure_future(cli("replay", "--show", new, "--wait"))
    await fleet.settle_down()
    said = await waiting
    assert said.code == 0, said.err
    assert said.out.count("You said: two") == 2
    assert "original" in said.out
    pairs = json.loads((await cli("replay", "--show", new, "--json")).out)["pairs"]
    assert [(pair["original"]["number"], pair["replayed"]["status"]) for pair in pairs] == [(2, "completed")]
    assert f"replay of {session_id[-8:]}" in (await cli("sessions")).out
    assert f"a replay of {session_id}" in (await cli("sessions", new)).out
    assert (await cli("close", new)).out == f"the replay {new[-8:]} of demo is closed\n"
    for wrong, words in (
        (("--show", session_id), "is no replay; make one"),
        (("--turn", "9", session_id), "there is no turn 9"),
        (("--provider", "nobody", session_id), "there is no provider 'nobody'"),
        (("--show", new, "--turn", "1"), "--show looks at a replay that is there"),
    ):
        refused = await cli("replay", *wrong)
        assert refused.code in (1, 2)
        assert words in refused.err


@pytest.mark.spec("M15", "G4")
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_waiting_ends_when_the_replay_is_closed(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group(script="You said: {texts}")
    session_id = (await fleet.send("one")).session_id
    await fleet.settle_down()
    waiting = asyncio.ensure_future(cli("replay", session_id, "--wait"))
    async with asyncio.timeout(20):
        while not (found := [row.id for row in await fleet.sessions() if row.replay_of is not None]):
            await asyncio.sleep(0.01)
        assert (await cli("close", found[0])).code == 0
        assert (await waiting).code == 0


@pytest.mark.spec("M15", "G4")
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_session_is_answered_again_where_it_was_said_and_compared(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group(script="You said: {texts}")
    session_id = (await fleet.send("one")).session_id
    await fleet.settle_down()
    made = await cli("replay", session_id[-8:], "--again")
    new = next(row.id for row in await fleet.sessions() if row.status == "active")
    assert f"1 turn of {session_id[-8:]} to be answered again where they were said, session {new}" in made.out
    waiting = asyncio.ensure_future(cli("replay", "--show", new, "--wait"))
    await fleet.settle_down()
    assert (await waiting).out.count("You said: one") == 2
    assert [row.status for row in await fleet.outbox()] == ["delivered", "delivered"]
    again = json.loads((await cli("replay", new, "--again", "--json")).out)
    assert (again["again_of"], again["turns"]) == (new, [1])
    refused = await cli("replay", session_id, "--again", "--deliver")
    assert (refused.code, "leave --deliver out" in refused.err) == (2, True)
