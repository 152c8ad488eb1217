"""Scripts before tasks: each way one can end has one outcome that people see, and none is run twice once it has."""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.model_port import AnyProvider
from adapters.registry import Drivers, Registry
from models import MessageIn, Step, TranscriptItem
from models.dead_letters import revive
from models.series import Series
from tests.support.api_fleet import model_api, retry_now
from tests.support.cards import appoint
from tests.support.directive_provider import Diarist
from tests.support.due_tasks import due_task, lose_worker, script_steps
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import ModelApi, refuse, rule, script
from tests.support.servers import private_folder
from workers import scripts
from workers.loop import Job, Stop, StoppedError
from workers.turn import wake

pytestmark = pytest.mark.spec("S4")
sqlite_only = pytest.mark.parametrize("database_kind", ["sqlite"])

# Whoever runs twice is seen.
LOG = "echo run >> runs.log; "
WAKE = LOG + """echo '{"wakeAgent": true, "data": {"new": 3}}'"""
SLEEP = LOG + """echo looking; echo '{"wakeAgent": false}'"""
DATA = 'Script output:\n{"new": 3}'


@pytest.fixture
def root() -> Iterator[Path]:
    """Where the sandbox's user can come, also if the tests are root's."""
    folder = private_folder()
    yield folder / "workspaces"
    shutil.rmtree(folder)


@pytest.fixture
async def fleet(make_fleet: MakeFleet, root: Path) -> Fleet:
    fleet = await make_fleet(workspace_root=root)
    assert await fleet.runtime.sandbox() is not None, "these tests need a sandbox"
    return fleet


def runs(root: Path, folder: str = "demo") -> int:
    log = root / folder / "runs.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


async def events(fleet: Fleet, *types: str) -> list[dict[str, Any]]:
    return [row.payload for row in await fleet.events() if row.type in types]


async def test_one_that_finds_nothing_spares_the_agent(fleet: Fleet, root: Path) -> None:
    await fleet.add_group()
    accepted = await due_task(fleet, script=SLEEP)
    assert await fleet.wake(accepted.session_id) == "completed"
    [message], [turn], [step] = await fleet.inbox(), await fleet.turns(), await fleet.rows(Step)
    assert (message.status, message.error, turn.status, turn.error) == ("completed", None, "completed", None)
    assert (step.name, step.status, step.key) == ("script", "finished", f"script:{message.id}")
    assert await fleet.outbox() == []
    assert await fleet.rows(TranscriptItem) == []
    assert (fleet.bells.wakes, fleet.bells.deliveries) == ([], [])
    told = await events(fleet, "tool_call", "progress", "tool_result", "turn_ended")
    assert [event["name"] for event in told if "name" in event] == ["script", "script"]
    assert told[1]["text"] == "script: there is nothing to do, and the agent is not asked"
    assert (told[2]["ok"], told[3]["status"]) == (True, "completed")
    assert runs(root) == 1
    assert await fleet.wake(accepted.session_id) == "nothing"


