"""Scheduled tasks as people and agents see them: one core for the tools of agents and for the command line."""

from models.task_lookup import EVERYTHING, Scope
from workers.timetable.changing import Changes, cancel, pause, resume, run_now, update
from workers.timetable.dates import GRACE, check_date, check_rhythm, first_date, is_same_again, plan_in_words, slot
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
from workers.timetable.terms import changed_terms, check_provider, conditions
from workers.timetable.view import Run, Task

__all__ = [
    "EVERYTHING",
    "GRACE",
    "MIN_HANDLE",
    "Changes",
    "NewTask",
    "Run",
    "Scope",
    "Task",
    "add",
    "cancel",
    "changed_terms",
    "check_date",
    "check_provider",
    "check_rhythm",
    "conditions",
    "find_past",
    "find_task",
    "first_date",
    "is_same_again",
    "list_tasks",
    "page_of_tasks",
    "pause",
    "plan_in_words",
    "resume",
    "run_now",
    "runs_of",
    "slot",
    "task_by_id",
    "update",
]
