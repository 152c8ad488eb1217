"""Commands of the command line against rows of both databases: what they change, what they say, what they refuse."""

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import insert

from gateway.cli.desk import Desk
from models import AgentGroup, Approval, Audit, ProviderHealth
from models.base import now
from models.fleet import report_alive
from tests.support.command_line import Cli
from tests.support.fake_programs import fake_program
from tests.support.fleet import Fleet
from tests.support.scripts import QUESTION_SCRIPT
from workers.consent.requests import hash_of
from workers.operations.group_settings import Changes
from workers.operations.groups import update_group


@pytest.mark.spec("G4", "P20", "P21")
async def test_settings_of_a_group_are_changed_one_by_one(cli: Cli, fleet: Fleet) -> None:
    await fleet.add_group("a", provider=None, config={"kept": 1})
    said = await cli("groups", "set", "a", "--provider", "openai", "--fallback", "anthropic", "--fallback", "scripted")
    assert said.code == 0, said.err
    assert "openai" in said.out
    assert "anthropic, then scripted" in said.out
    assert "OPENAI_API_KEY is not set here" in said.err
    assert "no worker listens on agent.openai" in said.err
    quiet = await cli("groups", "set", "a", "--daily-budget", "2.5", "--option", "max_tokens=100", "--name", "Ann")
    assert (quiet.code, quiet.err) == (0, "")
    found = json.loads((await cli("groups", "show", "a", "--json")).out)
    assert (found["name"], found["provider"], found["model"]) == ("Ann", "openai", None)
    assert found["config"] == {
        "kept": 1,
        "fallbacks": ["anthropic", "scripted"],
        "budget": {"daily_usd": 2.5},
        "provider_options": {"max_tokens": 100},
    }
    listed = (await cli("groups", "list")).out
    assert "anthropic, scripted" in listed
    assert "$2.50 a day" in listed
    cleared = ("--no-fallbacks", "--daily-budget", "none", "--option", "max_tokens=", "--provider", "default", "--json")
    assert json.loads((await cli("groups", "set", "a", *cleared)).out)["config"] == {"kept": 1}
    assert "budget" not in (await cli("groups", "list")).out
    assert (await cli("groups", "set", "a")).out == (await cli("groups", "show", "a")).out


@pytest.mark.spec("G4")
async def test_secrets_among_an_agents_settings_are_not_shown(cli: Cli, fleet: Fleet) -> None:
    shaped = "ghp_" + "a1B2" * 9
    options = {"script": f"say {shaped}", "api_key": "hunter2", "nested": {"password": "hunter3"}}
    await fleet.add_group("a", config={"provider_options": options, "policy": {"servers": [{"token": "hunter4"}]}})
    for command in (("list",), ("show", "a"), ("set", "a", "--name", "Ann"), ("set", "a")):
        for how in ((), ("--json",)):
            shown = (await cli("groups", *command, *how)).out
            assert "hunter" not in shown, (command, how)
            assert shaped not in shown, (command, how)
    hidden = {"script": "say [redacted]", "api_key": "(set)", "nested": {"password": "(set)"}}
    config = {"provider_options": hidden, "policy": {"servers": [{"token": "(set)"}]}}
    assert json.loads((await cli("groups", "show", "a", "--json")).out)["config"] == config
    [row] = await fleet.rows(AgentGroup)
    assert (row.name, row.config["provider_options"]) == ("Ann", options)


