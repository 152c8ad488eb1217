"""Programs in codex's place that are older, newer, or talk nonsense: the driver says what is wrong, and never hangs."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapters.errors import ErrorClass
from adapters.events import Progress, Result, Stderr, TextDelta
from adapters.providers.cli.installation import VARIABLE, find
from adapters.providers.conformance import FOLLOW_UP, ProbeBox
from tests.support.cli_agents.codex import CODEX
from tests.support.program_checks import failed, play
from tests.support.programs import ProgramHarness, harness_of, require
from tests.support.servers import private_folder

HELLO = """read -r line; echo '{"id":1,"result":{}}'; read -r line
read -r line; echo '{"id":2,"result":{"thread":{"id":"T"}}}'
read -r line; echo '{"id":3,"result":{"turn":{"id":"U"}}}'
"""
NONSENSE = {
    "words": "echo 'thread main panicked'",
    "half an object": """printf '{"id":1,"resu'""",
    "a list": "echo '[1, 2]'",
    "no UTF-8": r"""printf '\377\376{"id":1}\n'""",
    "50 MB in a line": r"head -c 50000000 /dev/zero | tr '\0' x; echo",
    "nested without end": r"head -c 200000 /dev/zero | tr '\0' '['; echo",
    "an end without a word": "echo 'there is no more memory' >&2; exit 3",
    "an end in the middle": f"{HELLO} exit 0",
    "a thread without a name": """read -r line; echo '{"id":1,"result":{}}'; read -r line
        read -r line; echo '{"id":2,"result":{"thread":7}}'; read -r line""",
    "a turn without a name": """read -r line; echo '{"id":1,"result":{}}'; read -r line
        read -r line; echo '{"id":2,"result":{"thread":{"id":"T"}}}'
        read -r line; echo '{"id":3,"result":null}'; read -r line""",
    "a refusal": """read -r line; echo '{"id":1,"error":{"code":-32000,"message":"not today"}}'; read -r line""",
}


def put(folder: Path, body: str, *, version: str = "0.166.0", offers: str = "app-server") -> None:
    """A shell script in codex's place. `body` is what it does when it is started as a server."""
    program = folder / "codex"
    program.write_text(
        f"""#!/bin/sh
        case "$*" in
        *--version*) echo 'codex-cli {version}' ;;
        *--help*) echo 'Commands: {offers}' ;;
        *) {body}
        esac\n"""
    )
    program.chmod(0o755)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where codex is found, and nowhere else."""
    real, folder = find("codex"), private_folder()
    readable = [str(folder), *(map(str, real.readable) if real else ())]
    (folder / "codex.json").write_text(json.dumps({"argv": [str(folder / "codex")], "readable": readable}))
    monkeypatch.setenv(VARIABLE, str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def harness(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(CODEX, monkeypatch) as harness:
        yield harness


@pytest.mark.spec("P6", "P12")
async def test_nonsense_is_a_failure_in_words(folder: Path, harness: ProgramHarness) -> None:
    for what, body in NONSENSE.items():
        put(folder, body)
        events = await play(harness, "answer")
        end = failed(events)
        assert end.error_class is ErrorClass.INTERNAL, (what, end)
        assert "codex" in end.message, (what, end)
        assert len(end.message) < 1000, what
        if what == "an end without a word":
            assert "there is no more memory" in end.message
            assert [event.text for event in events if isinstance(event, Stderr)] == ["there is no more memory"]


@pytest.mark.spec("P6", "P12")
async def test_fields_of_the_wrong_kind_and_unknown_events_end_nothing(folder: Path, harness: ProgramHarness) -> None:
    odd = [
        {"method": "item/started", "params": {"item": 5}},
        {"method": "item/started", "params": {"item": {"type": "teleport", "id": 7}}},
        {"method": "item/completed", "params": {"item": {"type": "fileChange", "id": "a", "changes": [3]}}},
        {"method": "thread/tokenUsage/updated", "params": {"tokenUsage": {"total": {"inputTokens": -3}, "last": []}}},
        {"method": "of/the/future", "params": {}},
        {"method": "of/the/future", "params": [1]},
        {"method": 3},
        {"id": 999, "result": {}},
        {"id": 8, "method": "asked/of/us", "params": {}},
        {"method": "item/completed", "params": {"item": {"type": "agentMessage", "id": "m", "text": "All is well"}}},
        {"method": "turn/completed", "params": {"turn": {"id": "U", "status": "completed"}}},
    ]
    body = HELLO + "".join(f"echo '{json.dumps(line)}'\n" for line in odd) + "read -r line; read -r line"
    put(folder, body)
    events = await play(harness, "answer")
    told = [event.text for event in events if isinstance(event, Progress)]
    assert told == ["codex: item/started", "codex: teleport", "codex: of/the/future"]
    assert events[-1] == Result(text="All is well")


@pytest.mark.spec("P6", "P14")
async def test_what_it_asks_without_saying_what_is_declined(folder: Path, harness: ProgramHarness) -> None:
    """No policy could judge it: a command without words, and a change of files that it has not told of."""
    asked = {
        "item/commandExecution/requestApproval": {"itemId": "x", "turnId": "U", "command": None, "cwd": "/workspace"},
        "item/fileChange/requestApproval": {"itemId": "unheard-of", "turnId": "U"},
    }
    body = HELLO
    for number, (method, params) in enumerate(asked.items(), 4):
        body += f"""
        echo '{json.dumps({"id": f"ask-{number}", "method": method, "params": params})}'
        read -r told; echo '{{"id":{number},"result":{{}}}}'
        read -r line; said="$said $(echo "$line" | tr -d '{{}}"')"
        """
    body += """
        echo '{"method":"item/completed","params":{"item":{"type":"agentMessage","id":"m","text":"'$said'"}}}'
        echo '{"method":"turn/completed","params":{"turn":{"id":"U","status":"completed"}}}'
        read -r line"""
    put(folder, body.replace("'$said'", "'\"$said\"'"))
    [answer] = [event.text for event in await play(harness, "answer") if isinstance(event, Result)]
    assert answer.count("decision: decline") == 2, answer
    assert harness.guard.asked == []


@pytest.mark.spec("P6")
async def test_a_follow_up_taken_too_late_gets_a_turn_of_its_own(folder: Path, harness: ProgramHarness) -> None:
    """Codex has said yes to it, and ended the turn without looking at it."""
    body = (
        HELLO
        + """
        echo '{"method":"item/agentMessage/delta","params":{"delta":"first"}}'
        echo '{"method":"item/completed","params":{"item":{"type":"agentMessage","id":"m","text":"first"}}}'
        read -r line; echo '{"id":4,"result":{"turnId":"U"}}'
        echo '{"method":"turn/completed","params":{"turn":{"id":"U","status":"completed"}}}'
        read -r line
        case "$line" in *turn/start*marmalade*) said=second ;; *) said=$line ;; esac
        echo '{"id":5,"result":{"turn":{"id":"V"}}}'
        echo '{"method":"item/completed","params":{"item":{"type":"agentMessage","id":"n","text":"'$said'"}}}'
        echo '{"method":"turn/completed","params":{"turn":{"id":"V","status":"completed"}}}'
        read -r line"""
    )
    put(folder, body)
    query = harness.provider.query(harness.given("answer", ProbeBox()))
    events = []
    async for event in query.events:
        events.append(event)
        if isinstance(event, TextDelta):
            assert await query.push(FOLLOW_UP)
    assert [event.text for event in events if isinstance(event, Result)] == ["first", "second"]


@pytest.mark.spec("P6", "P12")
async def test_a_version_nobody_has_tried_is_used_and_that_is_said(
    folder: Path, harness: ProgramHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.delenv(VARIABLE)
        require("codex")
        real = find("codex")
    assert real is not None
    put(folder, f'exec {real.argv[0]} "$@" ;;', version="7.0.1")
    found = await harness.provider.detect()
    events = await play(harness, "answer")
    assert (found.installed, found.version) == (True, "7.0.1")
    notes = [event.text for event in events if isinstance(event, Progress) and "7.0.1 is newer" in event.text]
    assert len(notes) == 1
    assert isinstance(events[-1], Result)


@pytest.mark.spec("P6", "P12")
async def test_a_version_that_cannot_be_led_is_refused_with_what_to_do(folder: Path, harness: ProgramHarness) -> None:
    put(folder, "exit 1", version="0.9.0", offers="exec")
    end = failed(await play(harness, "answer"))
    assert end.error_class is ErrorClass.INVALID_REQUEST
    assert "codex 0.9.0 has no `app-server`" in end.message
    assert "make clis" in end.message
