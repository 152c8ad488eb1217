"""How far workflows are, in words that the command line and the console share."""

from models.workflow_progress import Progress
from workers.workflows.stage_words import DOING


def how_far(progress: Progress) -> str:
    """Where it stands, or where it stopped; while tasks are worked on, how many of them are done."""
    if progress.kind is None:
        return "about to begin"
    if progress.kind in ("build", "fix", "check", "review"):
        return f"{progress.done} of {tasks_of(progress)}"
    return DOING[progress.kind]


def tasks_of(progress: Progress) -> str:
    return f"{progress.tasks} task{'s' * (progress.tasks != 1)} done"
