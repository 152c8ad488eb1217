"""What a foreman's workflow has come to, written for people: the text of its merge and of its pull request, and the
result on its row."""

from typing import Any, Final

from workers.workflows.job import Job

MAX_TITLE: Final = 72


def title_of(job: Job) -> str:
    """One line, of a length that git and GitHub show whole."""
    line = job.tasks[0].title if len(job.tasks) == 1 else " ".join(job.goal.split())
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1].rstrip()}…"


def summary_of(job: Job) -> str:
    """Title, then what was done, by whom, and how it was checked; Markdown."""
    assert job.plan is not None
    title, goal = title_of(job), job.goal.strip()
    lines = [title, "", *(() if goal == title else (f"Goal: {goal}", "")), job.plan.summary.strip(), ""]
    for task in job.tasks:
        lines += [f"- **{task.title}**", *_about(job, task.key)]
    lines += ["", f"Checked with `{job.check}`."]
    lines += [f"Note: {note}" for note in job.spec.notes]
    return "\n".join(lines).strip() + "\n"


def _about(job: Job, key: str) -> list[str]:
    review, rounds = job.review_of(key), max((one.round for one in job.of_task(key)), default=0)
    built = f"  built by {job.builder(key).provider}, reviewed by {job.reviewer(key).provider}"
    lines = [f"{built}, {rounds} round{'s' * (rounds != 1)} of fixes" if rounds else built]
    if review is not None:
        lines += [f"  {review.summary.strip()}", *(f"  - minor: {one.title}" for one in review.findings)]
    return lines


def result_of(job: Job) -> dict[str, Any]:
    published, merge = job.last("publish"), job.last("merge")
    assert published is not None
    assert merge is not None
    kept = {name: published.output.get(name) for name in ("branch", "commit", "url", "number")}
    files = [one["path"] for one in merge.output.get("files", [])]
    return {name: value for name, value in kept.items() if value is not None} | {
        "summary": summary_of(job),
        "files": files,
    }