@pytest.mark.spec("G4")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["groups", "set", "nobody", "--name", "x"], 1, "there is no agent 'nobody'"),
        (["groups", "show", "nobody"], 1, "there is no agent 'nobody'"),
        (["groups", "set", "a", "--provider", "gpt"], 1, "there is no provider 'gpt' here; installed: acp, anthropic"),
        (["groups", "set", "a", "--provider", ""], 2, "--provider is empty"),
        (["groups", "set", "a", "--fallback", "openai", "--no-fallbacks"], 2, "exclude each other"),
        (["groups", "set", "a", "--name", "new", "--fallback", "gpt"], 1, "there is no provider 'gpt' here"),
        (["groups", "set", "a", "--name", "new", "--daily-budget", "0"], 2, "--daily-budget must be more than 0"),
        (["groups", "set", "a", "--name", "new", "--option", "sing=1"], 1, "has no option sing"),
        (["groups", "set", "a", "--option", "sing"], 2, "--option 'sing' is not KEY=VALUE"),
        (["groups", "add", "b", "--daily-budget", "much"], 2, "is not an amount in US dollars"),
        (["groups", "add", "a"], 1, "there is already an agent 'a'; change it with: longshore groups set a"),
        (["usage", "--by", "agent,weather"], 2, "--by cannot be 'weather'; it takes: agent, provider, model, user"),
        (["usage", "--by", ","], 2, "--by is empty; it takes: agent"),
        (["usage", "--days", "2", "--since", "2026-01-01"], 2, "give --days or --since, not both"),
        (["usage", "--since", "yesterday"], 2, "--since 'yesterday' is not a day"),
        (["usage", "--group", "nobody"], 1, "there is no agent 'nobody'"),
        (["answer", "zzz", "yes"], 1, "no question ends with 'zzz'"),
        (["answer", "zzz", " "], 2, "the answer is empty"),
        (["approve", "zzz"], 1, "no approval ends with 'zzz'"),
        (["approve", "zzz", "--usd", "-1"], 2, "--usd must be more than 0"),
        (["deny", "zzz"], 1, "no approval ends with 'zzz'"),
        (["chat", "nobody"], 1, "there is no agent 'nobody'; there are: a, c"),
        (["chat"], 2, "which agent? There are: a, c"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # the words do not depend on it
async def test_mistakes_get_a_sentence_and_change_nothing(
    cli: Cli, fleet: Fleet, arguments: list[str], code: int, said: str
) -> None:
    await fleet.add_group("a")
    await fleet.add_group("c")
    ran = await cli(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert json.loads((await cli("groups", "show", "a", "--json")).out)["name"] == "a"


@pytest.mark.spec("G4")
@pytest.mark.parametrize("database_kind", ["sqlite"])  # which one is meant does not depend on it
async def test_a_chat_without_a_name_is_with_the_agent_that_up_made(cli: Cli, fleet: Fleet) -> None:
    """`longshore up` makes more than one; the first minutes' `longshore chat` finds the one to talk with."""
    for name in ("pilot", "demo", "assistant"):
        # One that cannot answer, and says whose it is.
        await fleet.add_group(name, provider=f"the-{name}s")
        assert f"there is no provider 'the-{name}s'" in (await cli("chat")).err


@pytest.mark.spec("G4")
async def test_changes_made_at_once_are_all_kept(fleet: Fleet) -> None:
    await fleet.add_group("a", provider="openai")
    settings = fleet.runtime.settings
    desks = [Desk(settings) for _ in range(4)]
    changes: list[Changes] = [
        Changes(name="Ann"),
        Changes(budget={"daily_usd": 1.0}),
        Changes(budget={"user_daily_usd": 0.5}),
        Changes(fallbacks=("anthropic",)),
    ]

    async def change(desk: Desk, wanted: Changes) -> None:
        await update_group(desk, "cli", "a", wanted)

    await asyncio.gather(*(change(desk, wanted) for desk, wanted in zip(desks, changes, strict=True)))
    for desk in desks:
        await desk.close()
    [row] = await fleet.rows(AgentGroup)
    assert row.name == "Ann"
    assert row.config == {"budget": {"daily_usd": 1.0, "user_daily_usd": 0.5}, "fallbacks": ["anthropic"]}


@pytest.mark.spec("P16", "G4")
@pytest.mark.usefixtures("no_programs")
async def test_providers_are_shown_with_health_and_workers(cli: Cli, fleet: Fleet) -> None:
    rows: list[dict[str, Any]] = [
        {"provider": "openai", "account": "ab12", "state": "down", "detail": "connect refused", "until": now(600)},
        {"provider": "anthropic", "account": "cd34", "state": "limited", "detail": "429", "until": now(-5)},
    ]

    async def work(conn: Any) -> None:
        for row in rows:
            await conn.execute(insert(ProviderHealth).values(**row))
        await report_alive(conn, "w@host", "worker", pid=1, queues=["agent.scripted"])

    await fleet.db.transact(work)
    found = {one["id"]: one for one in json.loads((await cli("providers", "--json")).out)}
    assert {"anthropic", "openai", "scripted"} <= set(found)
    assert found["scripted"]["state"] == "ok"
    assert found["scripted"]["workers"] == ["w@host"]
    assert found["openai"]["health"][0]["state"] == "down"
    assert found["openai"]["missing_key"] == "OPENAI_API_KEY"
    assert found["anthropic"]["default_model"]
    shown = (await cli("providers")).out
    assert "down for 10 min: connect refused (ab12)" in shown
    assert "none listens on agent.openai" in shown
    assert "429" not in shown  # that is over


@pytest.mark.spec("P16", "G4")
@pytest.mark.parametrize("database_kind", ["sqlite"])
async def test_a_program_that_is_installed_is_shown_with_its_version(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no other program is looked at
    with fake_program("claude", monkeypatch, b"", version="2.1.999 (Claude Code)"):
        shown = " ".join((await cli("providers")).out.split())
    assert "claude-code version 1, by anthropic, claude 2.1.999 from Longshore installed yes" in shown
    assert "codex version 1, by openai from Longshore installed no: there is no program `codex`" in shown
    assert "acp version 1, by any from" in shown  # whose program is another one in each group


@pytest.mark.spec("M17", "C7", "G4")
async def test_a_question_is_listed_and_answered_once(cli: Cli, fleet: Fleet) -> None:
    assert "no agent waits for an answer" in (await cli("questions")).out
    await fleet.add_group(script=QUESTION_SCRIPT)
    await fleet.send("hello")
    await fleet.settle_down()
    shown = (await cli("questions")).out
    assert "Tea Now or later?" in shown
    assert "1 Now  2 Later" in shown
    assert "expires in 15 min" in shown
    [question] = json.loads((await cli("questions", "--json")).out)
    answered = await cli("answer", question["id"][-8:], "2")
    assert (answered.code, answered.out) == (0, "answered. demo goes on\n")
    [line] = await fleet.rows(Audit)
    assert (line.who, line.act, line.target, line.detail) == ("cli", "question.answer", question["id"], {})
    await fleet.settle_down()
    assert (await fleet.outbox())[-1].content["text"] == "So: Later"
    assert "no agent waits" in (await cli("questions")).out
    assert "Later by cli" in (await cli("questions", "--all")).out
    late = await cli("answer", question["id"], "1")
    assert late.code == 1
    assert "too late" in late.err


@pytest.mark.spec("P21", "G4")
async def test_an_approval_is_listed_and_decided_once(cli: Cli, fleet: Fleet) -> None:
    assert "nothing waits for a decision" in (await cli("approvals")).out
    group = await fleet.add_group()
    sent = await fleet.send("hello")
    await fleet.settle_down()
    payload = {"agent_group_id": group, "user_id": "", "day": "2026-01-01", "usd": 1.0}
    values = {
        "session_id": sent.session_id,
        "category": "budget",
        "summary": "the daily budget of demo ($1.00) is spent; allow $1.00 more today?",
        "risk": "medium",
        "payload": payload,
        "payload_hash": hash_of(payload),
        "expires_at": now(3600),
    }
    await fleet.execute(insert(Approval).values(**values))
    assert "allow $1.00 more today?" in (await cli("approvals")).out
    [approval] = json.loads((await cli("approvals", "--json")).out)
    yes = await cli("approve", approval["id"][-8:], "--usd", "3")
    assert (yes.code, "$3.00 more" in yes.out) == (0, True)
    assert "approved by cli" in (await cli("approvals", "--all")).out
    no = await cli("deny", approval["id"])
    assert (no.code, "already approved" in no.err) == (1, True)


@pytest.mark.spec("P21", "G4")
async def test_usage_is_shown_with_a_total_and_what_has_no_price(cli: Cli, fleet: Fleet) -> None:
    assert "no model was asked since" in (await cli("usage")).out
    script = """
- when: dear
  play:
    - usage: {model: big, input_tokens: 1200, output_tokens: 34, cache_read_tokens: 7, cost_usd: 0.0042}
- play:
    - answer: "free"
"""
    await fleet.add_group(script=script, config={"provider_options": {"script": script}, "budget": {"daily_usd": 1.0}})
    for text in ("dear", "free"):
        await fleet.send(text, sender_id="eve")
        await fleet.settle_down()
    shown = (await cli("usage", "--by", "model,user")).out
    assert "big" in shown
    assert "1,207" in shown  # what came from the cache was read too
    assert "$0.0042" in shown
    assert "nobody knows the price of 1 call" in shown
    assert "$0.0042 of $1.00 spent, $1.00 left" in shown
    found = json.loads((await cli("usage", "--by", "agent,day", "--days", "1", "--group", "demo", "--json")).out)
    assert found["total"]["cost_usd"] == pytest.approx(0.0042)
    assert [row["agent"] for row in found["rows"]] == ["demo"]
    assert "there are more rows" in (await cli("usage", "--by", "model", "--limit", "1")).out
    assert "there are more rows" not in (await cli("usage", "--by", "model", "--limit", "2")).out


@pytest.mark.spec("G4", "G3")
async def test_what_the_operator_changes_is_in_the_audit_log(cli: Cli, fleet: Fleet) -> None:
    commands = [
        ("groups", "add", "ann"),
        ("groups", "set", "ann", "--option", "script=hush {texts}"),
        ("wire", "ann", "fake", "room"),
        ("unwire", "ann", "fake", "room"),
        ("people", "add", "fake:ada", "--agent", "ann"),
        ("people", "remove", "fake:ada"),
        ("owners", "add", "fake", "olga", "chat"),
        ("tasks", "add", "ann", "hush", "--every", "@daily"),
    ]
    for command in commands:
        ran = await cli(*command)
        assert ran.code == 0, ran.err
    lines = await fleet.rows(Audit, Audit.id)
    assert [line.act for line in lines] == [
        "group.add",
        "group.update",
        "wiring.put",
        "wiring.remove",
        "person.grant",
        "person.withdraw",
        "person.grant",
        "task.add",
    ]
    assert {line.who for line in lines} == {"cli"}
    assert "hush" not in str([line.detail for line in lines])
