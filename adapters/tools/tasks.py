"""Work for later: tasks the agent gives itself, once or again and again.

Each returns an action; a task is a message to the agent's own session with a date, written with the call's result."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field

from adapters.actions import ChangeTask, ListTasks, ScheduleTask
from adapters.errors import ToolError
from adapters.tool_port import Tool, ToolArguments, ToolContext

MAX_PROMPT: Final = 20_000
MAX_RECURRENCE: Final = 100
MAX_TIMEZONE: Final = 50
# Scripts are part of the contract agents know; until they can be run they are refused rather than forgotten.
NO_SCRIPTS: Final = "scripts before a task are not available in this release; leave script out"
_SCRIPT_FIELD: Any = Field(None, max_length=20_000, description="not available in this release: leave it out")
_TASK_ID: Any = Field(alias="taskId", min_length=8, max_length=36, description="the task, as list_tasks shows it")


class ScheduleTaskArguments(ToolArguments):
    prompt: str = Field(min_length=1, max_length=MAX_PROMPT, description="what you are to do then, in full")
    process_after: str = Field(
        alias="processAfter",
        max_length=60,
        description="when it runs first: ISO 8601 with a UTC offset, for example 2026-01-31T09:00:00+01:00",
    )
    recurrence: str | None = Field(
        None, max_length=MAX_RECURRENCE, description="again and again: cron (0 9 * * 1-5) or @daily, @hourly, @weekly"
    )
    timezone: str = Field("UTC", max_length=MAX_TIMEZONE, description="IANA name; cron is read in it")
    script: str | None = _SCRIPT_FIELD


async def _schedule_task(arguments: ScheduleTaskArguments, context: ToolContext) -> ScheduleTask:
    if arguments.script:
        raise ToolError(NO_SCRIPTS)
    return ScheduleTask(
        _prompt(arguments.prompt),
        _date(arguments.process_after),
        arguments.recurrence or None,
        arguments.timezone,
    )


def _prompt(text: str) -> str:
    if not text.strip():
        raise ToolError("the prompt is empty: say what you are to do then")
    return text


def _date(text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ToolError(
            f"processAfter: {text!r} is not an ISO 8601 timestamp; write it like 2026-01-31T09:00:00+01:00"
        ) from None
    if date.tzinfo is None:
        raise ToolError(
            f"processAfter: {text!r} does not say in which zone it is meant; add the offset, "
            f"for example {date.isoformat()}+01:00, or Z for UTC"
        )
    if not 1970 < date.year < 3000:
        raise ToolError("processAfter must lie between the years 1971 and 2999")
    return date


SCHEDULE_TASK = Tool(
    "schedule_task",
    "Gives yourself a task for later, once or again and again. When its date comes, its prompt is put to you in this "
    "conversation, and your answer goes where your answer to the last message goes now.",
    ScheduleTaskArguments,
    _schedule_task,
    idempotent=True,
)


async def _list_tasks(arguments: ToolArguments, context: ToolContext) -> ListTasks:
    return ListTasks()


LIST_TASKS = Tool(
    "list_tasks",
    "Lists the scheduled tasks of this conversation: id, next date, how often, and what is to be done.",
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
    "Cancels a scheduled task of this conversation: it does not run again. From within its own run, this one is the "
    "last.",
)
PAUSE_TASK = _changing("pause", "Pauses a scheduled task of this conversation until resume_task.")
RESUME_TASK = _changing(
    "resume",
    "Lets a paused task run again. One that recurs goes on with its next date to come; one that does not, and whose "
    "date has passed, runs at once.",
)


class UpdateTaskArguments(ToolArguments):
    task_id: str = _TASK_ID
    prompt: str | None = Field(None, max_length=MAX_PROMPT, description="what is to be done instead")
    recurrence: str | None = Field(
        None, max_length=MAX_RECURRENCE, description="another cron; empty: it runs once more and not again"
    )
    process_after: str | None = Field(
        None, alias="processAfter", max_length=60, description="another next date: ISO 8601 with a UTC offset"
    )
    timezone: str | None = Field(None, max_length=MAX_TIMEZONE, description="another zone: an IANA name")
    script: str | None = _SCRIPT_FIELD


async def _update_task(arguments: UpdateTaskArguments, context: ToolContext) -> ChangeTask:
    if arguments.script:
        raise ToolError(NO_SCRIPTS)
    fields: dict[str, Any] = {}
    if arguments.prompt is not None:
        fields["prompt"] = _prompt(arguments.prompt)
    if arguments.process_after is not None:
        fields["process_after"] = _date(arguments.process_after)
    if arguments.recurrence is not None:
        fields["recurrence"] = arguments.recurrence.strip() or None
    if arguments.timezone is not None:
        fields["timezone"] = arguments.timezone
    if arguments.script is not None:  # empty: there is none to remove, and that is fine
        fields["script"] = None
    if not fields:
        raise ToolError("nothing to change: give prompt, recurrence, processAfter or timezone")
    return ChangeTask(arguments.task_id, "update", fields)


UPDATE_TASK = Tool(
    "update_task",
    "Changes a scheduled task of this conversation: only what you name. From within its own run, it changes the next.",
    UpdateTaskArguments,
    _update_task,
    idempotent=True,
)
