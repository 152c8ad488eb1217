"""What a foreman decides: each stage in its place, work sent back to whoever built it, an honest end. Whatever checks,
reviews and merges come to, nothing is handed over that was not checked and reviewed as it is."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.workflows.foreman import Decision, End, Next, decide
from workers.workflows.job import Job, Seen
from workers.workflows.spec import Spec, Target, Who

pytestmark = pytest.mark.spec("O1")

SPEC = Spec(
    repository="/srv/repo",
    planner=Who(provider="claude-code"),
    builders=(Who(provider="codex"), Who(provider="claude-code")),
    reviewers={"codex": Who(provider="claude-code"), "claude-code": Who(provider="codex")},
    target=Target(branch="longshore/goal"),
)
PREPARED = {"ok": True, "commit": "base", "branch": "main", "subject": "begin", "check": "make test"}
REASONS = [{"category": "merge", "words": "it is merged", "paths": []}]


def plan(*keys: str) -> dict[str, Any]:
    tasks = [{"key": key, "title": f"Do {key}", "goal": f"{key} works", "acceptance": ["it works"]} for key in keys]
    return {"summary": "in parts", "tasks": tasks}


def approve(*minor: str) -> dict[str, Any]:
    findings = [{"severity": "minor", "title": title, "detail": "a matter of taste"} for title in minor]
    return {"verdict": "approve", "summary": "fine", "findings": findings}


def ask_for(title: str) -> dict[str, Any]:
    finding = {"severity": "blocking", "title": title, "detail": "it breaks", "file": "a.py", "line": 3}
    return {"verdict": "request_changes", "summary": "not yet", "findings": [finding]}


class Story:
    """A workflow that is told what its stages come to."""

    def __init__(self, spec: Spec = SPEC) -> None:
        self.spec = spec
        self.stages: list[Seen] = []
        self.asked: list[Next] = []

    @property
    def job(self) -> Job:
        return Job("make it good", self.spec, self.stages)

    def go_on(self) -> Decision:
        decision = decide(self.job)
        for following in decision if isinstance(decision, list) else ():
            number = len(self.stages) + 1
            self.stages.append(Seen(following.kind, number, "running", following.task, following.round))
            self.asked.append(following)
        return decision

    def end(self, kind: str, task: str = "", output: dict[str, Any] | None = None, **changes: Any) -> None:
        """The stage of that kind which runs comes to an end."""
        [at] = [n for n, one in enumerate(self.stages) if (one.kind, one.task, one.status) == (kind, task, "running")]
        ended = {"status": "completed", "output": output or {}} | changes
        self.stages[at] = replace(self.stages[at], **ended)

    def work(self, task: str, commit: str, *, ok: bool = True, review: dict[str, Any] | None = None) -> None:
        """Build or fix, and check; if that is well, review."""
        kind = next(one.kind for one in self.stages if one.task == task and one.status == "running")
        self.end(kind, task, {"text": "done"})
        self.go_on()
        files = [{"path": f"{task}.py", "added": 1, "removed": 0}]
        facts = {"commit": commit, "tree": f"tree-{commit}", "since": "base", "files": files, "diff": "+x"}
        self.end(
            "check", task, {"ok": ok, "why": "" if ok else "`make test` failed", "log": "E  assert 1 == 2", **facts}
        )
        if ok:
            self.go_on()
            self.end("review", task, review or approve())

    def planned(self, *keys: str) -> "Story":
        self.go_on()
        self.end("prepare", output=PREPARED)
        self.go_on()
        self.end("plan", output=plan(*keys))
        self.go_on()
        return self


def merged(commit: str, onto: str = "base") -> dict[str, Any]:
    files = [{"path": "a.py", "added": 1, "removed": 0}]
    return {"ok": True, "commit": commit, "onto": onto, "files": files, "diff": "+x", "reasons": REASONS}


def kinds(decision: Decision) -> list[tuple[str, str, str]]:
    assert isinstance(decision, list)
    return [(one.kind, one.task, one.who.provider) for one in decision]


def test_it_begins_by_taking_the_repository_in_and_planning() -> None:
    story = Story()
    assert kinds(story.go_on()) == [("prepare", "", "clerk")]
    assert story.go_on() == []
    story.end("prepare", output=PREPARED)
    [planning] = story.go_on()  # type: ignore[misc]
    assert (planning.kind, planning.who.provider, planning.at) == ("plan", "claude-code", "base")
    assert "make it good" in planning.prompt
    assert "submit_plan" in planning.prompt


def test_a_repository_that_cannot_be_taken_in_ends_it_with_the_reason() -> None:
    story = Story()
    story.go_on()
    story.end("prepare", output={"ok": False, "why": "there is no branch nowhere"})
    decision = story.go_on()
    assert isinstance(decision, End)
    assert decision.outcome == "the repository could not be taken in: there is no branch nowhere"


def test_builders_work_at_once_each_in_a_tree_of_its_own_and_are_reviewed_by_another_provider() -> None:
    story = Story().planned("one", "two")
    built = story.asked[-2:]
    assert [(one.kind, one.who.provider, one.tree, one.at) for one in built] == [
        ("build", "codex", "one", "base"),
        ("build", "claude-code", "two", "base"),
    ]
    assert "## Acceptance\n- it works" in built[0].prompt
    story.work("one", "c1")
    reviews = [one for one in story.asked if one.kind == "review"]
    assert [(one.who.provider, one.tree, one.at) for one in reviews] == [("claude-code", "of_reviewer_one_0", "c1")]
    assert story.go_on() == [], "the other task is waited for"


def test_checks_that_fail_and_a_review_that_asks_for_changes_go_back_to_the_builder_in_the_same_conversation() -> None:
    story = Story().planned("one")
    story.work("one", "c1", ok=False)
    [fix] = story.go_on()  # type: ignore[misc]
    assert (fix.kind, fix.lane, fix.who.provider, fix.round) == ("fix", "build:one", "codex", 1)
    assert "assert 1 == 2" in fix.prompt
    story.work("one", "c2", review=ask_for("off by one"))
    [fix] = story.go_on()  # type: ignore[misc]
    assert (fix.kind, fix.round) == ("fix", 2)
    assert "[blocking] off by one (a.py:3)" in fix.prompt
    assert "there is no further try" in fix.prompt
    story.work("one", "c3")
    assert kinds(story.go_on()) == [("merge", "", "clerk")]
    assert story.asked[-1].call["work"] == [{"task": "one", "commit": "c3"}]


def test_a_builder_that_fails_three_times_ends_in_an_honest_stop() -> None:
    story = Story().planned("one")
    for number in range(3):
        story.work("one", f"c{number}", ok=False)
        decision = story.go_on()
    assert isinstance(decision, End)
    assert decision.status == "failed"
    assert decision.result is None
    assert decision.outcome.startswith("“Do one” was given up after 3 tries by codex: `make test` failed")
    assert "assert 1 == 2" in decision.outcome
    assert "Nothing was merged" in decision.outcome


def test_a_conflict_is_brought_to_the_task_that_has_it_and_all_is_checked_and_reviewed_again() -> None:
    story = Story().planned("one", "two")
    story.work("one", "c1")
    story.work("two", "c2")
    story.go_on()
    conflict = {"ok": False, "task": "two", "onto": "m1", "conflicts": ["a.py"], "why": "two conflicts"}
    story.end("merge", output=conflict)
    [fix] = story.go_on()  # type: ignore[misc]
    assert (fix.kind, fix.task, fix.call) == ("fix", "two", {"bring": "m1"})
    assert "- a.py" in fix.prompt
    story.work("two", "c3")
    assert [one.call["since"] for one in story.asked if one.kind == "check"][-1] == "m1"
    assert kinds(story.go_on()) == [("merge", "", "clerk")]
    assert story.asked[-1].call["work"] == [{"task": "one", "commit": "c1"}, {"task": "two", "commit": "c3"}]


def test_the_result_is_handed_over_after_an_approval_for_each_thing_somebody_should_know_of() -> None:
    story = Story().planned("one")
    story.work("one", "c1", review=approve("a name"))
    story.go_on()
    reasons = [*REASONS, {"category": "dependency", "words": "it changes what it depends on", "paths": ["setup.py"]}]
    story.end("merge", output=merged("m1") | {"reasons": reasons})
    [publish] = story.go_on()  # type: ignore[misc]
    asked = [ask["arguments"] for ask in publish.call["asks"]]
    assert [(ask["category"], ask["commit"]) for ask in asked] == [("merge", "m1"), ("dependency", "m1")]
    story.end("publish", output={"ok": True, "branch": "longshore/goal", "commit": "m1"})
    decision = story.go_on()
    assert isinstance(decision, End)
    assert (decision.status, decision.outcome) == ("completed", "branch longshore/goal at m1")
    assert decision.result is not None
    assert decision.result["commit"] == "m1"
    assert "built by codex, reviewed by claude-code" in decision.result["summary"]
    assert "minor: a name" in decision.result["summary"]


def test_a_target_that_has_moved_is_merged_onto_anew_and_asked_about_anew() -> None:
    story = Story().planned("one")
    story.work("one", "c1")
    story.go_on()
    story.end("merge", output=merged("m1"))
    story.go_on()
    story.end("publish", output={"ok": False, "moved": "base2", "why": "main has moved"})
    [merge] = story.go_on()  # type: ignore[misc]
    assert (merge.kind, merge.round, merge.call["onto"]) == ("merge", 1, "base2")
    story.end("merge", output=merged("m2", "base2"))
    [publish] = story.go_on()  # type: ignore[misc]
    assert publish.call["asks"][0]["arguments"]["commit"] == "m2"


def test_a_stage_that_failed_or_was_cancelled_ends_it_and_says_which() -> None:
    story = Story().planned("one")
    story.end("build", "one", status="cancelled", error="cancelled by ann")
    decision = story.go_on()
    assert isinstance(decision, End)
    assert decision.outcome == "building one was cancelled: cancelled by ann"


def test_what_was_not_approved_is_not_handed_over() -> None:
    story = Story().planned("one")
    story.work("one", "c1")
    story.go_on()
    story.end("merge", output=merged("m1"))
    story.go_on()
    story.end("publish", status="failed", error="ask_approval was not approved: ann said no.")
    decision = story.go_on()
    assert isinstance(decision, End)
    assert decision.outcome == "handing the result over failed: ask_approval was not approved: ann said no."


@given(seed=st.integers(0, 10_000), tasks=st.integers(1, 4), tries=st.integers(1, 4))
def test_whatever_stages_come_to_it_ends_and_hands_over_only_what_was_checked_and_reviewed(
    seed: int, tasks: int, tries: int
) -> None:
    chance = random.Random(seed)
    story = Story(SPEC.model_copy(update={"tries": tries})).planned(*[f"t{number}" for number in range(tasks)])
    for commits in range(1000):
        running = [one for one in story.stages if one.status == "running"]
        if not running:
            break
        ended = chance.choice(running)
        output: dict[str, Any] = {"text": "done"}
        if ended.kind == "check":
            output = {"ok": chance.random() < 0.7, "commit": f"c{commits}", "tree": f"t{commits}", "since": "base"}
        elif ended.kind == "review":
            output = approve() if chance.random() < 0.7 else ask_for("something")
        elif ended.kind == "merge":
            culprit = f"t{chance.randrange(tasks)}"
            bad = {"ok": False, "task": culprit, "onto": "m", "conflicts": ["a.py"], "why": "conflict"}
            output = merged(f"m{commits}") if chance.random() < 0.7 else bad
        elif ended.kind == "publish":
            output = (
                {"ok": True, "branch": "b", "commit": "m"} if chance.random() < 0.7 else {"ok": False, "moved": "x"}
            )
        story.end(ended.kind, ended.task, output)
        decision = story.go_on()
        if isinstance(decision, End):
            break
    assert isinstance(decision, End), "it comes to an end"
    if decision.status == "completed":
        merge = next(one for one in reversed(story.asked) if one.kind == "merge")
        for work in merge.call["work"]:
            mine = [one for one in story.stages if one.task == work["task"]]
            assert mine[-1].kind == "review"
            assert mine[-1].output["verdict"] == "approve"
            checked = [one for one in mine if one.kind == "check"][-1]
            assert checked.output["ok"]
            assert checked.output["commit"] == work["commit"]
            assert checked.round == mine[-1].round, "what was reviewed is what was checked"
    else:
        assert decision.result is None


def test_a_reviewer_is_told_that_a_change_was_cut_and_which_files_are_no_text() -> None:
    story = Story().planned("a")
    story.end("build", "a", {"text": "done"})
    story.go_on()
    files = [{"path": "logo.png", "added": None, "removed": None}]
    diff = "+x" * 30_000 + "\n[... the diff is longer, and cut here ...]\n"
    story.end("check", "a", {"ok": True, "commit": "c", "tree": "t", "since": "base", "files": files, "diff": diff})
    story.go_on()
    prompt = story.asked[-1].prompt
    assert ("cut here ...]" in prompt, "- logo.png (no text)" in prompt) == (True, True)
