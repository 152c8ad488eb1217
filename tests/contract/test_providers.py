"""The provider contract, run on the providers that ship here; and the suite itself, run on providers that break it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.contracts import Capabilities, Query, QueryInput, ToolBox
from adapters.errors import ErrorClass
from adapters.events import ProviderEvent, Result, SessionStarted, TextDelta
from adapters.providers import conformance
from adapters.providers.conformance import CHECKS, Check, ConformanceError, Harness, NotApplicable, Work, run_check
from adapters.providers.scripted import ScriptedProvider

SCRIPTS: dict[Work, str] = {
    "answer": "Good morning to you",
    "resume": "Good morning again",
    "tool": "- play:\n  - tool: probe\n  - answer: 'the probe says {result}'",
    "slow": "- play:\n  - wait: 3600\n  - answer: late",
    "hang": "- play:\n  - hang: true",
    "crash": "- play:\n  - say: one moment\n  - crash: true",
    "fail": "- play:\n  - fail: {class: rate_limit, retry_after: 7, message: slow down}",
    "listen": "- play:\n  - listen: 60\n  - answer: 'you said {text}'",
    "edit": f"- play:\n  - touch: {conformance.EDITED_FILE}\n  - answer: written",
    "risky": "- play:\n  - approval: {category: deploy, summary: release to production, risk: high}\n  - answer: done",
}


class ScriptedHarness:
    patience = 5.0
    failure_class = ErrorClass.RATE_LIMIT
    good_options: Mapping[str, Any] = {"script": SCRIPTS["tool"], "pace": 0.5}
    bad_options: Mapping[str, tuple[Mapping[str, Any], str]] = {
        "an option it does not have": ({"temperature": 1}, "temperature"),
        "a script with an unknown act": ({"script": "- play:\n  - shout: hello"}, "shout"),
        "a script that is not YAML": ({"script": "- play: [\n"}, "YAML"),
        "a pattern that is not one": ({"script": "- when: '('\n  play: []"}, "regular expression"),
    }

    def __init__(self, folder: Path) -> None:
        self.provider = ScriptedProvider()
        self._folder = folder

    def given(self, work: Work, tools: ToolBox) -> QueryInput:
        return QueryInput(
            prompt="hello", tools=tools, messages=("hello",), cwd=str(self._folder), options={"script": SCRIPTS[work]}
        )


@pytest.fixture
def scripted(tmp_path: Path) -> Harness:
    return ScriptedHarness(tmp_path)


@pytest.mark.spec("P15", "P1", "P11")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_scripted_keeps_the_contract(check: Check, scripted: Harness) -> None:
    assert await run_check(check, scripted) is None


@pytest.mark.spec("P15", "P11")
async def test_scripted_streams_word_by_word_when_it_has_a_pace(scripted: ScriptedHarness) -> None:
    given = scripted.given("answer", conformance.ProbeBox())
    query = scripted.provider.query(replace(given, options={"script": "one two three", "pace": 0.001}))
    deltas = [event.text async for event in query.events if isinstance(event, TextDelta)]
    assert deltas == ["one ", "two ", "three "]


@pytest.mark.spec("P15")
async def test_what_capabilities_exclude_is_reported_and_not_passed(scripted: ScriptedHarness) -> None:
    scripted.provider.manifest = replace(ScriptedProvider.manifest, capabilities=Capabilities())
    excused: list[str] = []
    for check in CHECKS:
        if isinstance(outcome := await run_check(check, scripted), NotApplicable):
            assert "capabilities say" in outcome.reason
            excused.append(check.name)
    assert excused == [
        "streams_its_answer",
        "takes_a_follow_up",
        "resumes_a_conversation",
        "calls_our_tool",
        "survives_a_tool_that_fails",
        "asks_for_the_same_calls_again",
        "reports_the_file_it_edits",
        "asks_before_what_is_risky",
    ]


class MuteQuery:
    """Breaks the contract in the ways a new adapter does: no deltas, no reaction to anything, a silent end."""

    pid: int | None = None
    status = "running"

    def __init__(self, *events: ProviderEvent) -> None:
        self.events = self._run(events)

    async def _run(self, events: tuple[ProviderEvent, ...]) -> AsyncIterator[ProviderEvent]:
        for event in events:
            yield event

    async def push(self, text: str) -> bool:
        return True

    async def end(self) -> None: ...

    async def abort(self) -> None: ...


class BrokenProvider(ScriptedProvider):
    def __init__(self, *events: ProviderEvent) -> None:
        self._events = events

    def check(self, options: Mapping[str, Any]) -> None: ...

    def query(self, given: QueryInput) -> Query:  # type: ignore[override]  # any query will do
        return MuteQuery(*self._events)  # type: ignore[return-value]


@pytest.mark.spec("P15")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("checks_its_options", "check() accepts an option it does not have"),
        ("starts_and_answers", "the status after the last event is 'running', not 'ended'"),
        ("streams_its_answer", "no text delta comes before the result"),
        ("takes_a_follow_up", "the follow-up is not in the result 'hi'"),
        ("resumes_a_conversation", "the first query gave no continuation"),
        ("calls_our_tool", "there are 0 ToolCall events, not one"),
        ("survives_a_tool_that_fails", "a tool that failed is not reported as such"),
        ("reports_the_file_it_edits", "files_touched names [], not conformance.txt"),
        ("asks_before_what_is_risky", "the query ended without ApprovalRequested: ['session_started', 'result']"),
        ("stops_when_told", "an aborted query gave a result"),
        ("stops_while_it_hangs", "the status after abort() is 'running', not 'aborted'"),
        ("never_crashes_in_silence", "it crashed and said only ['session_started', 'result']"),
        ("fails_with_a_class", "there are 0 Failed events, not one"),
        ("keeps_two_queries_apart", "a query did not fail because another one answered"),
    ],
)
async def test_a_provider_that_breaks_the_contract_is_told_how(
    name: str, complaint: str, scripted: ScriptedHarness
) -> None:
    scripted.provider = BrokenProvider(SessionStarted(), Result(text="hi"))
    [check] = [check for check in CHECKS if check.name == name]
    with pytest.raises(ConformanceError) as caught:
        await run_check(check, scripted)
    assert str(caught.value) == complaint


@pytest.mark.spec("P15")
async def test_a_provider_that_says_nothing_at_all_fails(scripted: ScriptedHarness) -> None:
    scripted.provider = BrokenProvider()
    for check in CHECKS:
        if check.name not in ("detects_itself", "has_a_complete_manifest"):
            with pytest.raises(ConformanceError):
                await run_check(check, scripted)
