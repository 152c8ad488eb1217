"""How agents hand in what a workflow goes on with: a plan, or what they found in a review. Arguments that do not fit
are refused with the reason, so that the agent can hand it in again in the same breath.

Not for everybody: a turn has one of these only if it is a stage that ends with it (`workers/workflows`)."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from adapters.actions import Submit
from adapters.errors import ToolError
from adapters.tool_port import Tool, ToolArguments, ToolContext

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\r\n]+$")]
Key = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,29}$")]


class PlannedTask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: Key = Field(description="a short name in small letters, digits and hyphens, like fix-parser")
    title: Line = Field(description="what is to be done, in one line")
    goal: Text = Field(description="what must be true afterwards, and why")
    constraints: list[Text] = Field(default_factory=list, max_length=20, description="what must not be done or changed")
    acceptance: list[Text] = Field(min_length=1, max_length=20, description="how anybody can tell that it is done")


class PlanArguments(ToolArguments):
    summary: Text = Field(description="how the goal is reached, in a few sentences")
    tasks: list[PlannedTask] = Field(
        min_length=1, max_length=8, description="independent of each other: several people do them at once"
    )

    @field_validator("tasks")
    @classmethod
    def _keys_differ(cls, tasks: list[PlannedTask]) -> list[PlannedTask]:
        keys = [task.key for task in tasks]
        if twice := sorted({key for key in keys if keys.count(key) > 1}):
            raise ValueError(f"{', '.join(twice)}: each task needs a key of its own")
        return tasks


class Finding(BaseModel):
    model_config = ConfigDict(extra="forbid")

    severity: Literal["blocking", "minor"] = Field(description="blocking: it must not be merged like this")
    title: Line = Field(description="what is wrong, in one line")
    file: Line | None = None
    line: int | None = Field(None, ge=1, le=10_000_000)
    detail: Text = Field(description="why it is wrong, and how it can be seen")
    suggestion: Text | None = None


class ReviewArguments(ToolArguments):
    verdict: Literal["approve", "request_changes"]
    summary: Text = Field(description="what you looked at, and what you think of it")
    findings: list[Finding] = Field(default_factory=list, max_length=50)

    @model_validator(mode="after")
    def _fits(self) -> "ReviewArguments":
        blocking = any(finding.severity == "blocking" for finding in self.findings)
        if self.verdict == "approve" and blocking:
            raise ValueError("a change with a blocking finding is not approved: say request_changes, or call it minor")
        if self.verdict == "request_changes" and not blocking:
            raise ValueError("request_changes needs a blocking finding that says what has to change")
        return self


async def _submit_review(arguments: ReviewArguments, context: ToolContext) -> Submit:
    return Submit(arguments.model_dump(mode="json"), f"The review is handed in: {arguments.verdict}.")


def submit_plan(most_tasks: int) -> Tool[PlanArguments]:
    async def handler(arguments: PlanArguments, context: ToolContext) -> Submit:
        if len(arguments.tasks) > most_tasks:
            # Those that are too many would never be done, and nobody would know.
            raise ToolError(f"{len(arguments.tasks)} tasks are too many: plan the whole goal in at most {most_tasks}")
        return Submit(arguments.model_dump(mode="json"), f"The plan is handed in: {len(arguments.tasks)} task(s).")

    return Tool(
        "submit_plan",
        "Hands in your plan for the goal you were given. Call it once, when you have looked at the repository; a later "
        "call replaces an earlier one.",
        PlanArguments,
        handler,
        idempotent=True,
    )


SUBMIT_REVIEW: Final = Tool(
    "submit_review",
    "Hands in what you think of the change you were given to review. Call it once, when you have looked at all of it; "
    "a later call replaces an earlier one.",
    ReviewArguments,
    _submit_review,
    idempotent=True,
)
