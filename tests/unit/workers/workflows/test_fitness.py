"""How fit each provider is for each role, by the tables."""

from dataclasses import replace

import pytest

from adapters.contracts import Capabilities
from tests.support.role_candidates import ANTHROPIC, CLAUDE, CODEX, GEMINI, OMNARA, OPENAI, OPENCODE, SCRIPTED
from workers.workflows.candidates import Candidate, Record
from workers.workflows.fitness import NEEDS, Fit, Role, fitness_table

pytestmark = pytest.mark.spec("O2")


def rows_of(role: Role, *candidates: Candidate) -> list[Fit]:
    return [row for row in fitness_table(candidates) if row.role == role]


def order(role: Role, *candidates: Candidate) -> list[str]:
    return [row.provider for row in rows_of(role, *candidates) if row.score is not None]


def why_not(role: Role, one: Candidate, *others: Candidate) -> str:
    [row] = [row for row in rows_of(role, one, *others) if row.provider == one.name]
    assert row.score is None
    return row.why


def test_each_is_given_what_it_is_good_at() -> None:
    everybody = (ANTHROPIC, OPENAI, GEMINI, OPENCODE, CODEX, CLAUDE)
    assert order("planner", *everybody)[0] == "claude-code"
    assert order("builder", *everybody)[:2] == ["codex", "claude-code"]
    assert order("reviewer", *everybody)[:2] == ["claude-code", "gemini"]


def test_a_program_builds_rather_than_a_model_alone() -> None:
    assert order("builder", ANTHROPIC, OPENAI, OPENCODE)[0] == "opencode"


def test_one_that_keeps_failing_gives_its_place_to_the_next() -> None:
    failing = replace(CODEX, record=Record(completed=5, faults=5))
    assert order("builder", failing, CLAUDE) == ["claude-code", "codex"]


def test_one_failure_of_many_costs_no_place() -> None:
    assert order("builder", replace(CODEX, record=Record(completed=30, faults=1)), CLAUDE) == ["codex", "claude-code"]


def test_one_that_is_down_goes_behind_those_that_answer_but_stays_fit() -> None:
    assert order("builder", replace(CODEX, health="down"), CLAUDE) == ["claude-code", "codex"]


def test_of_equals_the_quicker_goes_first() -> None:
    slow = replace(OPENCODE, name="a", record=Record(completed=4, median_seconds=90.0))
    quick = replace(OPENCODE, name="b", record=Record(completed=4, median_seconds=30.0))
    assert order("builder", slow, quick) == ["b", "a"]


def test_the_reason_is_in_words() -> None:
    known = replace(CODEX, workers=2, record=Record(completed=12, median_seconds=41.3))
    [row] = rows_of("builder", known)
    for words in (
        "works on files by itself",
        "quick at implementing",
        "12 of 12 recent turns completed",
        "half of them within 41 s",
        "2 workers listen",
    ):
        assert words in row.why


@pytest.mark.parametrize("role", NEEDS)
def test_what_is_no_agent_is_not_chosen_by_itself(role: Role) -> None:
    assert "no agent" in why_not(role, SCRIPTED)


@pytest.mark.parametrize(
    ("role", "words"),
    [("planner", "calls no tools"), ("builder", "cannot change files"), ("reviewer", "calls no tools")],
)
def test_what_lacks_what_a_role_needs_is_named_with_the_reason(role: Role, words: str) -> None:
    assert words in why_not(role, OMNARA)


def test_a_program_that_calls_no_tools_of_ours_may_build_but_not_review() -> None:
    plain = Candidate("plain", "cli", capabilities=Capabilities(), workers=1)
    assert order("builder", plain) == ["plain"]
    assert "calls no tools" in why_not("reviewer", plain)


def test_what_is_missing_here_is_named() -> None:
    assert "OPENAI_API_KEY is not set here" in why_not("builder", replace(CODEX, missing_key="OPENAI_API_KEY"))
    assert "no program `codex`" in why_not("builder", replace(CODEX, absent="there is no program `codex`"))
    assert "option `command`" in why_not("builder", replace(CODEX, wants_options="name the option `command`"))
    assert why_not("builder", replace(CODEX, trouble="it does not load")) == "it does not load"


def test_what_is_missing_here_is_with_the_workers_if_their_turns_are_completed() -> None:
    elsewhere = replace(CODEX, missing_key="OPENAI_API_KEY", absent="not here", record=Record(completed=3))
    assert order("builder", elsewhere) == ["codex"]
    assert "not set" in why_not("builder", replace(elsewhere, workers=0), CLAUDE)


def test_nobody_listens_counts_only_while_anybody_works() -> None:
    idle = replace(CODEX, workers=0)
    assert why_not("builder", idle, CLAUDE) == "no worker listens"
    assert order("builder", idle, replace(CLAUDE, workers=0)) == ["codex", "claude-code"]


def test_the_table_has_everybody_for_every_role_those_who_are_not_chosen_last() -> None:
    table = fitness_table([SCRIPTED, CODEX, OMNARA, CLAUDE])
    assert [row.role for row in table] == ["planner"] * 4 + ["builder"] * 4 + ["reviewer"] * 4
    assert [row.provider for row in table if row.role == "builder"] == ["codex", "claude-code", "omnara", "scripted"]
    assert all(row.why for row in table)
