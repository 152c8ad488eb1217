"""A workflow as it stands, for whoever decides what comes next: what was asked for and what its stages have come to.
Made from rows; nothing here reads or writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from adapters.tools.submitting import PlanArguments, PlannedTask, ReviewArguments
from workers.workflows.spec import Spec, StageKind, Who

Standing = Literal["running", "completed", "failed", "cancelled"]


@dataclass(frozen=True)
class Seen:
    """A stage. `number` is its place in the order in which stages were begun."""

    kind: StageKind
    number: int
    status: Standing
    task: str = ""
    round: int = 0
    output: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Job:
    goal: str
    spec: Spec
    stages: Sequence[Seen]
    # Agents that were asked and handed nothing in, by kind, task and round: how often.
    missed: Mapping[tuple[str, str, int], int] = field(default_factory=dict)

    def last(self, *kinds: StageKind, task: str = "") -> Seen | None:
        """The latest of these kinds, of one task or of the whole."""
        return next((one for one in reversed(self.stages) if one.kind in kinds and one.task == task), None)

    def of_task(self, task: str) -> list[Seen]:
        return [one for one in self.stages if one.task == task]

    @cached_property
    def plan(self) -> PlanArguments | None:
        planned = self.last("plan")
        if planned is None or planned.status != "completed":
            return None
        return PlanArguments.model_validate(planned.output)

    @property
    def tasks(self) -> list[PlannedTask]:
        return self.plan.tasks[: self.spec.most_tasks] if self.plan is not None else []

    @property
    def base(self) -> str:
        """The commit that everything began from."""
        prepared = self.last("prepare")
        assert prepared is not None
        return str(prepared.output["commit"])

    @property
    def base_branch(self) -> str | None:
        """The branch that began at the base, if it was named by one."""
        prepared = self.last("prepare")
        return prepared.output.get("branch") if prepared is not None else None

    @property
    def onto(self) -> str:
        """The commit that the work is merged onto: a later one, if the target has moved meanwhile."""
        published = self.last("publish")
        moved = published.output.get("moved") if published is not None else None
        return str(moved) if moved else self.base

    @property
    def check(self) -> str:
        prepared = self.last("prepare")
        assert prepared is not None
        return str(prepared.output["check"])

    def builder(self, task: str) -> Who:
        return self.spec.builder_of([one.key for one in self.tasks].index(task))

    def reviewer(self, task: str) -> Who:
        return self.spec.reviewers[self.builder(task).provider]

    def review_of(self, task: str) -> ReviewArguments | None:
        seen = self.last("review", task=task)
        return ReviewArguments.model_validate(seen.output) if seen is not None and seen.output else None

    def trouble_in_merging(self, task: str) -> Seen | None:
        """The last merge, if it came to nothing because of this task and the task has not been worked on since."""
        merge, mine = self.last("merge"), self.of_task(task)
        if merge is None or merge.status != "completed" or not mine or merge.number < mine[-1].number:
            return None
        return merge if merge.output.get("task") == task else None

    def since(self, task: str) -> str:
        """The commit that its change is looked at from: what was brought into its tree last, else where it began."""
        brought = [one for one in self.stages if one.kind == "merge" and one.output.get("task") == task]
        return str(brought[-1].output["onto"]) if brought else self.base

    def planned(self, task: str) -> dict[str, Any]:
        return next(one for one in self.tasks if one.key == task).model_dump(mode="json")

    def failures(self, task: str) -> int:
        """How often its checks failed, changes were asked for, or it could not be merged."""
        bad = [one for one in self.of_task(task) if one.kind == "check" and one.output and not one.output.get("ok")]
        asked = [
            one
            for one in self.of_task(task)
            if one.kind == "review" and one.output and one.output.get("verdict") == "request_changes"
        ]
        merges = [one for one in self.stages if one.kind == "merge" and one.output.get("task") == task]
        return len(bad) + len(asked) + len(merges)
