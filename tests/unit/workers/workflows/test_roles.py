"""Who gets which role: the fittest, or who is wished for; and nobody reviews what it has built while another can."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.contracts import Capabilities
from tests.support.role_candidates import ANTHROPIC, CLAUDE, CODEX, GEMINI, OMNARA, OPENAI, SCRIPTED
from workers.refusals import RefusedError
from workers.workflows.candidates import Candidate, Record
from workers.workflows.fitness import fitness_table
from workers.workflows.roles import Roles, Wishes, choose

pytestmark = pytest.mark.spec("O2")

NO_KEY = replace(ANTHROPIC, missing_key="ANTHROPIC_API_KEY")


def provider(text: str) -> str:
    return text.partition(":")[0]


def own_reviewers(roles: Roles) -> list[str]:
    return [builder for builder, reviewer in roles.reviewers.items() if provider(builder) == provider(reviewer)]


# --- by fitness ---


def test_the_fittest_of_three_share_the_work() -> None:
    roles = choose([GEMINI, CODEX, CLAUDE])
    assert (roles.planner, roles.builders, roles.reviewers) == ("claude-code", ("codex",), {"codex": "claude-code"})
    assert roles.notes == ()
    assert [line.partition(",")[0] for line in roles.reasons] == [
        "claude-code: planner; works on files by itself",
        "codex: builder; works on files by itself",
        "claude-code: reviewer of codex; of another vendor",
    ]


def test_for_several_tasks_those_build_that_are_nearly_as_fit() -> None:
    roles = choose([GEMINI, CODEX, CLAUDE, ANTHROPIC], tasks=5)
    assert roles.builders == ("codex", "claude-code")
    assert roles.reviewers == {"codex": "claude-code", "claude-code": "gemini"}


def test_a_reviewer_of_another_vendor_goes_before_one_of_the_same() -> None:
    roles = choose([OPENAI, CODEX, replace(OPENAI, name="other", vendor="other", record=Record(1, 1))])
    assert roles.reviewers == {"codex": "other"}


def test_one_that_is_down_reviews_rather_than_the_builder_itself() -> None:
    roles = choose([CODEX, replace(GEMINI, health="down")])
    assert roles.reviewers == {"codex": "gemini"}


def test_who_alone_can_review_leaves_the_building_to_another() -> None:
    plain = Candidate("plain", "cli", capabilities=Capabilities(), workers=1)
    roles = choose([CODEX, plain])
    assert (roles.builders, roles.reviewers, roles.notes) == (("plain",), {"plain": "codex"}, ())


def test_the_only_one_reviews_its_own_work_and_that_is_said() -> None:
    roles = choose([CODEX, NO_KEY, SCRIPTED, OMNARA])
    assert roles.reviewers == {"codex": "codex"}
    assert roles.notes == ("codex reviews its own work: no other provider is usable for that",)


def test_a_script_stands_in_where_no_agent_is_usable_and_that_is_said() -> None:
    roles = choose([NO_KEY, SCRIPTED])
    assert (roles.planner, roles.builders, roles.reviewers) == ("scripted", ("scripted",), {"scripted": "scripted"})
    assert [note for note in roles.notes if "scripted stands in" in note]
    assert "scripted reviews its own work: it only plays both parts" in roles.notes


def test_with_nobody_at_all_it_is_said_what_each_lacks() -> None:
    with pytest.raises(
        RefusedError, match=r"nobody to be the planner: anthropic \(ANTHROPIC_API_KEY is not set here\)"
    ):
        choose([NO_KEY])
    with pytest.raises(RefusedError, match=r"scripted \(.*no worker listens\)"):
        choose([replace(NO_KEY, workers=1), replace(SCRIPTED, workers=0)])
    with pytest.raises(RefusedError, match="no providers are installed"):
        choose([])


def test_that_no_worker_runs_is_said() -> None:
    roles = choose([replace(CODEX, workers=0), replace(CLAUDE, workers=0)])
    assert roles.builders == ("codex",)
    assert roles.notes == ("no worker runs now: nothing begins until one does",)


# --- by wishes ---


def test_a_wish_goes_before_fitness_and_keeps_its_model() -> None:
    wishes = Wishes("gemini", ("claude-code:claude-opus-5-5", "codex:gpt-6-sol"), "gemini:pro")
    roles = choose([GEMINI, CODEX, CLAUDE], wishes)
    assert roles.planner == "gemini"
    assert roles.builders == ("claude-code:claude-opus-5-5", "codex:gpt-6-sol")
    assert roles.reviewers == dict.fromkeys(roles.builders, "gemini:pro")
    assert roles.notes == ()
    assert roles.reasons[0].startswith("gemini: planner; wished for")


def test_the_same_wish_twice_is_one_builder() -> None:
    assert choose([CODEX, CLAUDE], Wishes(builders=("codex", " codex", "codex:"))).builders == ("codex",)


def test_who_is_wished_for_as_reviewer_does_not_build() -> None:
    roles = choose([CODEX, CLAUDE], Wishes(reviewer="codex"), tasks=3)
    assert (roles.builders, roles.reviewers) == (("claude-code",), {"claude-code": "codex"})


def test_what_speaks_against_a_wish_is_said_and_the_wish_granted() -> None:
    roles = choose([NO_KEY, CODEX, OMNARA], Wishes(planner="omnara", reviewer="anthropic"))
    assert (roles.planner, roles.reviewers) == ("omnara", {"codex": "anthropic"})
    assert [note for note in roles.notes if note.startswith("omnara is the planner") and "calls no tools" in note]
    assert [note for note in roles.notes if note.startswith("anthropic is the reviewer") and "API_KEY" in note]


def test_who_is_wished_for_as_builder_may_review_another_although_something_is_missing_here() -> None:
    roles = choose([replace(CODEX, missing_key="OPENAI_API_KEY"), NO_KEY], Wishes(builders=("codex", "anthropic")))
    assert roles.reviewers == {"codex": "anthropic", "anthropic": "codex"}


def test_a_script_is_no_second_agent_but_plays_what_is_wished_for() -> None:
    assert choose([CODEX, SCRIPTED], Wishes(builders=("codex",))).reviewers == {"codex": "codex"}
    both = Wishes(builders=("scripted",), reviewer="scripted")
    assert choose([CODEX, SCRIPTED], both).reviewers == {"scripted": "scripted"}
    assert choose([CODEX, SCRIPTED], Wishes(builders=("scripted",))).reviewers == {"scripted": "codex"}


def test_one_that_cannot_review_is_not_made_to_review_itself() -> None:
    assert choose([OMNARA, SCRIPTED], Wishes(builders=("omnara",))).reviewers == {"omnara": "scripted"}
    with pytest.raises(RefusedError, match="nobody to be the reviewer"):
        choose([OMNARA, NO_KEY], Wishes(planner="omnara", builders=("omnara",)))


def test_to_build_and_review_is_refused_while_another_could_review() -> None:
    with pytest.raises(RefusedError, match=r"another reviewer \(claude-code, gemini\), or for another builder"):
        choose([GEMINI, CODEX, CLAUDE], Wishes(builders=("codex", "codex:gpt-6-sol"), reviewer="codex:gpt-6-sol"))


def test_to_build_and_review_is_granted_to_the_only_one_and_said() -> None:
    roles = choose([CODEX, NO_KEY], Wishes(builders=("codex",), reviewer="codex:gpt-6-sol"))
    assert roles.reviewers == {"codex": "codex:gpt-6-sol"}
    assert roles.notes == ("codex reviews its own work: no other provider is usable for that",)


def test_a_reviewer_among_several_builders_leaves_its_own_work_to_another() -> None:
    roles = choose([CODEX, CLAUDE], Wishes(builders=("codex", "claude-code"), reviewer="claude-code"))
    assert roles.reviewers == {"codex": "claude-code", "claude-code": "codex"}
    assert roles.notes == ("claude-code does not review what it has built itself: codex does",)


@pytest.mark.parametrize(
    "wishes", [Wishes(planner="cdoex"), Wishes(builders=("codex", "cdoex")), Wishes(reviewer="cdoex:gpt-6-sol")]
)
def test_a_wish_for_nobody_is_refused_with_who_there_is(wishes: Wishes) -> None:
    with pytest.raises(RefusedError, match="no provider 'cdoex' here; installed: claude-code, codex"):
        choose([CODEX, CLAUDE], wishes)


def test_a_wish_that_cannot_be_is_refused_with_the_reason() -> None:
    with pytest.raises(RefusedError, match="'codex' cannot be used: it does not load"):
        choose([replace(CODEX, trouble="it does not load"), CLAUDE], Wishes(builders=("codex",)))
    with pytest.raises(RefusedError, match="model"):
        choose([CODEX, CLAUDE], Wishes(builders=("codex:" + "x" * 201,)))


# --- always ---

NAMES = ("claude-code", "codex", "gemini", "anthropic", "openai", "plain", "scripted")


@st.composite
def fleets(draw: st.DrawFn) -> list[Candidate]:
    return [
        Candidate(
            name,
            "scripted" if name == "scripted" else draw(st.sampled_from(["api", "cli"])),
            draw(st.sampled_from(["a", "b"])),
            Capabilities(tools=draw(st.booleans()), mcp=draw(st.booleans()), resume=draw(st.booleans())),
            missing_key=draw(st.sampled_from([None, None, "SOME_KEY"])),
            workers=draw(st.integers(0, 2)),
            health=draw(st.sampled_from(["ok", "limited", "down"])),
            record=Record(draw(st.integers(0, 50)), draw(st.integers(0, 50))),
        )
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True))
    ]


def usable(fleet: list[Candidate], role: str) -> set[str]:
    return {row.provider for row in fitness_table(fleet) if row.role == role and row.score is not None}


@given(fleets(), st.integers(0, 4))
def test_nobody_reviews_itself_while_one_can_build_and_another_review(fleet: list[Candidate], tasks: int) -> None:
    try:
        roles = choose(fleet, tasks=tasks)
    except RefusedError:
        assert not all(usable(fleet, role) for role in ("planner", "builder", "reviewer"))
        return
    builders, reviewers = usable(fleet, "builder"), usable(fleet, "reviewer")
    pairs = [(builder, reviewer) for builder in builders for reviewer in reviewers if builder != reviewer]
    assert bool(own_reviewers(roles)) <= (not pairs)
    assert bool(own_reviewers(roles)) == any("reviews its own work" in note for note in roles.notes)
    assert set(roles.reviewers) == set(roles.builders)
    assert 1 <= len(roles.builders) <= max(tasks, 1)
    for role, chosen in (("planner", {roles.planner}), ("builder", set(roles.builders))):
        assert chosen <= (usable(fleet, role) or {"scripted"})


@given(fleets(), st.lists(st.sampled_from(NAMES), max_size=3), st.sampled_from([None, *NAMES]))
def test_whatever_is_wished_for_nobody_reviews_itself_unsaid(
    fleet: list[Candidate], builders: list[str], reviewer: str | None
) -> None:
    try:
        roles = choose(fleet, Wishes(builders=tuple(builders), reviewer=reviewer))
    except RefusedError:
        return
    assert set(builders) <= set(roles.builders)
    if reviewer is not None:
        assert all(roles.reviewers[builder] == reviewer for builder in roles.builders if builder != reviewer)
    for builder in own_reviewers(roles):
        assert builder == "scripted" or not usable(fleet, "reviewer") - {builder}
        assert any(note.startswith(f"{builder} reviews its own work") for note in roles.notes)


@given(fleets())
def test_the_order_of_the_list_does_not_matter(fleet: list[Candidate]) -> None:
    def outcome(listed: list[Candidate]) -> object:
        try:
            roles = choose(listed, tasks=3)
        except RefusedError:
            return None
        return roles.planner, roles.builders, roles.reviewers

    assert outcome(fleet) == outcome(fleet[::-1])
