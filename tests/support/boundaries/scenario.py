"""What a scenario is: a story that comes to the same end however often its process is killed. `runner` prepares a
database for it and gathers what it came to; `worker` runs it, in a process that may die anywhere."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import update

from adapters.registry import Registry
from models import MessageOut, Session, User, UserDm, UserRole, Workflow, now
from models.base import new_id
from models.groups import ensure_messaging_group
from tests.support.boundaries.ledger import Evidence
from tests.support.boundaries.marks import Case, Marks, place
from tests.support.fleet import Fleet

CHANNEL, OWNER = "fake", "olga"
# Many times what a story needs. If it does not come to rest the ledger says what is left.
MOST_ROUNDS = 20
E = TypeVar("E", bound=Evidence)


class Scenario(ABC, Generic[E]):
    """Its module is `scenario_` and `name`. `faults`: ways to break the product, to see that the ledger finds them out.
    `settings` and `environment` are the workers'."""

    name: ClassVar[str]
    faults: ClassVar[Mapping[str, Callable[[], None]]] = {}
    settings: ClassVar[Mapping[str, Any]] = {}
    warm_ups: ClassVar[Sequence[Mapping[str, str]]] = ({},)  # options of stories that are run once before all others
    evidence: type[E]
    environment: Mapping[str, str] = {}

    # In the test's process.

    @abstractmethod
    async def prepare(self, fleet: Fleet, case: Case) -> None:
        """What stands in the database and in the folder before the story begins."""

    async def after_death(self, fleet: Fleet, case: Case) -> None:
        """What happens while nobody works."""

    def branches(self, case: Case) -> Mapping[str, str]:
        """Those of the story's repository, if it has one, and where they are."""
        return {}

    def is_sure(self, boundary: str) -> bool:
        """Whether every process that comes so far passes it."""
        return True

    @abstractmethod
    async def gather(self, found: E, fleet: Fleet, case: Case) -> None:
        """What the story came to, besides rows."""

    # In the worker's.

    @abstractmethod
    def registry(self, case: Case, mark: Marks) -> Registry: ...

    def hook(self, mark: Marks) -> None:
        """Mark more than every process has: commits, tools, deliveries. Not done where one warms up."""

    @abstractmethod
    async def run(self, fleet: Fleet, case: Case) -> None:
        """The story, from wherever an earlier process has left it, to its end."""


AnyScenario = Scenario[Any]


async def add_owner(fleet: Fleet) -> None:
    """Somebody to ask for approvals."""
    user = f"{CHANNEL}:{OWNER}"
    chat = await fleet.db.transact(lambda conn: ensure_messaging_group(conn, CHANNEL, OWNER))
    await fleet.insert(User, {"id": user, "kind": CHANNEL})
    await fleet.insert(UserRole, {"id": new_id(), "user_id": user, "role": "owner"})
    await fleet.insert(UserDm, {"user_id": user, "channel_type": CHANNEL, "messaging_group_id": chat})


async def run_to_end(
    fleet: Fleet,
    answer_bells: Callable[[Fleet], Awaitable[None]],
    decide: Callable[[Fleet], Awaitable[bool]],
    place_of_sweep: Callable[[Fleet], Awaitable[str]] | None = None,
) -> None:
    """Until nothing rings, nobody is asked and a sweep finds nothing, an hour later. `decide` says whether somebody was
    asked."""
    for _ in range(MOST_ROUNDS):
        await answer_bells(fleet)
        if await decide(fleet):
            continue
        await pass_time(fleet)
        with place(await place_of_sweep(fleet) if place_of_sweep is not None else ""):
            found = await fleet.sweep()
        if not (found.wakes or found.deliveries or found.doubtful or found.workflows):
            break


async def pass_time(fleet: Fleet) -> None:
    """An hour: leases, claims and rests run out, rings count as lost. Whatever transaction a dead process had under way
    has its session's row locked until it is over."""
    past = now(-3600)
    async with fleet.db._connection(read_only=False) as conn:  # the clock's doing, and no boundary of ours
        for column in (Session.lease_expires_at, Session.resume_after, Session.woken_at, MessageOut.claim_expires_at):
            await conn.execute(update(column.class_).where(column.is_not(None)).values({column: past}))
        await conn.execute(update(MessageOut).values(rung_at=past))
        await conn.execute(update(Workflow).values(rung_at=past))
