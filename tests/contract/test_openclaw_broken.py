"""Programs in openclaw's place that are older, newer, or talk nonsense: the driver says what is wrong, and ends."""

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import ErrorClass
from adapters.events import ApprovalRequested, FilesTouched, Progress, Result, TextDelta, ToolCall, ToolResult
from adapters.providers.cli.installation import VARIABLE
from adapters.providers.cli.openclaw.provider import OpenclawProvider
from tests.support.program_checks import failed, play
from tests.support.programs import Cli, ProgramHarness, harness_of
from tests.support.servers import private_folder

FAKE = Cli(
    name="openclaw",
    provider=OpenclawProvider,
    rules=(),
    keys=("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    model="gpt-6-luna",
    patience=30.0,
)
FLAGS = "--local --json --session-id --message-file"
HELLO = """echo '{"longshore":{"ask":"hello"}}'; read -r line\n"""
NONSENSE = {
    "words, and no plug-in": "echo 'Good morning'",
    "an answer, and no plug-in": """echo '{"payloads":[{"text":"Good morning"}]}'""",
    "half an object": HELLO + """printf '{"payloads":[{"te'""",
    "half a line of ours": HELLO + """printf '{"longshore":{"stream":'""",
    "no UTF-8": HELLO + r"""printf '{\377\376\n'""",
    "50 MB in a line": HELLO + r"printf '{'; head -c 50000000 /dev/zero | tr '\0' x; echo",
    "lines without end": HELLO + "yes 'all work and no play makes it a dull program' | head -c 40000000",
    "nested without end": HELLO + r"""printf '{"longshore":'; head -c 200000 /dev/zero | tr '\0' '['; echo""",
    "an end without a word": "echo 'there is no more memory' >&2; exit 3",
    "words and an error": HELLO + "echo 'Good morning'; exit 1",
    "an error": HELLO + """echo '{"payloads":[],"meta":{"error":{"message":"not today"}}}'; exit 1""",
    "an error in the place of an answer": HELLO + """echo '{"payloads":[{"text":"not today","isError":true}]}'""",
    "no list of answers": HELLO + """echo '{"payloads":7}'; exit 1""",
}


def put(folder: Path, body: str, *, version: str = "2026.9.6", offers: str = FLAGS) -> None:
    """A shell script in openclaw's place. `body` is what it does when it is given a prompt."""
    program = folder / "openclaw"
    program.write_text(
        f"""#!/bin/sh
        case "$*" in
        --version) echo 'OpenClaw {version} (eb377ac)' ;;
        *--help) echo 'Options: {offers}' ;;
        *) {body}
        esac\n"""
    )
    program.chmod(0o755)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = private_folder()
    (folder / "openclaw.json").write_text(json.dumps({"argv": [str(folder / "openclaw")], "readable": [str(folder)]}))
    monkeypatch.setenv(VARIABLE, str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def harness(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProgramHarness]:
    async with harness_of(FAKE, monkeypatch) as harness:
        yield harness


@pytest.mark.spec("P9", "P12")
async def test_nonsense_is_a_failure_in_words(folder: Path, harness: ProgramHarness) -> None:
    for what, body in NONSENSE.items():
        put(folder, body)
        end = failed(await play(harness, "answer"))
        assert end.error_class is ErrorClass.INTERNAL, (what, end)
        assert "openclaw" in end.message, (what, end)
        assert len(end.message) < 1000, what


@pytest.mark.spec("P9")
async def test_plain_lines_are_an_answer_where_there_is_no_json(folder: Path, harness: ProgramHarness) -> None:
    """And flags that its help does not name are not used."""
    put(folder, f"{HELLO} echo \"$*\"; echo 'second line'", version="2031.1.0", offers="--local --session-id --message")
    events = await play(harness, "answer")
    [text] = [event.text for event in events if isinstance(event, Result)]
    first, second = text.split("\n")
    assert first.startswith("agent --local --session-id ")
    assert first.endswith(" --message answer")
    assert second == "second line"
    assert any("newer than what this driver was tried with" in e.text for e in events if isinstance(e, Progress))


ASK_MODEL = """python3 - <<'END'
import os, re, urllib.request
key = re.search(r'"apiKey": "([^"]*)"', open(os.environ["OPENCLAW_CONFIG_PATH"]).read())[1]
headers = dict(Authorization="Bearer " + key)
urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8701/v1/models", headers=headers))
END
exit 1"""


@pytest.mark.spec("P9", "P14")
async def test_a_program_without_our_plug_in_may_not_ask_the_model(folder: Path, harness: ProgramHarness) -> None:
    put(folder, ASK_MODEL)
    end = failed(await play(harness, "answer"))
    assert "did not load the plug-in" in end.message
    assert end.error_class is ErrorClass.INVALID_REQUEST
    assert harness.api.bodies == []


PATCH = "*** Begin Patch\n*** Add File: {}\n+x\n*** Update File: /workspace/sub/old.txt\n*** End Patch"
CALL = {"name": "apply_patch", "toolCallId": "1"}
LINES: tuple[dict[str, Any] | list[Any], ...] = (
    {"stream": "assistant", "data": {"delta": "I will"}},
    {"stream": "item", "data": {"kind": "preamble", "phase": "end", "progressText": "I will patch it."}},
    {"stream": "tool", "data": {**CALL, "phase": "start", "args": {"input": PATCH.format("new.txt")}}},
    {"ask": "1", "tool": "apply_patch", "params": {"input": PATCH.format(".env")}},
    {"stream": "tool", "data": {**CALL, "phase": "result", "isError": False}},
    {"stream": "compaction", "data": {"phase": "start"}},
    {"stream": "tool", "data": 7},
    [],
)


@pytest.mark.spec("P9", "P14")
async def test_what_it_tells_becomes_events(folder: Path, harness: ProgramHarness) -> None:
    (folder / "lines").write_text(
        "".join(json.dumps({"longshore": line}, separators=(",", ":")) + "\n" for line in LINES)
    )
    put(
        folder,
        f"""{HELLO} cat {folder}/lines; read -r answer; echo "{{\\"payloads\\":[{{\\"text\\":\\"done\\"}}]}}" """,
    )
    events = await play(harness, "answer")
    assert [event.type for event in events] == [
        *("session_started", "text_delta", "text_delta", "message", "tool_call", "approval_requested", "tool_result"),
        *("files_touched", "progress"),  # and no result: a person was asked
    ]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["I will", " patch it."]
    assert [event.paths for event in events if isinstance(event, FilesTouched)] == [("new.txt", "sub/old.txt")]
    assert [event.category for event in events if isinstance(event, ApprovalRequested)] == ["secrets"]
    assert [event.text for event in events if isinstance(event, Progress)] == ["compaction start"]
    assert [(e.id, e.name) for e in events if isinstance(e, ToolCall | ToolResult)] == [("1", "apply_patch")] * 2
