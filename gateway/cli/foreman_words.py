"""What a foreman's workflow has come to, in words and marks for a terminal. What agents, programs and repositories have
said is shown without anything that could steer the terminal."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from gateway.cli.desk import visible
from gateway.cli.questions import numbered, options_of
from gateway.figures import money, span
from models.base import AnyRow
from models.lookup import short
from workers.workflows.spec import Spec, Target, Who
from workers.workflows.view import StageView, TaskView, WorkflowView

MARKS: Final = {
    "running": ("…", "cyan"),
    "waiting": ("?", "yellow"),
    "completed": ("✓", "green"),
    "negative": ("✗", "yellow"),
    "failed": ("✗", "red"),
    "cancelled": ("-", "dim"),
    "replaced": ("↻", "dim"),
}
STATES: Final = {"running": "cyan", "completed": "green", "failed": "red", "cancelled": "yellow"}
WAITS: Final = "waits for you"
_LINE: Final = 100  # characters of what may be of any length, where it stands in a line


def line_of(text: object, most: int = _LINE) -> str:
    """Of any text, one harmless line."""
    line = " ".join(visible(str(text)).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def named(one: Who | StageView) -> str:
    return f"{one.provider}:{one.model}" if one.model else one.provider


def trail(stages: Iterable[StageView], most: int = 5) -> Text:
    """The stages of one task, each with how it ended; of many the latest."""
    steps = list(stages)
    text = Text("… " if len(steps) > most else "", style="dim")
    for number, stage in enumerate(steps[-most:]):
        mark, style = MARKS[stage.state]
        text.append(" " * bool(number)).append(f"{stage.name} ", style="dim").append(mark, style=style)
    return text


def took(stage: StageView, view: WorkflowView) -> str:
    return span(((stage.ended_at or view.row.at) - stage.started_at).total_seconds())


def cost_of(stages: Iterable[StageView]) -> str:
    costs = [stage.spent.cost_usd for stage in stages if stage.spent is not None]
    known = [cost for cost in costs if cost is not None]
    return money(sum(known)) if known else "?" if costs else ""


def at_work(stage: StageView) -> str:
    """What it is at, or what it came to."""
    if stage.state == "waiting":
        return WAITS
    if stage.state == "running":
        return line_of(stage.doing or "waits for a worker")
    return line_of(stage.in_words)


def goes_to(target: Target, repository: str) -> str:
    if not target.pull_request:
        return f"branch {target.branch} of {repository}"
    into = f" into {target.into}" if target.into else ""
    return f"a pull request from {target.branch}{into}, pushed to {target.remote}"


def roles_of(spec: Spec) -> list[tuple[str, str, str]]:
    """What is done, by whom, and why by them."""
    found = [("plans", named(spec.planner), spec.planner.why)]
    found += [("builds", named(one), one.why) for one in spec.builders]
    reviewers = {named(one): one.why for one in spec.reviewers.values()}
    for name, why in reviewers.items():
        whose = [builder for builder, one in spec.reviewers.items() if named(one) == name]
        found.append(("reviews", f"{name}, what {' and '.join(whose)} built" if len(reviewers) > 1 else name, why))
    return found


@dataclass(frozen=True)
class Wait:
    """What waits for a person. `command`: what to type; `besides`: what else may be typed."""

    what: str
    command: str
    besides: str = ""


def waits(view: WorkflowView) -> list[Wait]:
    return [_approval(ask) for ask in view.waiting] + [_question(one) for one in view.questions]


def _approval(row: AnyRow) -> Wait:
    what, name = line_of(f"{row.category}: {row.summary}", 300), short(row.id)
    return Wait(what, f"longshore approve {name}", f"look first: longshore approvals {name}; no: longshore deny {name}")


def _question(row: AnyRow) -> Wait:
    title, text = row.question.get("title") or "", row.question.get("text") or ""
    said = title if text in ("", title) else f"{title} {text}"
    options = numbered(options_of(row))
    what = line_of(f"{said} ({options})" if options else said, 300)
    answer = "1" if options else "'…'"
    return Wait(what, f"longshore answer {short(row.id)} {answer}")


def title_of(task: TaskView) -> str:
    return line_of(task.title)