async def test_what_it_finds_is_shown_to_the_agent(fleet: Fleet) -> None:
    await fleet.add_group()
    accepted = await due_task(fleet, "tell them", script=WAKE)
    assert await fleet.wake(accepted.session_id) == "completed"
    [answer], [asked, _] = await fleet.outbox(), await fleet.rows(TranscriptItem, TranscriptItem.position)
    assert answer.content["text"] == f"You said: tell them\n\n{DATA}"
    head, _, rest = asked.content["text"].partition("\nScript")
    assert head.startswith("[SCHEDULED TASK]\nScheduled for: ")
    assert f"Script{rest}" == f"{DATA}\nInstructions:\ntell them"


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with model_api(monkeypatch, script(rule(None, "noted", repeat=True))) as server:
        yield server


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_a_model_is_told_what_it_found_also_when_it_is_asked_again(
    fleet: Fleet, api: ModelApi, root: Path, provider: str
) -> None:
    """The turn that is tried again runs the script no more, and asks the same."""
    await fleet.add_group(provider=provider, model="claude-haiku-5-5" if provider == "anthropic" else "some-model")
    api.fail(refuse("overloaded"))
    accepted = await due_task(fleet, script=WAKE, late=600)
    assert await fleet.wake(accepted.session_id, provider) == "waiting"
    assert await retry_now(fleet) == ["completed"]
    told = [str(body).replace("\\\\", "\\") for body in api.bodies]
    assert len(told) == 2
    assert all(r'Script output:\n{"new": 3}\nInstructions:\nlook around' in text for text in told)
    assert "begun 10 minutes later" in told[0]
    assert api.bodies[0]["messages"] == api.bodies[1]["messages"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["noted"]
    assert runs(root) == 1


@sqlite_only
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_no_model_is_asked_when_there_is_nothing_to_do(fleet: Fleet, api: ModelApi, provider: str) -> None:
    await fleet.add_group(provider=provider, model="claude-haiku-5-5" if provider == "anthropic" else "some-model")
    accepted = await due_task(fleet, script=SLEEP)
    assert await fleet.wake(accepted.session_id, provider) == "completed"
    assert api.requests == []
    assert [step.name for step in await fleet.rows(Step)] == ["script"], "the call that was not made is forgotten"
    assert await fleet.outbox() == []


@sqlite_only
async def test_a_program_is_told_what_it_found_also_when_it_begins_anew(make_fleet: MakeFleet, root: Path) -> None:
    """Its first attempt has done nothing that it could remember. What the script did is not told as its own."""
    diarist = Diarist()
    drivers: dict[str, AnyProvider] = {"diarist": diarist}
    registry = Registry(providers=Drivers("provider", drivers))
    fleet = await make_fleet(registry, sandbox="none", default_provider="diarist", workspace_root=root)
    await fleet.add_group(provider="diarist")
    diarist.breaks = 1
    accepted = await due_task(fleet, "break", script=WAKE)
    assert await fleet.wake(accepted.session_id, "diarist") == "waiting"
    assert await retry_now(fleet) == ["completed"]
    first, second = (str(query.given.prompt) for query in diarist.queries)
    assert first == second
    assert f"{DATA}\nInstructions:\nbreak" in first
    assert diarist.queries[0].given.messages == (f"break\n\n{DATA}",), "what is typed into a terminal"
    assert runs(root) == 1


SMALL = replace(scripts.LIMITS, seconds=20.0, memory_bytes=256 << 20, output_bytes=200_000)
OUTCOMES = {
    "time": ("echo begun >&2; sleep 600", "it took longer than the 1 s it may; on stderr: begun"),
    "exit code": (
        """echo '{"wakeAgent": true}'; echo "cannot find it" >&2; exit 3""",
        "exit code 3; on stderr: cannot find it",
    ),
    "no such command": ("\nfindit --now", "exit code 127; on stderr: script: line 2: findit: command not found"),
    "syntax": ("echo '{\"wakeAgent\": true}'\nif true; then", "syntax error"),
    "a signal": ("kill -9 $$", "exit code 137"),
    "nothing": ("true", "it printed nothing"),
    "no JSON": ("echo all is well", "what it printed last is no JSON: 'all is well'"),
    "JSON and a word": ("""echo '{"wakeAgent": true}'; echo bye""", "no JSON: 'bye'"),
    "a list": ("""echo '[true]'""", "no JSON object"),
    "no word": ("""echo '{"data": 1}'""", "wakeAgent is missing"),
    "no boolean": ("""echo '{"wakeAgent": "yes"}'""", "wakeAgent is neither true nor false"),
    "much output": ("yes '{\"wakeAgent\": true}'", "it printed more than the 0.1907 MB it may"),
    "much on stderr": ("yes >&2", "it printed more than the 0.1907 MB it may"),
    "much data": (
        """printf '{"wakeAgent": true, "data": "%s"}' "$(head -c 60000 /dev/zero | tr '\\0' x)" """,
        "its data has 60,002 characters; it may have 50,000",
    ),
    "much memory": ("python3 -c 'x = bytearray(1 << 30); print(len(x))'", "MemoryError"),
    "a reader of stdin": ("cat; read line; echo $line", "it printed nothing"),
}


# What differs between the databases is only how an error is stored.
ON_POSTGRESQL = ("time", "exit code", "much output")


@pytest.mark.parametrize(
    ("database_kind", "outcome"),
    [("sqlite", outcome) for outcome in OUTCOMES] + [("postgresql", outcome) for outcome in ON_POSTGRESQL],
)
async def test_one_that_goes_wrong_fails_the_run_and_says_how(
    fleet: Fleet, root: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    text, why = OUTCOMES[outcome]
    monkeypatch.setattr(scripts, "LIMITS", replace(SMALL, seconds=1.0) if outcome == "time" else SMALL)
    await fleet.add_group()
    accepted = await due_task(fleet, script=LOG + text)
    assert await fleet.wake(accepted.session_id) == "failed"
    [message], [turn], [step] = await fleet.inbox(), await fleet.turns(), await script_steps(fleet)
    assert (message.status, message.error_class, turn.error_class) == ("failed", "script", "script")
    assert message.error.startswith("the script before this task failed: ")
    assert why in message.error
    assert len(message.error) < 2000
    assert (message.tries, step.status) == (1, "failed"), "it is not tried again"
    assert message.error.endswith(step.output["text"])
    [result] = await events(fleet, "tool_result")
    assert not result["ok"]
    assert [row.kind for row in await fleet.outbox()] == ["notice"], "whoever waits for it is told"
    assert runs(root) == 1


@sqlite_only
async def test_without_a_sandbox_none_is_run(
    make_fleet: MakeFleet, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = await make_fleet(workspace_root=root)

    async def none() -> None:
        return None

    monkeypatch.setattr(fleet.runtime, "sandbox", none)
    await fleet.add_group()
    accepted = await due_task(fleet, script=WAKE)
    assert await fleet.wake(accepted.session_id) == "failed"
    [message] = await fleet.inbox()
    assert message.error_class == "script"
    assert "this machine has none that holds" in message.error
    assert runs(root) == 0


async def test_a_worker_that_dies_behind_it_costs_no_second_run(
    make_fleet: MakeFleet, fleet: Fleet, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between the script's end and the provider; another goes on with what the script said."""
    other = await make_fleet(workspace_root=root)
    await fleet.add_group()
    accepted = await due_task(fleet, script=WAKE)

    async def die(_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr("workers.turn._Attempt._ask_provider", die)
        with pytest.raises(SystemExit):
            await fleet.wake(accepted.session_id)
    assert runs(root) == 1
    await lose_worker(fleet)
    assert await other.wake(accepted.session_id) == "completed"
    assert runs(root) == 1
    [answer], [turn] = await fleet.outbox(), await fleet.turns()
    assert answer.content["text"].endswith(DATA)
    assert (turn.attempt, turn.status) == (2, "completed")


@pytest.mark.parametrize("text", [SLEEP, LOG + "exit 1"])
async def test_a_worker_that_dies_before_it_says_how_it_ended_costs_no_second_run(
    make_fleet: MakeFleet, fleet: Fleet, root: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    other = await make_fleet(workspace_root=root)
    await fleet.add_group()
    accepted = await due_task(fleet, script=text)

    async def die(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr("workers.turn._Attempt._judge", die)
        with pytest.raises(SystemExit):
            await fleet.wake(accepted.session_id)
    await lose_worker(fleet)
    assert await other.wake(accepted.session_id) == ("completed" if text == SLEEP else "failed")
    assert runs(root) == 1
    assert len(await script_steps(fleet)) == 1


async def test_one_whose_worker_died_while_it_ran_is_run_again(
    make_fleet: MakeFleet, fleet: Fleet, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await make_fleet(workspace_root=root)
    await fleet.add_group()
    accepted = await due_task(fleet, script=WAKE)

    async def die(*_: Any, **__: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as dying:
        dying.setattr(scripts.TaskScript, "_finish", die)
        with pytest.raises(SystemExit):
            await fleet.wake(accepted.session_id)
    [begun] = await script_steps(fleet)
    assert begun.status == "started"
    await lose_worker(fleet)
    assert await other.wake(accepted.session_id) == "completed"
    assert runs(root) == 2, "nobody knows how far the first came"
    [step] = await script_steps(fleet)
    assert (step.id, step.status) == (begun.id, "finished")


@pytest.mark.parametrize("reason", [Stop.REVOKED, Stop.SHUTDOWN])
async def test_a_worker_that_is_stopped_stops_it(fleet: Fleet, root: Path, reason: Stop) -> None:
    await fleet.add_group()
    nap = f"30.{secrets.randbelow(10**9)}"
    accepted = await due_task(fleet, script=f"{LOG} sleep {nap}; echo on >> runs.log")
    job = Job()
    running = asyncio.create_task(job.run(wake(fleet.runtime, accepted.session_id, "scripted")))
    async with asyncio.timeout(30):
        while not runs(root):
            await asyncio.sleep(0.02)
    job.stop(reason)
    with pytest.raises(StoppedError):
        await running
    assert runs(root) == 1
    assert not _running(f"sleep\0{nap}\0"), "nothing of it is left"
    [message], [step] = await fleet.inbox(), await script_steps(fleet)
    assert step.status == "started"
    if reason is Stop.REVOKED:
        assert (message.status, message.error_class) == ("failed", "cancelled")
        return
    assert (message.status, message.tries) == ("pending", 0)
    await fleet.execute(_give_script(accepted.message_id, SLEEP))
    assert await fleet.wake(accepted.session_id) == "completed"
    assert runs(root) == 2


def _running(command: str) -> bool:
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode())
    return any(command in line for line in lines)


def _give_script(series_id: str, text: str) -> Any:
    return update(Series).where(Series.id == series_id).values(script=text)


@pytest.mark.parametrize("text", [SLEEP, "exit 1"])
async def test_what_rode_along_reaches_the_agent_later(fleet: Fleet, text: str) -> None:
    """A message that starts no turn must not be lost with one that the agent never sees."""
    await fleet.add_group()
    await appoint(fleet, "fake:boss", "owner", chat="the owner's chat")
    rider = await fleet.send("by the way")
    await fleet.execute(update(MessageIn).values(kind="system", wakes=False, content={"result": "by the way"}))
    accepted = await due_task(fleet, script=text)
    assert await fleet.wake(accepted.session_id) == ("completed" if text == SLEEP else "failed")
    riding, task = await fleet.inbox()
    assert (riding.id, riding.status, riding.tries, riding.turn_id) == (rider.message_id, "pending", 0, None)
    assert task.status == ("completed" if text == SLEEP else "failed")
    notices = [row.content["text"] for row in await fleet.outbox() if row.kind == "notice"]
    assert [text for text in notices if "was given up" in text and "message 2 was" not in text] == []
    assert len(notices) == (0 if text == SLEEP else 2)
    assert await fleet.wake(accepted.session_id) == "nothing", "it still starts none"
    await fleet.send("hello")
    assert await fleet.answer_wakes() == ["completed"]
    assert "by the way" in (await fleet.outbox())[-1].content["text"]
    assert {row.status for row in await fleet.inbox()} == {"completed", task.status}


@pytest.mark.parametrize("text", [SLEEP, "exit 1"])
@sqlite_only
async def test_one_that_is_added_while_a_run_is_on_does_not_end_it(fleet: Fleet, root: Path, text: str) -> None:
    """Somebody has joined the run meanwhile and waits for an answer."""
    await fleet.add_group(script="- play:\n  - fail: {class: transport}\n    until_attempt: 2\n  - answer: '{texts}'")
    accepted = await due_task(fleet, "look", overlap="skip")
    assert await fleet.wake(accepted.session_id) == "waiting"
    await fleet.send("hello")
    [turn] = await fleet.turns()
    await fleet.execute(update(MessageIn).values(turn_id=turn.id))
    await fleet.execute(_give_script(accepted.message_id, LOG + text))
    fleet.bells.wakes.clear()
    assert await retry_now(fleet) == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["look hello"]
    assert runs(root) == 0


@sqlite_only
async def test_a_chat_that_comes_meanwhile_has_its_turn_afterwards(fleet: Fleet, root: Path) -> None:
    await fleet.add_group()
    accepted = await due_task(
        fleet, script=LOG + "while [ ! -e go ]; do sleep 0.02; done; echo '{\"wakeAgent\": false}'"
    )
    running = asyncio.create_task(fleet.wake(accepted.session_id))
    async with asyncio.timeout(30):
        while not runs(root):
            await asyncio.sleep(0.02)
    await fleet.send("hello")
    (root / "demo" / "go").touch()
    assert await running == "completed"
    assert fleet.bells.wakes == [(accepted.session_id, "scripted")]
    assert await fleet.answer_wakes() == ["completed"]
    assert [row.content["text"] for row in await fleet.outbox()] == ["You said: hello"]


async def test_a_dead_run_that_is_revived_runs_its_script_anew(fleet: Fleet, root: Path) -> None:
    await fleet.add_group()
    accepted = await due_task(fleet, script=LOG + "exit 1")
    assert await fleet.wake(accepted.session_id) == "failed"
    await fleet.execute(_give_script(accepted.message_id, WAKE))
    await fleet.db.transact(lambda conn: revive(conn, accepted.message_id))
    assert await fleet.wake(accepted.session_id) == "completed"
    assert runs(root) == 2
    assert DATA in (await fleet.outbox())[-1].content["text"]


@sqlite_only
async def test_it_is_told_which_run_it_is(fleet: Fleet) -> None:
    await fleet.add_group()
    text = "env | grep ^LONGSHORE_ | sort > env.txt; pwd >> env.txt; echo '{\"wakeAgent\": false}'"
    accepted = await due_task(fleet, script=text)
    assert await fleet.wake(accepted.session_id) == "completed"
    [turn], [message] = await fleet.turns(), await fleet.inbox()
    assert (await fleet.runtime.workspace("demo")).read("env.txt", limit=2000).decode().splitlines() == [
        "LONGSHORE_AGENT=demo",
        f"LONGSHORE_SCHEDULED_FOR={message.scheduled_for.isoformat()}",
        f"LONGSHORE_SESSION_ID={accepted.session_id}",
        f"LONGSHORE_TASK_ID={accepted.message_id}",
        f"LONGSHORE_TURN_ID={turn.id}",
        "/workspace",
    ]
