"""Scheduled tasks as people and agents see them: one core for the tools of agents and for the command line."""

from workers.timetable.changing import Changes, cancel, pause, resume, run_now, update
from workers.timetable.dates import Slot, check_rhythm, first_date, plan, slot
from workers.timetable.looking import find_past, find_task, list_tasks, runs_of
from workers.timetable.making import NewTask, add
from workers.timetable.terms import changed_terms, check_provider, conditions
from workers.timetable.view import EVERYTHING, Run, Scope, Task

__all__ = [
    "EVERYTHING",
    "Changes",
    "NewTask",
    "Run",
    "Scope",
    "Slot",
    "Task",
    "add",
    "cancel",
    "changed_terms",
    "check_provider",
    "check_rhythm",
    "conditions",
    "find_past",
    "find_task",
    "first_date",
    "list_tasks",
    "pause",
    "plan",
    "resume",
    "run_now",
    "runs_of",
    "slot",
    "update",
]
