"""`--json`: whatever lists, shows or changes something has it, and says one JSON document and nothing else."""

import asyncio
import json
from pathlib import Path

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from gateway.cli import desk
from gateway.cli.main import app
from models import AgentGroup, Approval
from models.fleet import report_alive
from tests.support.api_seeds import seed
from tests.support.command_tree import commands, has_option
from tests.support.fleet import Fleet
from workers.consent.requests import hash_of

pytestmark = [
    pytest.mark.spec("G4"),
    pytest.mark.parametrize("database_kind", ["sqlite"]),  # the words do not depend on it
]

# Escape sequences without an escape character, a turned reading direction, half a character, a line separator.
HOSTILE = 'tide\x9b31m\x7f\u202e\u2028 日本 \'n "q"'
# What lists or shows, with the names of what `seed` makes.
LOOKS = {
    "sessions": ["sessions {session_id}", "sessions"],
    "usage": ["usage", "usage --by session,day"],
    "providers": ["providers"],
    "queues": ["queues"],
    "tools": ["tools", "tools clock"],
    "route": ["route --channel fake --chat tide-room --text hello --sender eve"],
    "approvals": ["approvals", "approvals {approval_id}", "approvals --all"],
    "questions": ["questions", "questions --all"],
    "tasks list": ["tasks list", "tasks list demo"],
    "tasks show": ["tasks show {task_id}"],
    "foreman list": ["foreman list"],
    "foreman show": ["foreman show {workflow_id}", "foreman show {workflow_id} --diff"],
    "foreman roles": ["foreman roles"],
    "dead": ["dead", "dead --rejected", "dead --undelivered"],
    "dead show": ["dead show {message_id}"],
    "groups list": ["groups list"],
    "groups show": ["groups show demo"],
    "wirings": ["wirings"],
    "people list": ["people list"],
    "people show": ["people show web:eve"],
    "owners list": ["owners list"],
    "token list": ["token list"],
    "health": ["health"],
    "doctor": ["doctor"],
}
# What does something and tells of it.
ACTS = {
    "send": ["send demo hello --no-wait"],
    "approve": ["approve {approval_id}"],
    "answer": ["answer {question_id} 1"],
    "cancel": ["cancel {session_id}"],
    "reset": ["reset {session_id}"],
    "close": ["close {session_id}"],
    "replay": ["replay {session_id}"],
    "console": ["console"],
    "people invite": ["people invite --role owner"],
    "owners invite": ["owners invite"],
    "token add": ["token add ada"],
    "tasks add": ["tasks add demo hello --every @daily"],
    "groups set": ["groups set demo --name {hostile}"],
    "groups add": ["groups add mine --provider scripted"],
    "wire": ["wire demo fake 日本 --mention-only"],
    "unwire": ["unwire demo fake tide-room"],
    "people add": ["people add fake:ada --agent demo"],
    "people remove": ["people remove fake:eve"],
    "owners add": ["owners add fake ada dm"],
    "token revoke": ["token revoke {token_id}"],
    "tasks pause": ["tasks pause {task_id}"],
    "tasks resume": ["tasks resume {task_id}"],
    "tasks run-now": ["tasks run-now {task_id}"],
    "tasks update": ["tasks update {task_id} --every @hourly"],
    "tasks cancel": ["tasks cancel {task_id}"],
    "foreman cancel": ["foreman cancel {workflow_id}"],
    "foreman restart": ["foreman restart {stopped_workflow}"],
    "dead retry": ["dead retry {message_id}", "dead retry --all"],
    "dead discard": ["dead discard {message_id}"],
    "dead resend": ["dead resend {undelivered}"],
    "migrate": ["migrate"],
    "prune": ["prune --older-than 90d --dry-run"],
}
# The same as another, an endless one, one that waits, or one that needs something stray first: tested where they are.
ELSEWHERE = {"tail", "deny", "queues rescue", "foreman run", "foreman watch"}
# They run until they are stopped, talk with somebody, or make files.
OTHERS = {"up", "gateway", "listen", "flower", "chat", "attach", "adapters keygen", "adapters sign"}


@pytest.fixture
async def names(
    fleet: Fleet, database_url: str, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    env = {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "LONGSHORE_HOME": str(tmp_path / "home"),
        "DEFAULT_PROVIDER": "scripted",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(desk, "configure_logs", lambda *_, **__: None)  # the whole process's
    monkeypatch.setattr(desk.Desk, "bells", fleet.bells)
    made = await seed(fleet, "demo", "tide")
    await fleet.send(HOSTILE, agent_group="demo", platform_id="tide-inbox")
    await fleet.execute(update(Approval).values(summary=HOSTILE, payload_hash=hash_of({"a": "tide"})))
    await fleet.execute(update(AgentGroup).where(AgentGroup.folder == "demo").values(name=HOSTILE))
    await fleet.db.transact(lambda conn: report_alive(conn, "worker@here", "worker", pid=1, queues=["agent.scripted"]))
    assert (await call("owners add fake eve dm")).exit_code == 0
    assert (await call("token add eve --agent demo")).exit_code == 0
    [token] = json.loads((await call("token list --json")).stdout)
    return made | {"token_id": token["id"]}


async def call(line: str, **names: str) -> Result:
    words = [word.format(hostile=HOSTILE, **names) for word in line.split()]
    with capture_logs():  # of the fleet in this process; the command's own begin with warnings
        return await asyncio.to_thread(CliRunner().invoke, app, words)


def test_every_command_is_one_or_the_other(database_kind: str) -> None:
    known = LOOKS.keys() | ACTS.keys() | ELSEWHERE
    assert not known & OTHERS
    assert set(commands()) == known | OTHERS, "say in this file what a new command's JSON is"
    with_json = {words for words, command in commands().items() if has_option(command, "--json")}
    assert with_json == known


@pytest.mark.usefixtures("no_programs")
async def test_what_looks_says_one_document_and_nothing_else(names: dict[str, str]) -> None:
    for line in (line for lines in LOOKS.values() for line in lines):
        # Not all is well in a test.
        check(await call(f"{line} --json", **names), line, code=1 if line == "doctor" else 0)


@pytest.mark.parametrize("line", [line for lines in ACTS.values() for line in lines])
async def test_what_acts_says_one_document_and_nothing_else(line: str, names: dict[str, str], fleet: Fleet) -> None:
    if line.startswith("cancel"):
        # A turn that is open, to be stopped.
        await fleet.add_group("slow", "- play:\n    - tool: ask_user_question\n      with: {title: a, question: b}\n")
        asked = await fleet.send("hello", agent_group="slow")
        await fleet.settle_down()
        names = names | {"session_id": asked.session_id}
    check(await call(f"{line} --json", **names), line)


def check(done: Result, line: str, code: int = 0) -> None:
    assert done.exit_code == code, f"{line}: {done.output} {done.exception!r}"
    assert isinstance(json.loads(done.stdout), dict | list), line
    assert done.stdout.endswith("\n"), line
    assert [char for char in done.stdout[:-1] if not char.isprintable()] == [], line
    assert done.stderr == "", line


async def test_what_cannot_be_seen_comes_through_all_the_same(names: dict[str, str]) -> None:
    [approval] = json.loads((await call("approvals --json")).stdout)
    assert approval["summary"] == HOSTILE
    story = json.loads((await call("sessions {session_id} --json", **names)).stdout)
    assert HOSTILE in [message["content"].get("text") for message in story["messages"]]
