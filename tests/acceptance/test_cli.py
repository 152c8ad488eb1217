"""The command line against a fleet: what it shows, what it refuses, how it exits, and how little it starts with."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from models import schema
from tests.support.processes import Operator
from tests.support.servers import Valkey
from workers.queues import task_of

SCRIPT = """
- when: broken
  play:
    - fail: {class: auth, message: "the key is refused"}
- play:
    - tool: clock
    - answer: "You said: {texts}"
"""

# What only workers, the gateway or a turn need. Their imports are what made commands slow to start.
NEEDLESS = (
    *("tasks", "workers.app", "workers.runtime", "workers.opening", "workers.intake.reception"),
    *("adapters.git", "adapters.providers", "adapters.channels", "adapters.tools.files", "adapters.sandbox"),
    *("adapters.tool_port", "adapters.channel_port", "adapters.model_port", "gateway.http", "gateway.console"),
    *("alembic", "anthropic", "openai", "mcp", "fastapi", "starlette", "httpx2", "jinja2", "markdown_it"),
    *("cryptography.hazmat", "genai_prices", "psycopg", "typer.rich_utils"),
)
# The program itself; its modules go to standard error when it ends.
TELLS_MODULES = (
    "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    "from gateway.cli import main; main()"
)


@pytest.fixture
def operator(tmp_path: Path, database_url: str, broker: Valkey) -> Iterator[Operator]:
    operator = Operator(tmp_path, database_url, broker)
    yield operator
    operator.close()


@pytest.mark.spec("G4", "F8", "M11", "D2")
@pytest.mark.parametrize("database_kind", ["sqlite"])  # the embedded one; other tests start processes on PostgreSQL
def test_talk_look_fail_and_try_again(operator: Operator, database_kind: str) -> None:
    (operator.folder / "script.yaml").write_text(SCRIPT)
    assert "longshore send helper" in operator.cli("groups", "add", "helper", "--script", "script.yaml").stdout
    assert "no sessions yet" in operator.cli("sessions").stdout
    unwell = operator.cli("doctor", check=False)
    assert unwell.returncode == 1
    assert "no worker listens" in unwell.stdout
    assert operator.cli("health", check=False).returncode == 69

    command = "celery -A workers.app worker -Q messages,upkeep,delivery,agent.scripted -n all@%h -c 20"
    operator.start(command, "worker", ready=False)
    log = operator.folder / "worker.log"
    operator.wait_for(lambda: " ready." in log.read_text(), "the worker to start", 40)
    operator.wait_for(lambda: operator.cli("health", "all", check=False).returncode == 0, "the worker to be alive", 40)

    said = operator.cli("send", "helper", "good morning").stdout
    assert "⚙ clock" in said
    assert "You said: good morning" in said
    events = operator.cli("send", "helper", "-", "--json", given="from a pipe").stdout.splitlines()
    assert [json.loads(line)["event"]["type"] for line in events if "delta" not in line][-1] == "turn_ended"
    first = json.loads(operator.cli("send", "helper", "once", "--id", "k1", "--no-wait", "--json").stdout)
    again = operator.cli("send", "helper", "once", "--id", "k1")
    assert "already there" in again.stderr
    assert first["id"] in again.stderr

    broken = operator.cli("send", "helper", "broken", check=False)
    assert broken.returncode == 1
    assert "the key is refused" in broken.stdout
    [dead] = json.loads(operator.cli("dead", "--json").stdout)
    assert (dead["error_class"], dead["content"]["text"]) == ("auth", "broken")
    short = dead["id"][-8:]
    assert "the key is refused" in operator.cli("dead", "show", short).stdout
    assert "back in the queue" in operator.cli("dead", "retry", short).stdout
    operator.wait_for(lambda: len(json.loads(operator.cli("dead", "--json").stdout)) == 1, "it to die again")
    assert "was put away" in operator.cli("dead", "discard", short).stdout
    assert "nothing was given up" in operator.cli("dead").stdout

    [session] = json.loads(operator.cli("sessions", "--json").stdout)
    story = operator.cli("sessions", session["id"][-8:]).stdout
    assert "good morning" in story
    assert "turn 1: completed" in story
    assert json.loads(operator.cli("sessions", session["id"], "--json").stdout)["id"] == session["id"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["send", "nobody", "hello"], 1, "no agent group 'nobody'; there are: none yet"),
        (["send", "nobody", "  "], 1, "text is empty"),
        (["dead", "show", "zzz"], 1, "no dead letter ends with 'zzz'"),
        (["dead", "retry"], 2, "name one message, or give --all"),
        (["sessions", "zzz"], 1, "no session ends with 'zzz'"),
        (["tail", "zzz"], 1, "no session ends with 'zzz'"),
        (["groups", "add", "No Good"], 2, "use small letters"),
        (["groups", "add", "x", "--provider", "gpt"], 1, "there is no provider 'gpt' here; installed: acp, anthropic"),
        (["wire", "nobody", "fax", "1"], 1, "there is no channel 'fax' here"),
        (["wire", "nobody", "local", "1"], 1, "there is no agent 'nobody'"),
        (["wire", "nobody", "local", "1", "--pattern", "("], 2, "not a regular expression"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # the words do not depend on it
@pytest.mark.spec("G4")
def test_mistakes_get_a_sentence(operator: Operator, arguments: list[str], code: int, said: str) -> None:
    result = operator.cli(*arguments, check=False)
    assert (result.returncode, result.stdout) == (code, "")
    assert said in result.stderr.replace("\n", " ")


@pytest.mark.spec("M9", "G4")
def test_an_owner_is_named_and_listed(operator: Operator) -> None:
    assert "nobody is told" in operator.cli("owners", "list").stdout
    for chat in ("first", "dm-boss"):  # the second time corrects the place
        operator.cli("owners", "add", "fake", "boss", chat)
    [owner] = json.loads(operator.cli("owners", "list", "--json").stdout)
    assert owner == {"user_id": "fake:boss", "channel_type": "fake", "platform_id": "dm-boss"}


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_bad_script_is_refused_when_it_is_configured(operator: Operator) -> None:
    (operator.folder / "bad.yaml").write_text("- play:\n    - sing: la\n")
    result = operator.cli("groups", "add", "x", "--script", "bad.yaml", check=False)
    assert result.returncode == 1
    assert "scene 1, act 1 ({'sing': 'la'}) is not one of: answer, approval" in result.stderr


@pytest.mark.spec("D3")
def test_migrate_down_up_and_the_sentence_between(operator: Operator) -> None:
    assert operator.cli("migrate", "--to", "base").returncode == 0
    refused = operator.cli("sessions", check=False)
    assert refused.returncode == 1
    assert "run `longshore migrate`" in refused.stderr
    assert schema.head() in operator.cli("migrate").stdout
    assert operator.cli("sessions").returncode == 0


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_missing_service_has_its_own_exit_code(operator: Operator) -> None:
    result = operator.cli("sessions", check=False, DATABASE_URL="postgresql://me:hunter2@127.0.0.1:1/x")
    assert result.returncode == 69
    assert "hunter2" not in result.stderr
    assert operator.cli("sessions", check=False, DATABASE_URL="nonsense").returncode == 1
    assert operator.cli("migrate", check=False, DATABASE_URL="postgresql://127.0.0.1:1/x").returncode == 69


def needless_modules(operator: Operator, *arguments: str) -> set[str]:
    """What a command has imported without need. It must do what it is for."""
    command = [sys.executable, "-c", TELLS_MODULES, *arguments]
    done = subprocess.run(command, env=operator.env, cwd=operator.folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "sqlalchemy" in loaded
    return {name for name in NEEDLESS if name in loaded}


@pytest.mark.spec("G4")
@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_everyday_commands_import_nothing_of_workers_or_drivers(operator: Operator, broker: Valkey) -> None:
    operator.add_group("helper")
    assert needless_modules(operator, "send", "helper", "good morning", "--no-wait") == set()
    with redis.Redis(port=broker.port) as client:
        [wake] = client.lrange("agent.scripted", 0, -1)
    assert task_of(wake) == "agent.wake"
    assert needless_modules(operator, "sessions") == set()
    assert needless_modules(operator, "tasks", "list") == set()
