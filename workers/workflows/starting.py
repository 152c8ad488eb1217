"""Beginning a foreman's workflow: what is wanted is checked while somebody is there to be told, roles are given out,
the row is written, and the engine is rung for."""

from dataclasses import dataclass
from pathlib import Path

from workers.house import House
from workers.workflows.spec import Spec


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
    minutes: float = 240.0
    agent: str = "foreman"


@dataclass(frozen=True)
class Started:
    """`notes`: what whoever asked should know, such as changes that are not committed and so not seen."""

    workflow_id: str
    spec: Spec
    notes: tuple[str, ...] = ()


async def start(house: House, by: str, wanted: Wanted) -> Started:
    """RefusedError: it cannot be done as it is wanted, and nothing was begun."""
    raise NotImplementedError
