"""Scheduled tasks as people and agents see them: one core for the tools of agents and for the command line."""

from models.task_lookup import EVERYTHING, Scope
from workers.timetable.changing import Changes, cancel, pause, resume, run_now, update
from workers.timetable.looking import (
    MIN_HANDLE,
    find_past,
    find_task,
    list_tasks,
    page_of_tasks,
    runs_of,
    task_by_id,
)
from workers.timetable.making import NewTask, add
from workers.timetable.view import Run, Task

__all__ = [
    "EVERYTHING",
    "MIN_HANDLE",
    "Changes",
    "NewTask",
    "Run",
    "Scope",
    "Task",
    "add",
    "cancel",
    "find_past",
    "find_task",
    "list_tasks",
    "page_of_tasks",
    "pause",
    "resume",
    "run_now",
    "runs_of",
    "task_by_id",
    "update",
]
