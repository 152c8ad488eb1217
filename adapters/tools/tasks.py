"""Work for later: tasks the agent gives itself, once or again and again.

Each returns an action; a task is a message to the agent's own session with a date, written with the call's result.
Which provider runs a task is not for agents to say."""

from typing import Any, Final, Literal

from pydantic import Field

from adapters.actions import (
    ChangeTask,
    ListTasks,
    ScheduleTask,
)
from adapters.errors import ToolError
from adapters.task_limits import MAX_JITTER, MAX_PAUSE_AFTER, MAX_SCRIPT, MAX_USD, MIN_USD
from adapters.tool_port import Tool, ToolArguments, ToolContext
from adapters.tools.dates import MAX_DATE, MAX_RECURRENCE, MAX_TIMEZONE, read_date

MAX_PROMPT: Final = 20_000
_TASK_ID: Any = Field(alias="taskId", min_length=8, max_length=36, description="the task, as list_tasks shows it")


class _Terms(ToolArguments):
    """How a task is run; what is left out is as usual, or stays as it is."""

    script: str | None = Field(
        None,
        max_length=MAX_SCRIPT,
        description="bash that is run first, in your sandbox, for at most 30 seconds. Its last line must be JSON: "
        '{"wakeAgent": false} spares you this run, {"wakeAgent": true, "data": ...} shows you the data. An admin must '
        "ask for it or approve it",
    )
    catch_up: Literal["skip", "one", "all"] | None = Field(
        None,
        alias="catchUp",
        description="dates missed while nobody could run it: skip them, make up for all with one run (as usual), or "
        "run each",
    )
    overlap: Literal["skip", "queue"] | None = Field(
        None, description="dates that come while it still runs: skip them (as usual), or run them afterwards"
    )
    jitter_seconds: int | None = Field(
        None, alias="jitterSeconds", ge=0, le=MAX_JITTER, description="each run begins up to so many seconds later"
    )
    pause_after: int | None = Field(
        None,
        alias="pauseAfter",
        ge=0,
        le=MAX_PAUSE_AFTER,
        description="it is paused after so many failures in a row: 5 as usual; 0: never",
    )

    def terms(self) -> dict[str, Any]:
        """Those that were given."""
        names = ("script", "catch_up", "overlap", "jitter_seconds", "pause_after")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class _NewTask(ToolArguments):
    prompt: str = Field(min_length=1, max_length=MAX_PROMPT, description="what you are to do then, in full")
    process_after: str | None = Field(
        None,
        alias="processAfter",
        max_length=MAX_DATE,
        description="when it runs first: ISO 8601 with a UTC offset, for example 2026-01-31T09:00:00+01:00. With a "
        "recurrence it may be left out: then at its next date",
    )
    recurrence: str | None = Field(
        None, max_length=MAX_RECURRENCE, description="again and again: cron (0 9 * * 1-5) or @daily, @hourly, @weekly"
    )
    timezone: str = Field("UTC", max_length=MAX_TIMEZONE, description="IANA name; cron is read in it")
    daily_usd: float | None = Field(
        None, alias="dailyUsd", ge=MIN_USD, le=MAX_USD, description="what its runs may cost in a day, in US dollars"
    )


class ScheduleTaskArguments(_Terms, _NewTask):
    pass


async def _schedule_task(arguments: ScheduleTaskArguments, context: ToolContext) -> ScheduleTask:
    recurrence = (arguments.recurrence or "").strip() or None
    if not arguments.process_after and recurrence is None:
        raise ToolError("say when it runs: give processAfter, or a recurrence, or both")
    cap = {"daily_usd": arguments.daily_usd} if arguments.daily_usd is not None else {}
    return ScheduleTask(
        _prompt(arguments.prompt),
        read_date(arguments.process_after, "processAfter") if arguments.process_after else None,
        recurrence,
        arguments.timezone,
        arguments.terms() | cap,
    )


