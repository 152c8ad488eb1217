"""`/v1/groups`: agents and how each of them runs. Secrets among their options are set here and never shown."""

from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gateway.http.api.forms import Page, sensible
from gateway.http.belongings import agent_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep
from gateway.http.problems import documented
from models.base import AnyRow
from models.groups import agent_groups
from workers.access import Act
from workers.operations.group_settings import DEFAULT, Changes, GroupSettings, OptionValue, without_secrets
from workers.operations.groups import add_group, update_group

_PRINTABLE: Final = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$"  # and not only blanks
FolderName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")]
Folder = Annotated[str, InPath(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$", description="the agent's folder")]
OfAgent = Annotated[FolderName | None, Query(description="only of this agent, by its folder")]
Name = Annotated[str, StringConstraints(max_length=200, pattern=_PRINTABLE)]
ShortName = Annotated[str, StringConstraints(max_length=100, pattern=_PRINTABLE)]
Usd = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class Budget(BaseModel):
    """US dollars per day (UTC); null: no limit."""

    model_config = ConfigDict(extra="forbid")

    daily_usd: Usd | None = None
    user_daily_usd: Usd | None = Field(None, description="the same for each person")


class GroupView(BaseModel):
    agent: str = Field(description="its folder, by which it is named everywhere")
    name: str
    provider: str | None = Field(description="null: the fleet's default")
    model: str | None = Field(description="null: the fleet's default, else the provider's own")
    fallbacks: list[str] = Field(description="PROVIDER or PROVIDER:MODEL, in the order in which they are tried")
    budget: Budget
    options: dict[str, Any] = Field(description="the provider's own; `(set)` stands for a secret")
    policy: dict[str, Any] = Field(description="what it may do (docs/tools.md); empty: the default")
    created_at: datetime


class GroupChange(BaseModel):
    """Only what is named changes; null goes back to the default, and takes an option or a limit away."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    provider: ShortName | None = None
    model: Name | None = None
    fallbacks: Annotated[list[Name], Field(max_length=20)] | None = None
    budget: Budget | None = None
    options: dict[ShortName, Any] | None = None
    policy: dict[str, Any] | None = None

    def changes(self) -> Changes:
        named = self.model_fields_set
        budget = self.budget or Budget(daily_usd=None, user_daily_usd=None)
        return Changes(
            name=self.name,
            provider=(self.provider or DEFAULT) if "provider" in named else None,
            model=(self.model or DEFAULT) if "model" in named else None,
            fallbacks=tuple(self.fallbacks or ()) if "fallbacks" in named else None,
            budget=budget.model_dump(include=budget.model_fields_set) if "budget" in named else {},
            options={
                name: None if value is None else OptionValue(value) for name, value in (self.options or {}).items()
            },
            policy=(self.policy or {}) if "policy" in named else None,
        )


class NewGroup(GroupChange):
    """What is not named is the default."""

    agent: FolderName


router = APIRouter(tags=["agents"])


@router.get("/groups")
async def list_groups(house: HouseDep, door: DoorDep, caller: Annotated[Caller, needs("read")]) -> Page[GroupView]:
    """The agents that the caller may look at, by folder."""
    reach, rows = await door.reach(caller), await house.db.read(agent_groups)
    return Page(items=[group_view(row) for row in rows if reach.includes(row.id)])


@router.post("/groups", status_code=201, responses=documented(409))
async def add_agent(
    house: HouseDep, door: DoorDep, given: NewGroup, caller: Annotated[Caller, needs("admin")]
) -> GroupView:
    """Make an agent. For owners and global admins. 409: its folder is taken."""
    await door.see_fleet(caller)
    with sensible():
        await add_group(house, caller.user_id, given.agent, given.changes())
    return group_view(await house.db.read(lambda conn: agent_of(conn, caller.user_id, given.agent)))


@router.get("/groups/{folder}", responses=documented(404))
async def show_group(house: HouseDep, folder: Folder, caller: Annotated[Caller, needs("read")]) -> GroupView:
    """How an agent is set up."""
    return group_view(await house.db.read(lambda conn: agent_of(conn, caller.user_id, folder)))


@router.patch("/groups/{folder}", responses=documented(404))
async def change_group(
    house: HouseDep, folder: Folder, given: GroupChange, caller: Annotated[Caller, needs("admin")]
) -> GroupView:
    """Change how an agent runs; its next turn goes by it. For owners and global admins."""
    row = await house.db.read(lambda conn: agent_of(conn, caller.user_id, folder, Act.CONFIGURE))
    changes = given.changes()
    if changes.anything:
        with sensible():
            await update_group(house, caller.user_id, row.id, changes)
    return group_view(await house.db.read(lambda conn: agent_of(conn, caller.user_id, folder)))


def group_view(row: AnyRow) -> GroupView:
    settings = GroupSettings.of_row(row)
    return GroupView(
        agent=row.folder,
        name=settings.name,
        provider=settings.provider,
        model=settings.model,
        fallbacks=settings.fallbacks,
        budget=Budget.model_construct(
            daily_usd=settings.budget.get("daily_usd"), user_daily_usd=settings.budget.get("user_daily_usd")
        ),
        options=without_secrets(settings.options),
        policy=without_secrets(settings.policy),
        created_at=row.created_at,
    )
