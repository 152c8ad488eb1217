"""Scripts with mistakes, and scripts that are stopped at odd moments."""

import asyncio
import contextlib
import subprocess
import sys

import pytest

from adapters.contracts import QueryInput
from adapters.errors import AdapterError, ScriptError
from adapters.providers.conformance import ProbeBox
from adapters.providers.script import parse_script
from adapters.providers.scripted import ScriptedProvider, ScriptedQuery


@pytest.mark.parametrize(
    ("act", "word"),
    [
        ("- wait: -1", "wait"),
        ("- wait: soon", "wait"),
        ("- listen: 0", "listen"),
        ("- fail: {class: nope}", "class"),
        ("- crash: false", "crash"),
        ("- touch: ../x", "touch"),
        ("- approval: {category: x}", "summary"),
        ("- {tool: x, using: y}", "using"),
    ],
)
def test_a_wrong_value_is_blamed_on_its_own_act(act: str, word: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(f"- play:\n    {act}")
    assert word in str(caught.value)
    assert "Say.say" not in str(caught.value)


def test_a_date_that_does_not_exist_is_a_script_error() -> None:
    with pytest.raises(ScriptError):
        parse_script("- play:\n  - say: 2024-13-45")


def test_many_empty_lines_do_not_hang_the_parser() -> None:
    code = "from adapters.providers.script import parse_script; parse_script('\\n' * 40 + 'x')"
    subprocess.run([sys.executable, "-c", code], timeout=10, check=True)


@pytest.mark.parametrize("pace", ["fast", None, [1], -1, "nan"])
def test_a_bad_pace_is_refused_as_an_adapter_error(pace: object) -> None:
    with pytest.raises(AdapterError, match="pace"):
        ScriptedProvider().check({"pace": pace})


def _query(script: str) -> ScriptedQuery:
    return ScriptedProvider().query(
        QueryInput(prompt="x", tools=ProbeBox(), messages=("x",), options={"script": script})
    )


async def test_abort_ends_a_query_that_listens() -> None:
    query = _query("- play:\n  - listen: 60\n  - answer: x")
    first = asyncio.Event()

    async def read() -> None:
        async for _ in query.events:
            first.set()

    reading = asyncio.create_task(read())
    await first.wait()
    await asyncio.sleep(0)
    await query.abort()
    try:
        async with asyncio.timeout(2):
            await reading
    finally:
        reading.cancel()


async def test_abort_before_the_first_event_is_final() -> None:
    query = _query("hello")
    await query.abort()
    events = [event async for event in query.events]
    assert events == []
    assert query.status == "aborted"


async def test_a_query_that_crashed_has_failed() -> None:
    query = _query("- play:\n  - crash: true")
    with contextlib.suppress(RuntimeError):
        async for _ in query.events:
            pass
    assert query.status == "failed"
