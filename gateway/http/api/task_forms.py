"""Tasks as the API takes and shows them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import HTTPException
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from gateway.http.api.groups import FolderName
from models.series import CatchUp, Overlap
from scheduler.words import often
from workers.intake.incoming import IncomingTerms, Name, ShortName
from workers.timetable import Run, Task

Prompt = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=r"\S")]
Cron = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Zone = Annotated[str, StringConstraints(min_length=1, max_length=50)]


class RunView(BaseModel):
    """`extra`: somebody asked for it besides the schedule."""

    message: str
    session: str
    scheduled_at: datetime
    status: Literal["pending", "processing", "completed", "failed", "discarded", "paused"]
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None
    turn: str | None
    cost_usd: float | None
    extra: bool


class TermsView(BaseModel):
    catch_up: CatchUp
    overlap: Overlap
    jitter_seconds: int
    pause_after: int
    daily_usd: float | None
    provider: str | None
    model: str | None
    script: bool = Field(description="whether one is run first")


class TaskView(BaseModel):
    id: str
    agent: str
    session: str
    prompt: str
    state: str = Field(description="in words")
    paused: bool
    running: bool
    over: bool
    next_run: datetime | None
    every: str | None = Field(description="the cron expression; null: it comes once")
    every_words: str
    timezone: str
    terms: TermsView
    failures: int = Field(description="in a row")
    error: str | None
    channel: str
    chat: str
    thread: str | None


class WholeTask(TaskView):
    next_runs: list[datetime] = Field(description="the next five, if each is on time")
    runs: list[RunView] = Field(description="those that have begun or are over, the last first")


class NewTask(BaseModel):
    """`at`, `every` or both say when: `at` alone once, `every` from its next date on."""

    model_config = ConfigDict(extra="forbid")

    agent: FolderName
    prompt: Prompt
    at: AwareDatetime | None = Field(None, description="when it runs (first), with a UTC offset")
    every: Cron | None = Field(None, description="cron (`0 9 * * 1-5`), `@daily`, `@hourly`")
    timezone: Zone = "UTC"
    channel: ShortName = Field("local", description="where it is answered")
    chat: Name = "inbox"
    thread: Name | None = None
    terms: IncomingTerms | None = None


class TaskChange(BaseModel):
    """Only what is named changes; null takes `every`, `daily_usd`, `provider` or `model` away."""

    model_config = ConfigDict(extra="forbid")

    prompt: Prompt = ""
    at: AwareDatetime | None = Field(None, description="its next date")
    every: Cron | None = None
    timezone: Zone = ""
    catch_up: CatchUp = "one"
    overlap: Overlap = "skip"
    jitter_seconds: int = Field(0, ge=0)
    pause_after: int = Field(0, ge=0)
    daily_usd: float | None = Field(None, gt=0, allow_inf_nan=False)
    provider: ShortName | None = None
    model: ShortName | None = None

    def changes(self) -> dict[str, Any]:
        renamed = {"at": "process_after", "every": "recurrence"}
        named = self.model_dump(exclude_unset=True)
        if named.get("at", self) is None:
            raise HTTPException(422, "at: a date cannot be taken away; pause or cancel the task instead")
        return {renamed.get(name, name): value for name, value in named.items()}


def task_view(task: Task, at: datetime) -> TaskView:
    terms = {name: getattr(task.terms, name) for name in TermsView.model_fields if name != "script"}
    return TaskView(
        id=task.id,
        agent=task.agent,
        session=task.session_id,
        prompt=task.prompt,
        state="over" if task.is_over else task.state,
        paused=task.status == "paused",
        running=task.under_way,
        over=task.is_over,
        next_run=None if task.is_over else task.next_run(at),
        every=task.recurrence,
        every_words=often(task.recurrence),
        timezone=task.timezone,
        terms=TermsView(**terms, script=task.terms.script is not None),
        failures=task.failures,
        error=task.error,
        channel=task.channel_type,
        chat=task.platform_id,
        thread=task.thread_id,
    )


def run_view(run: Run) -> RunView:
    return RunView(
        message=run.message_id,
        session=run.session_id,
        scheduled_at=run.scheduled,
        status=run.status,
        started_at=run.began,
        ended_at=run.ended,
        error=run.error,
        turn=run.turn_id,
        cost_usd=run.usd,
        extra=run.extra,
    )
