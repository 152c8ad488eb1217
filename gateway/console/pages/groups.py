"""Agents and how each of them runs: a list, and a form for one. What is wrong with a form is said beside the field."""

from collections import defaultdict
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath

from adapters.errors import AdapterError
from gateway.console.forms.groups import FIELDS, GroupForm, field_of
from gateway.console.responses import Notice, show
from gateway.console.visitors import Guest, needs
from gateway.figures import budget_words
from gateway.http.belongings import agent_of
from gateway.http.dependencies import HouseDep
from models.base import AnyRow
from models.groups import agent_groups, all_wirings
from workers.access import Act
from workers.house import House
from workers.operations.group_settings import GroupSettings, GroupSettingsError
from workers.operations.groups import add_group, update_group

Folder = Annotated[str, InPath(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")]


router = APIRouter()


async def editor(
    house: House,
    guest: Guest,
    form: GroupForm,
    row: AnyRow | None,
    wrong: dict[str, str] | None = None,
    notice: Notice | None = None,
    **more: Any,
) -> Response:
    """`row`: the agent; None for one that is to be made."""
    wirings = await house.db.read(all_wirings) if row is not None else []
    values: dict[str, Any] = {
        "form": form,
        "wrong": defaultdict(str, wrong or {}),
        "row": row,
        "wirings": [one for one in wirings if row is not None and one.agent_group_id == row.id],
        "providers": [("", f"{house.settings.default_provider} (the default)")]
        + [(name, name) for name in house.registry.providers.names],
        "may": guest.reach.everything and guest.can("admin"),
        "default_model": house.settings.default_model,
    }
    return show(guest, "group.html", notice=notice, status=422 if wrong else 200, **values, **more)


@router.get("/groups")
async def list_groups(house: HouseDep, guest: Annotated[Guest, needs("read", "some")]) -> Response:
    rows = [row for row in await house.db.read(agent_groups) if guest.reach.includes(row.id)]
    agents = [(row, GroupSettings.of_row(row)) for row in rows]
    default = house.settings.default_provider
    return show(guest, "groups.html", agents=agents, default_provider=default, budget_words=budget_words)


@router.get("/groups/new")
async def new_group(house: HouseDep, guest: Annotated[Guest, needs("admin", "all")]) -> Response:
    return await editor(house, guest, GroupForm(), None)


@router.post("/groups/new")
async def make_group(house: HouseDep, request: Request, guest: Annotated[Guest, needs("admin", "all")]) -> Response:
    form = await _read(request)
    try:
        await add_group(house, guest.user_id, form.folder, form.changes(GroupSettings("")))
    except (GroupSettingsError, AdapterError) as error:
        return await editor(house, guest, form, None, {field_of(error): str(error)})
    address = f"/console/groups/{form.folder}"
    row = await house.db.read(lambda conn: agent_of(conn, guest.user_id, form.folder))
    notice = Notice(f"{form.folder} is there. Wire it to a place, and it answers.")
    return await editor(house, guest, GroupForm.of(row), row, notice=notice, headers={"HX-Push-Url": address})


@router.get("/groups/{folder}")
async def show_group(house: HouseDep, folder: Folder, guest: Annotated[Guest, needs("read", "some")]) -> Response:
    row = await house.db.read(lambda conn: agent_of(conn, guest.user_id, folder))
    return await editor(house, guest, GroupForm.of(row), row)


@router.post("/groups/{folder}")
async def change_group(
    house: HouseDep, folder: Folder, request: Request, guest: Annotated[Guest, needs("admin", "some")]
) -> Response:
    row = await house.db.read(lambda conn: agent_of(conn, guest.user_id, folder, Act.CONFIGURE))
    form = await _read(request)
    try:
        changes = form.changes(GroupSettings.of_row(row))
        if changes.anything:
            await update_group(house, guest.user_id, row.id, changes)
    except (GroupSettingsError, AdapterError) as error:
        return await editor(house, guest, form, row, {field_of(error): str(error)})
    row = await house.db.read(lambda conn: agent_of(conn, guest.user_id, folder))
    said = "Saved: its next turn goes by it." if changes.anything else "Nothing was changed."
    return await editor(house, guest, GroupForm.of(row), row, notice=Notice(said))


async def _read(request: Request) -> GroupForm:
    given = await request.form()
    return GroupForm(**{name: str(given[name]) for name in FIELDS if name in given})
