"""Longshore's conformance suite, run on the parrot from outside of Longshore's tree."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from longshore_parrot.provider import ParrotProvider

from adapters.contracts import QueryInput, ToolBox
from adapters.errors import ErrorClass
from adapters.events import Result, SessionStarted
from adapters.providers.conformance import CHECKS, Check, NotApplicable, ProbeBox, Work, run_check

WORKS: dict[Work, str] = {
    "answer": "who is a pretty bird?",
    "resume": "and now?",
    "tool": "use probe",
    "slow": "sleep",
    "hang": "sleep",
    "crash": "fall",
    "fail": "moult",
    "listen": "listen",
}


class ParrotHarness:
    patience = 5.0
    failure_class = ErrorClass.RATE_LIMIT
    good_options: Mapping[str, Any] = {"call": "Ahoy!"}
    bad_options: Mapping[str, tuple[Mapping[str, Any], str]] = {
        "an option it does not have": ({"temperature": 1}, "temperature"),
        "a call that is no word": ({"call": 7}, "call"),
    }

    def __init__(self, folder: Path) -> None:
        self.provider = ParrotProvider()
        self._folder = folder

    def given(self, work: Work, tools: ToolBox) -> QueryInput:
        return QueryInput(prompt=WORKS[work], tools=tools, messages=(WORKS[work],), cwd=str(self._folder))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_parrot_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    outcome = await run_check(check, ParrotHarness(tmp_path))
    if isinstance(outcome, NotApplicable):
        assert check.name in ("reports_the_file_it_edits", "asks_before_what_is_risky"), outcome.reason


async def test_it_remembers_what_was_said() -> None:
    parrot = ParrotProvider()
    first = [e async for e in parrot.query(QueryInput(prompt="hello", tools=ProbeBox())).events]
    [started] = [event for event in first if isinstance(event, SessionStarted)]
    again = QueryInput(prompt="well?", tools=ProbeBox(), continuation=started.continuation)
    [said] = [event.text async for event in parrot.query(again).events if isinstance(event, Result)]
    assert said == "Squawk! well? You said 'hello' before."
