"""A foreman's workflow told line by line, for pipes and logs: each thing once, when it has happened."""

from collections.abc import Iterator

from gateway.cli.foreman_words import cost_of, line_of, named, title_of, took, waits
from workers.workflows.spec import CLERK
from workers.workflows.view import StageView, WorkflowView

_ENDS = {
    "completed": "done",
    "negative": "sent back",
    "failed": "failed",
    "cancelled": "cancelled",
    "replaced": "again",
}
_DECIDED = {"approved": "approved", "used": "approved", "denied": "denied", "expired": "nobody decided in time"}


class Story:
    """Remembers what it has told."""

    def __init__(self) -> None:
        self._told: set[tuple[str, ...]] = set()

    def lines(self, view: WorkflowView) -> list[str]:
        """What is new, in the order in which it began."""
        new = []
        for key, line in _all(view):
            if key not in self._told:
                self._told.add(key)
                new.append(line)
        return new


def _all(view: WorkflowView) -> Iterator[tuple[tuple[str, ...], str]]:
    for stage in view.stages:
        yield (stage.id, "begins"), _begins(stage)
        for ask in stage.asks:
            if ask.status != "pending":
                by = f" by {line_of(ask.decided_by)}" if ask.decided_by else ""
                yield (ask.id, "decided"), f"{_DECIDED[ask.status]}{by}: {line_of(ask.summary, 300)}"
        if stage.state in _ENDS:
            yield (stage.id, "ends"), _ends(stage, view)
        if stage.kind == "plan" and stage.state == "completed":
            for task in view.tasks:
                who = f"{task.builder}, reviewed by {task.reviewer}"
                yield (stage.id, task.key), f"  {task.key}: {title_of(task)} ({line_of(who)})"
    for wait in waits(view):
        yield ("waits", wait.command), f"waits for you: {wait.what}: {wait.command}"


def _begins(stage: StageView) -> str:
    who = "" if stage.provider == CLERK else f" ({line_of(named(stage))})"
    return f"{_name(stage)} begins{who}"


def _ends(stage: StageView, view: WorkflowView) -> str:
    cost = cost_of([stage])
    figures = ", ".join(filter(None, (took(stage, view), "price unknown" if cost == "?" else cost)))
    words = line_of(stage.in_words, 300)
    return f"{_name(stage)} {_ENDS[stage.state]}{f': {words}' if words else ''} ({figures})"


def _name(stage: StageView) -> str:
    return f"{stage.task}: {stage.name}" if stage.task else stage.name
