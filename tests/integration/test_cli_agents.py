"""Messages to real CLI agents, through the fleet: answered once, remembered elsewhere, asked about, put away and
gone on with, in the sandbox and without the key."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.registry import Drivers, Registry
from models import Approval, PendingQuestion, ProgramState, Session, Usage
from models.base import now
from tests.support import fork_server
from tests.support.cli_agents.claude import CLAUDE
from tests.support.cli_agents.codex import CODEX
from tests.support.cli_agents.gemini import GEMINI
from tests.support.cli_agents.openclaw import OPENCLAW
from tests.support.cli_agents.opencode import OPENCODE
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import Call, ModelApi, hang, refuse, reply, rule, script
from tests.support.program_checks import LINGER_COMMAND, LINGERS
from tests.support.programs import Cli, ProgramHarness, living, living_in, require
from tests.support.servers import private_folder, wait_until
from workers.consent.approvals import decide
from workers.consent.questions import give_answer
from workers.loop import Job, Stop, StoppedError

pytestmark = [pytest.mark.spec("P5", "P6", "F9", "F10"), pytest.mark.parametrize("database_kind", ["sqlite"])]

PUSH = "git push origin main"
ASK = {"title": "Colour", "question": "Which?", "options": ["red", "blue"]}
RULES = (
    rule("has been decided", "So it is: {text}"),
    rule("was interrupted|were interrupted", "I went on."),
    rule("remember", "I remember."),
    rule("paint", reply(Call("~ask_user_question$", ASK)), "I wait for the answer."),
    rule(
        "tell them", reply(Call("~send_message$", {"text": "half way"})), reply("done", faults=(refuse("overloaded"),))
    ),
)
# A program's own shell, and what it calls the line.
SHELL = {
    "claude": ("Bash", "command"),
    "codex": ("exec_command", "cmd"),
    "gemini": ("run_shell_command", "command"),
    "opencode": ("bash", "command"),
    "openclaw": ("exec", "command"),
}
ROOT = Path(__file__).parents[2]


def shell(cli: Cli, line: str) -> Call:
    tool, name = SHELL[cli.name]
    return Call(tool, {name: line})


@pytest.fixture(params=[CLAUDE, CODEX, pytest.param(GEMINI, marks=pytest.mark.long)], ids=lambda cli: cli.name)
def cli(request: pytest.FixtureRequest) -> Cli:
    require(request.param.name)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def api(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    key, address, path = cli.keys
    push = rule("publish", reply("I will.", shell(cli, PUSH)), "It is published.")
    approved = rule("cli approved it", reply(shell(cli, PUSH)), "Now it is published.")
    async with ModelApi(script(approved, push, *RULES), strict=False) as api:
        monkeypatch.setenv(key, ProgramHarness.key)
        monkeypatch.setenv(address, f"{api.url}{path}")
        yield api


@pytest.fixture
async def folder() -> AsyncIterator[Path]:
    made = private_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def make_worker(cli: Cli, api: ModelApi, make_fleet: MakeFleet, folder: Path) -> Any:
    async def make(root: str = "workspaces") -> Fleet:
        provider = cli.provider()
        registry = Registry(providers=Drivers("provider", {provider.manifest.adapter_id: provider}))
        return await make_fleet(registry, workspace_root=folder / root, default_provider=provider.manifest.adapter_id)

    return make


@pytest.fixture
async def fleet(make_worker: Any, cli: Cli) -> Fleet:
    fleet: Fleet = await make_worker()
    await fleet.add_group(provider=fleet.runtime.settings.default_provider, model=cli.model)
    return fleet


def homes(folder: Path) -> list[Path]:
    return list((folder / "workspaces" / ".homes").glob("*/*"))


async def answers(fleet: Fleet) -> list[str]:
    return [row.content["text"] for row in await fleet.outbox() if row.kind == "chat" and "question" not in row.content]


@pytest.mark.spec("P14")
async def test_it_answers_leaves_nothing_behind_and_remembers_on_another_machine(
    fleet: Fleet, make_worker: Any, api: ModelApi, folder: Path
) -> None:
    await fleet.send("remember the marmalade")
    assert await fleet.answer_wakes() == ["completed"]
    assert homes(folder) == []
    other = await make_worker("elsewhere")
    await other.send("do you remember?")
    assert await other.answer_wakes() == ["completed"]
    assert await answers(fleet) == ["I remember.", "I remember."]
    assert "marmalade" in str(api.bodies[-1])
    assert len(await fleet.rows(Usage)) >= 2
    [state] = await fleet.rows(ProgramState)
    assert ProgramHarness.key.encode() not in state.state


@pytest.mark.spec("M17", "T2")
async def test_a_question_holds_no_process_and_its_answer_is_gone_on_with(fleet: Fleet, folder: Path) -> None:
    await fleet.send("paint it")
    waking = asyncio.create_task(fleet.answer_wakes())
    while not (seen := living_in(folder)) and not waking.done():
        await asyncio.sleep(0.01)
    assert seen, "where nobody is seen at work, that nobody is left means nothing"
    assert await waking == ["parked"]
    assert living_in(folder) == []
    assert homes(folder) == []
    assert await answers(fleet) == []
    [question] = await fleet.rows(PendingQuestion)
    answered = await give_answer(fleet.db, question.id, "blue", "me")
    assert answered is not None
    fleet.bells.wake(answered.session_id, fleet.runtime.settings.default_provider)
    assert await fleet.answer_wakes() == ["completed"]
    [said] = await answers(fleet)
    assert "- ask_user_question: blue" in said


@pytest.mark.spec("P14")
async def test_what_is_risky_waits_for_approval_and_is_then_done_once(fleet: Fleet) -> None:
    await fleet.send("publish it")
    assert await fleet.answer_wakes() == ["parked"]
    [approval] = await fleet.rows(Approval)
    assert approval.category == "merge"
    assert PUSH in approval.summary
    decided = await decide(fleet.db, approval.id, approve=True)
    for session_id, provider in decided.wakes:
        fleet.bells.wake(session_id, provider or "")
    assert await fleet.answer_wakes() == ["completed"]
    assert await answers(fleet) == ["Now it is published."]
    [approval] = await fleet.rows(Approval)
    assert approval.status == "used"


@pytest.mark.spec("M7", "M10", "P7", "P8", "P9")
@pytest.mark.parametrize(
    "cli",
    [
        *(CLAUDE, CODEX),
        pytest.param(GEMINI, marks=pytest.mark.long),
        pytest.param(OPENCODE, marks=pytest.mark.long),
        pytest.param(OPENCLAW, marks=[pytest.mark.long, pytest.mark.timeout(400)]),
    ],
    ids=lambda cli: cli.name,
    indirect=True,
)
async def test_an_outage_in_the_middle_is_gone_on_from_and_nothing_is_said_twice(fleet: Fleet) -> None:
    await fleet.send("tell them")
    assert await fleet.answer_wakes() == ["waiting"]
    await fleet.execute(update(Session).values(resume_after=now()))
    await fleet.sweep()
    await fleet.settle_down()
    assert await answers(fleet) == ["half way", "I went on."]


@pytest.mark.spec("M6", "F4", "P12")
@pytest.mark.parametrize(
    "cli", [CLAUDE, CODEX, pytest.param(GEMINI, marks=pytest.mark.long)], ids=lambda cli: cli.name, indirect=True
)
@pytest.mark.parametrize(("how", "then"), [("interrupted", "I am quick."), ("stopped", "I went on.")])
async def test_one_that_is_interrupted_at_work_goes_on_from_there(
    fleet: Fleet, cli: Cli, api: ModelApi, folder: Path, how: str, then: str
) -> None:
    """By a message that cannot wait, or because its worker is told to leave."""
    lingers = rule("linger", reply("I begin.", shell(cli, LINGER_COMMAND)), "It has ended.")
    api.script = script(*RULES, lingers, rule("be quick", "I am quick."))
    accepted = await fleet.send("linger over the marmalade")
    fleet.bells.wakes.clear()
    job, provider = Job(), fleet.runtime.settings.default_provider
    running = asyncio.create_task(job.run(fleet.wake(accepted.session_id, provider)))
    await asyncio.to_thread(wait_until, lambda: len(living(LINGERS)) >= 2, 60, "the agent's own shell")
    if how == "stopped":
        job.stop(Stop.SHUTDOWN)
        with pytest.raises(StoppedError):
            await running
    else:
        await fleet.send("be quick", follow_up="interrupt")
        fleet.runtime.leases.mail(accepted.session_id)
        assert await running == "handed_over"
    assert living(LINGERS) == []
    assert homes(folder) == []
    fleet.bells.wakes.clear()
    assert await fleet.wake(accepted.session_id, provider) == "completed"
    assert await answers(fleet) == [then]
    assert "marmalade" in str(api.bodies[-1])
    assert {row.status for row in await fleet.inbox()} == {"completed"}


@pytest.mark.spec("P12", "M7", "F9")
async def test_nothing_survives_a_killed_worker_and_the_message_is_answered_once(
    cli: Cli, api: ModelApi, make_fleet: MakeFleet, folder: Path
) -> None:
    provider = cli.provider().manifest.adapter_id
    api.script = script(rule("linger", reply(shell(cli, LINGER_COMMAND)), reply("late", faults=(hang(),))))
    fleet = await make_fleet(workspace_root=folder / "workspaces", default_provider=provider)
    await fleet.add_group(provider=provider, model=cli.model)
    accepted = await fleet.send("linger")
    settings: dict[str, Any] = fleet.runtime.settings.model_dump(mode="json")
    command = [
        sys.executable, "-m", "tests.support.program_worker", json.dumps(settings), accepted.session_id, provider,
    ]  # fmt: skip
    worker = fork_server.start(command, os.environ, ROOT, stdout=1, stderr=2)
    try:
        await asyncio.to_thread(wait_until, lambda: len(living(LINGERS)) >= 2, 60, "the agent's own shell")
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    await asyncio.to_thread(wait_until, lambda: not living(LINGERS), 10, "the end of everything the agent had started")
    assert homes(folder)
    api.script = script(rule("linger", "answered after all"))
    await fleet.execute(update(Session).values(lease_expires_at=now(-1)))
    await fleet.sweep()
    await fleet.settle_down()
    assert [row.content["text"] for row in await fleet.outbox()] == ["answered after all"]
    assert homes(folder) == []
