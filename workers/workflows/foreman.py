"""What comes next in a foreman's workflow, decided from what its stages have come to. Pure: the same stages always give
the same answer, so it does not matter how often, or by whom, it is asked.

prepare, plan; for each task build, check, review (and, a few times, fix, check, review); merge, publish."""

from dataclasses import dataclass, field
from typing import Any, Literal

from workers.workflows import briefing
from workers.workflows.job import Job, Seen
from workers.workflows.reporting import result_of, summary_of
from workers.workflows.spec import CLERK, StageKind, Who
from workers.workflows.stage_words import DOING

_NAMED = 200  # files on the card that asks
_NAMED_CHARACTERS = 10_000  # in all: a card that is too long cannot be shown, and then nobody could say yes
# Trees of those who only look. No task is called so: keys hold no underscore.
_PLANNERS_TREE = "of_planner"
_REVIEWERS_TREE = "of_reviewer_{key}_{round}"
_CLERK = Who(provider=CLERK, why="it needs no judgement")


@dataclass(frozen=True)
class Next:
    """A stage to begin. `lane` names the conversation it is held in: stages of one lane go on in one session. `prompt`:
    what is asked; for the clerk, `call` says what to do. `tree` and `at`: the files it works on, and the commit they
    begin with."""

    kind: StageKind
    lane: str
    who: Who
    prompt: str = ""
    task: str = ""
    round: int = 0
    call: dict[str, Any] = field(default_factory=dict)
    tree: str | None = None
    at: str | None = None
    planned: dict[str, Any] | None = None  # the task it is about, as it was planned


@dataclass(frozen=True)
class End:
    status: Literal["completed", "failed"]
    outcome: str
    result: dict[str, Any] | None = None


Decision = list[Next] | End


def decide(job: Job) -> Decision:
    """An empty list: what runs is waited for."""
    if (broken := next((one for one in job.stages if one.status in ("failed", "cancelled")), None)) is not None:
        return End(
            "failed",
            f"{_named(broken)} {'was cancelled' if broken.status == 'cancelled' else 'failed'}: {broken.error}",
        )
    prepared = job.last("prepare")
    if prepared is None:
        return [Next("prepare", "clerk", _CLERK, call={"tool": "take_in"})]
    if prepared.status == "running":
        return []
    if not prepared.output.get("ok"):
        return End("failed", f"the repository could not be taken in: {prepared.output.get('why')}")
    planned = job.last("plan")
    if planned is None:
        prompt = briefing.plan(job, again=job.missed.get(("plan", "", 0), 0) > 0)
        return [Next("plan", "plan", job.spec.planner, prompt, tree=_PLANNERS_TREE, at=job.base)]
    if planned.status == "running":
        return []
    return _tasks(job)


def _tasks(job: Job) -> Decision:
    begun: list[Next] = []
    ready = True
    for task in job.tasks:
        step = _task(job, task.key)
        if isinstance(step, End):
            return step
        if isinstance(step, Next):
            begun.append(step)
        ready &= step == "ready"
    return _whole(job) if ready else begun


def _task(job: Job, key: str) -> Next | End | Literal["ready", "runs"]:
    """What one task needs next."""
    mine, planned = job.of_task(key), job.planned(key)
    if not mine:
        prompt = briefing.build(job, key)
        return Next("build", f"build:{key}", job.builder(key), prompt, key, tree=key, at=job.base, planned=planned)
    last = mine[-1]
    if last.status == "running":
        return "runs"
    if last.kind in ("build", "fix"):
        call = {"tool": "check_work", "since": job.since(key), "check": job.check}
        return Next("check", f"check:{key}", _CLERK, task=key, round=last.round, call=call, planned=planned)
    if last.kind == "check":
        if not last.output.get("ok"):
            return _fix(job, key, last)
        again = job.missed.get(("review", key, last.round), 0) > 0
        return Next(
            "review",
            f"review:{key}",
            job.reviewer(key),
            briefing.review(job, key, again=again),
            key,
            last.round,
            tree=_REVIEWERS_TREE.format(key=key, round=last.round),
            at=str(last.output["commit"]),
            planned=planned,
        )
    review = job.review_of(key)
    assert review is not None
    if review.verdict == "request_changes":
        return _fix(job, key, last)
    merge = job.trouble_in_merging(key)
    return "ready" if merge is None else _fix(job, key, merge)


