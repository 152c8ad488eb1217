"""What a foreman's workflow was asked for, and who does what in it: the `spec` of its row, read and checked."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

FOREMAN: Final = "foreman"
CLERK: Final = "clerk"  # the provider that does what needs no judgement
MAX_GOAL: Final = 20_000
MAX_LINE: Final = 500  # characters of a path, a branch, a command
MAX_TASKS: Final = 8
MAX_TRIES: Final = 20
MINUTES: Final = 240.0  # so long one may take, if nobody says otherwise

Line = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LINE)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Who(_Part):
    """A provider for a role, and why it has it, in words."""

    provider: Line
    model: Line | None = None
    why: str = ""


class Target(_Part):
    """Where the result goes: a branch of the repository it came from, or a pull request."""

    branch: Line
    pull_request: bool = False
    remote: Line = "origin"
    into: Line | None = None  # what a pull request asks to be merged into; None: there is none


class Spec(_Part):
    repository: Line
    base: Line | None = None  # None: what is checked out
    check: Line | None = None  # the test command; None: what the repository itself says
    planner: Who
    builders: tuple[Who, ...] = Field(min_length=1)
    reviewers: dict[str, Who]  # by the builder whose work is looked at
    target: Target
    # So often a task may fail its checks, its review or its merge. Restarts give it more than anybody may ask for.
    tries: int = Field(3, ge=1)
    most_tasks: int = Field(4, ge=1, le=MAX_TASKS)
    notes: tuple[str, ...] = ()

    def builder_of(self, number: int) -> Who:
        """Of a task, by its place in the plan: they are dealt out in turn."""
        return self.builders[number % len(self.builders)]


StageKind = Literal["prepare", "plan", "build", "fix", "check", "review", "merge", "publish"]


def spec_of(row: Any) -> Spec:
    return Spec.model_validate(row.spec)