def _prompt(text: str) -> str:
    if not text.strip():
        raise ToolError("the prompt is empty: say what you are to do then")
    return text


def _brings_script(arguments: _Terms) -> bool:
    """Taking one away needs nobody's word."""
    return bool(arguments.script and arguments.script.strip())


SCHEDULE_TASK = Tool(
    "schedule_task",
    "Gives yourself a task for later, once or again and again. When its date comes, its prompt is put to you in this "
    "conversation, and your answer goes where your answer to the last message goes now.",
    ScheduleTaskArguments,
    _schedule_task,
    idempotent=True,
    brings_code=_brings_script,
)


async def _list_tasks(arguments: ToolArguments, context: ToolContext) -> ListTasks:
    return ListTasks()


LIST_TASKS = Tool(
    "list_tasks",
    "Lists the scheduled tasks and reminders of this conversation: id, next date, how often, and what is to be done.",
    ToolArguments,
    _list_tasks,
    idempotent=True,
)


class TaskArguments(ToolArguments):
    task_id: str = _TASK_ID


def _changing(change: Literal["cancel", "pause", "resume"], description: str) -> Tool[TaskArguments]:
    async def handler(arguments: TaskArguments, context: ToolContext) -> ChangeTask:
        return ChangeTask(arguments.task_id, change)

    return Tool(f"{change}_task", description, TaskArguments, handler, idempotent=True)


CANCEL_TASK = _changing(
    "cancel",
    "Cancels a scheduled task or a reminder of this conversation: it does not run again. From within its own run, this "
    "one is the last.",
)
PAUSE_TASK = _changing("pause", "Pauses a scheduled task of this conversation until resume_task.")
RESUME_TASK = _changing(
    "resume",
    "Lets a paused task run again. One that recurs goes on with its next date to come; one that does not, and whose "
    "date has passed, runs at once.",
)


class _ChangedTask(ToolArguments):
    task_id: str = _TASK_ID
    prompt: str | None = Field(None, max_length=MAX_PROMPT, description="what is to be done instead")
    recurrence: str | None = Field(
        None, max_length=MAX_RECURRENCE, description="another cron; empty: it runs once more and not again"
    )
    process_after: str | None = Field(
        None, alias="processAfter", max_length=MAX_DATE, description="another next date: ISO 8601 with a UTC offset"
    )
    timezone: str | None = Field(None, max_length=MAX_TIMEZONE, description="another zone: an IANA name")
    daily_usd: float | None = Field(
        None,
        alias="dailyUsd",
        ge=0,
        le=MAX_USD,
        description="what its runs may cost in a day, in US dollars; 0: no cap",
    )


class UpdateTaskArguments(_Terms, _ChangedTask):
    pass


async def _update_task(arguments: UpdateTaskArguments, context: ToolContext) -> ChangeTask:
    fields: dict[str, Any] = arguments.terms()
    if arguments.prompt is not None:
        fields["prompt"] = _prompt(arguments.prompt)
    if arguments.process_after is not None:
        fields["process_after"] = read_date(arguments.process_after, "processAfter")
    if arguments.recurrence is not None:
        fields["recurrence"] = arguments.recurrence.strip() or None
    if arguments.timezone is not None:
        fields["timezone"] = arguments.timezone
    if arguments.daily_usd is not None:
        fields["daily_usd"] = arguments.daily_usd or None
    if not fields:
        raise ToolError("nothing to change: give prompt, recurrence, processAfter, timezone, or how it is to be run")
    return ChangeTask(arguments.task_id, "update", fields)


UPDATE_TASK = Tool(
    "update_task",
    "Changes a scheduled task of this conversation: only what you name; an empty script takes it away. From within its "
    "own run, it changes the next. To loosen its limits (dailyUsd, pauseAfter) needs an admin, as does another prompt, "
    "rhythm or script where it has a script, a provider or a model of its own.",
    UpdateTaskArguments,
    _update_task,
    idempotent=True,
    brings_code=_brings_script,
)
