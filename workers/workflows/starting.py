"""Beginning a foreman's workflow: what is wanted is checked while somebody is there to be told, roles are given out,
the row is written, and the engine is rung for."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import GitError
from adapters.git.inspecting import Inspected, inspect
from adapters.git.names import check_branch
from adapters.providers.keys import NO_KEY_NEEDED
from models.audit import note
from models.base import new_id, storable
from models.groups import AgentGroup, find_agent_group
from models.lookup import short
from models.upsert import insert_ignoring
from models.workflows import put_workflow
from workers.failover import Choice
from workers.house import House
from workers.refusals import RefusedError
from workers.workflows.candidates import candidates
from workers.workflows.pull_requests import check_pull_request
from workers.workflows.roles import NO_WORKERS, Roles, Wishes, choose
from workers.workflows.spec import FOREMAN, MAX_GOAL, MAX_LINE, MAX_TASKS, MAX_TRIES, MINUTES, Spec, Target, Who

MAX_MINUTES: Final = 60.0 * 24 * 30
MAX_BUDGET: Final = 1_000_000.0
_SLUG: Final = 40


@dataclass(frozen=True)
class Wanted:
    """What somebody asks a foreman for. Providers are `name` or `name:model`; without a wish, fitness chooses.
    `branch`: where the result goes in the repository; None: a new one, named after the goal. With `pull_request` it is
    pushed to `remote` and a pull request into `into` is opened. `agent`: whose policy, budget and people it has."""

    repository: Path
    goal: str
    base: str | None = None
    check: str | None = None
    planner: str | None = None
    builders: tuple[str, ...] = ()
    reviewer: str | None = None
    branch: str | None = None
    pull_request: bool = False
    remote: str = "origin"
    into: str | None = None
    tries: int = 3
    most_tasks: int = 4
    budget_usd: float | None = None
    minutes: float = MINUTES
    agent: str = FOREMAN


@dataclass(frozen=True)
class Started:
    """`commit`: what it begins from. `notes`: what whoever asked should know, such as changes that are not committed
    and so not seen."""

    workflow_id: str
    spec: Spec
    commit: str
    notes: tuple[str, ...] = ()


async def start(house: House, by: str, wanted: Wanted) -> Started:
    """RefusedError: it cannot be done as it is wanted, and nothing was begun."""
    _check(wanted)
    try:
        found = await inspect(wanted.repository, wanted.base)
    except GitError as error:
        raise RefusedError(str(error)) from None
    workflow_id = new_id()
    target = await _target(wanted, found, workflow_id)
    wishes = Wishes(wanted.planner, wanted.builders, wanted.reviewer)
    roles = choose(await candidates(house), wishes, wanted.most_tasks)
    _check_real(roles, wishes)
    spec = Spec(
        repository=str(found.path),
        base=wanted.base,
        check=wanted.check,
        planner=_who(roles, roles.planner, "planner"),
        builders=tuple(_who(roles, builder, "builder") for builder in roles.builders),
        reviewers={
            Choice.parse(builder).provider: _who(roles, reviewer, f"reviewer of {builder}")
            for builder, reviewer in roles.reviewers.items()
        },
        target=target,
        tries=wanted.tries,
        most_tasks=wanted.most_tasks,
        notes=tuple(note for note in roles.notes if note != NO_WORKERS),  # this one passes
    )

    async def work(conn: AsyncConnection) -> None:
        agent_group_id = await _agent(conn, by, wanted.agent)
        row = {"goal": wanted.goal.strip(), "spec": spec.model_dump(mode="json"), "budget_usd": wanted.budget_usd}
        await put_workflow(
            conn,
            seconds=wanted.minutes * 60,
            id=workflow_id,
            kind=FOREMAN,
            agent_group_id=agent_group_id,
            started_by=by,
            **row,
        )
        about = {"repository": spec.repository, "branch": target.branch}
        await note(conn, by, "workflow.start", workflow_id, agent_group_id=agent_group_id, **about)

    await house.db.transact(work)
    house.bells.advance(workflow_id)
    return Started(workflow_id, spec, found.commit, (*found.notes, *roles.notes))


def _check(wanted: Wanted) -> None:
    check_minutes(wanted.minutes)
    goal = wanted.goal.strip()
    if not goal:
        raise RefusedError("say what is to be reached: --goal “…”")
    limits = {
        "tries": (wanted.tries, 1, MAX_TRIES),
        "tasks": (wanted.most_tasks, 1, MAX_TASKS),
        "budget": (1.0 if wanted.budget_usd is None else wanted.budget_usd, 0.01, MAX_BUDGET),
    }
    for name, (value, least, most) in limits.items():
        _check_between(name, value, least, most)
    texts = {
        "--repo": str(wanted.repository),
        "--goal": goal,
        "--base": wanted.base,
        "--check": wanted.check,
        "--branch": wanted.branch,
        "--remote": wanted.remote,
        "--into": wanted.into,
        "--agent": wanted.agent,
    }
    for name, text in texts.items():
        _check_text(name, text, MAX_GOAL if name == "--goal" else MAX_LINE)


def check_minutes(minutes: float) -> None:
    _check_between("minutes", minutes, 1, MAX_MINUTES)


def _check_between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # so that what is no number is refused as well
        raise RefusedError(f"{name}: {value:g} is not between {least:g} and {most:g}")


def _check_text(name: str, text: str | None, most: int) -> None:
    """What rows cannot hold is not what would be run."""
    if text is None:
        return
    if not text.strip():
        raise RefusedError(f"{name}: it is empty; leave it out, or say something")
    if len(text) > most:
        raise RefusedError(f"{name}: it has {len(text):,} characters; at most {most:,} are taken")
    if storable(text) != text:
        raise RefusedError(f"{name}: it holds a NUL, or bytes that are no UTF-8; leave them out")


def _check_real(roles: Roles, wishes: Wishes) -> None:
    """A script in the place of an agent is for whoever wants just that."""
    given = {roles.planner, *roles.builders, *roles.reviewers.values()}
    if NO_KEY_NEEDED in given and NO_KEY_NEEDED not in {wishes.planner, *wishes.builders, wishes.reviewer}:
        raise RefusedError(
            f"no agent is ready to do this: {'; '.join(roles.notes)}. Set a key (longshore providers says which), "
            "install a CLI agent (make clis), or name who is to do it with --builders and --reviewer"
        )


async def _target(wanted: Wanted, found: Inspected, workflow_id: str) -> Target:
    branch = wanted.branch or f"longshore/{_slug(wanted.goal)}-{short(workflow_id)}"
    _check_branches(branch, wanted.into, found)
    if branch in found.branches and branch != found.branch:
        raise RefusedError(
            f"there is a branch {branch!r} already: name another with --branch, or begin from it with --base {branch}"
        )
    if not wanted.pull_request:
        if wanted.into is not None:
            raise RefusedError("--into is what a pull request asks to be merged into: it needs --pull-request")
        return Target(branch=branch)
    if branch == found.branch:
        raise RefusedError(f"a pull request needs a branch of its own, not {branch!r}: leave --branch out")
    into = wanted.into or found.branch
    if into is None:
        raise RefusedError("no branch is checked out: say with --into what the pull request is for")
    await check_pull_request(found.path, wanted.remote)
    return Target(branch=branch, pull_request=True, remote=wanted.remote, into=into)


def _check_branches(branch: str, into: str | None, found: Inspected) -> None:
    """What git would refuse in the end, when all the work is done and paid for."""
    try:
        for name in (branch, into):
            if name is not None:
                check_branch(name)
    except GitError as error:
        raise RefusedError(str(error)) from None
    for other in sorted(found.branches):
        if branch.startswith(f"{other}/") or other.startswith(f"{branch}/"):
            raise RefusedError(
                f"there is a branch {other!r}, beside which git takes no {branch!r}: name another with --branch"
            )


def _slug(goal: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", goal.lower()).strip("-")
    return words[:_SLUG].rstrip("-") or "work"


def _who(roles: Roles, named: str, title: str) -> Who:
    choice = Choice.parse(named)
    begins = f"{named}: {title}; "
    why = next((reason.removeprefix(begins) for reason in roles.reasons if reason.startswith(begins)), "")
    return Who(provider=choice.provider, model=choice.model, why=why)


async def _agent(conn: AsyncConnection, by: str, handle: str) -> str:
    """Whose name it is done in. The foreman's own is made when it is first needed."""
    found = await find_agent_group(conn, handle)
    if found is not None and not found.folder.startswith("."):
        return str(found.id)
    if handle != FOREMAN:
        raise RefusedError(f"there is no agent {handle!r}; see: longshore groups")
    group_id = new_id()
    await insert_ignoring(conn, AgentGroup, id=group_id, name="Foreman", folder=FOREMAN, config={})
    await note(conn, by, "group.add", FOREMAN, agent_group_id=group_id)
    return group_id