def _fix(job: Job, key: str, because: Seen) -> Next | End:
    """Back to whoever built it; until it has failed too often."""
    failures = job.failures(key)
    if failures >= job.spec.tries:
        return End("failed", briefing.gave_up(job, key, because, failures))
    round_ = max(one.round for one in job.of_task(key)) + 1
    bring = because.output.get("onto") if because.kind == "merge" else None
    call = {"bring": str(bring)} if bring else {}
    prompt = briefing.fix(job, key, because)
    return Next(
        "fix",
        f"build:{key}",
        job.builder(key),
        prompt,
        key,
        round_,
        call=call,
        tree=key,
        at=job.base,
        planned=job.planned(key),
    )


def _whole(job: Job) -> Decision:
    """All tasks are done and reviewed: put them together, ask, and hand the result over."""
    merge, publish = job.last("merge"), job.last("publish")
    if publish is not None and publish.status == "running":
        return []
    if publish is not None and publish.output.get("ok"):
        return End("completed", _done(publish), result_of(job))
    newest = max((one.number for one in job.stages if one.task), default=0)
    if publish is not None and publish.output.get("moved"):
        newest = max(newest, publish.number)
    if merge is None or merge.number < newest:
        return _merge(job)
    if merge.status == "running":
        return []
    if publish is not None and publish.number > merge.number:
        return End("failed", f"the result was not handed over: {publish.output.get('why')}")
    return [_publish(job, merge)]


def _merge(job: Job) -> Decision:
    rounds = sum(one.kind == "merge" for one in job.stages)
    if rounds >= job.spec.tries * (len(job.tasks) + 1):
        return End("failed", f"the work was put together {rounds} times and never held; see the last merge")
    call = {
        "tool": "merge_work",
        "onto": job.onto,
        "work": [{"task": task.key, "commit": _commit(job, task.key)} for task in job.tasks],
        "check": job.check,
        # What was checked as it is need not be checked again.
        "checked": sorted(
            {str(one.output["tree"]) for one in job.stages if one.kind == "check" and one.output.get("ok")}
        ),
        "summary": summary_of(job),
    }
    return [Next("merge", "merge", _CLERK, round=rounds, call=call)]


def _publish(job: Job, merge: Seen) -> Next:
    call = {
        "tool": "publish",
        "asks": _asks(job, merge),
        "merge": {name: merge.output[name] for name in ("commit", "onto", "reasons")},
        "base_branch": job.base_branch,
        "summary": summary_of(job),
    }
    return Next("publish", "publish", _CLERK, round=merge.round, call=call)


def _asks(job: Job, merge: Seen) -> list[dict[str, Any]]:
    """What must be approved before, each by itself, and each for this very commit."""
    target, output = job.spec.target, merge.output
    files = _listed([briefing.file_line(one) for one in output["files"]])
    where = {"repository": job.spec.repository, "branch": target.branch, "commit": output["commit"], "files": files}
    return [
        {"tool": "ask_approval", "arguments": {"category": one["category"], "why": one["words"], **where}}
        for one in output["reasons"]
    ]


def _listed(lines: list[str]) -> list[str]:
    """As many as a card has room for."""
    kept, room = [], _NAMED_CHARACTERS
    for line in lines[:_NAMED]:
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return kept if len(kept) == len(lines) else [*kept, "and more"]


def _commit(job: Job, key: str) -> str:
    checked = job.last("check", task=key)
    assert checked is not None
    return str(checked.output["commit"])


def _done(publish: Seen) -> str:
    if url := publish.output.get("url"):
        return f"pull request {url}"
    return f"branch {publish.output['branch']} at {str(publish.output['commit'])[:12]}"


def _named(stage: Seen) -> str:
    """A stage as people would call it."""
    words = DOING[stage.kind]
    return f"{words} {stage.task}" if stage.task else words
