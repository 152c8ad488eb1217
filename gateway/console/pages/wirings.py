"""Which agent listens in which place, and to what: a list, and a form for one."""

from collections import defaultdict
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response

from adapters.errors import AdapterError
from gateway.console.forms.wirings import CHOICES, FIELDS, WiringForm, field_of
from gateway.console.responses import Notice, show
from gateway.console.visitors import Guest, needs
from gateway.http.api.forms import RowId
from gateway.http.api.wirings import NONE
from gateway.http.belongings import agent_of, wiring_of
from gateway.http.dependencies import HouseDep
from gateway.wiring_words import wiring_words
from models.base import AnyRow, storable
from models.groups import agent_groups, all_wirings
from workers.access import Act
from workers.house import House
from workers.operations.wirings import put_wiring, unwire
from workers.refusals import RefusedError

router = APIRouter()


async def page(house: House, guest: Guest, notice: Notice | None = None, **more: Any) -> Response:
    rows = [row for row in await house.db.read(all_wirings) if guest.reach.includes(row.agent_group_id)]
    return show(guest, "wirings.html", rows=rows, in_words=wiring_words, notice=notice, **more)


async def editor(
    house: House, guest: Guest, form: WiringForm, row: AnyRow | None, wrong: dict[str, str] | None = None
) -> Response:
    groups = [group.folder for group in await house.db.read(agent_groups) if guest.reach.includes(group.id)]
    values: dict[str, Any] = {
        "form": form,
        "row": row,
        "wrong": defaultdict(str, wrong or {}),
        "agents": [(folder, folder) for folder in groups],
        "channels": [(name, name) for name in house.registry.channels.names],
        "choices": CHOICES,
        "may": guest.reach.everything and guest.can("admin"),
    }
    return show(guest, "wiring.html", status=422 if wrong else 200, **values)


async def save(house: House, guest: Guest, form: WiringForm, row: AnyRow | None) -> Response:
    await house.db.read(lambda conn: agent_of(conn, guest.user_id, form.agent, Act.CONFIGURE))
    try:
        how = form.listening()
        await put_wiring(house, guest.user_id, form.agent, form.channel, form.chat, how, form.policy())
    except (RefusedError, AdapterError) as error:
        return await editor(house, guest, form, row, {field_of(error): str(error)})
    notice = Notice(f"{form.agent} listens on {form.channel} {form.chat}.")
    return await page(house, guest, notice, headers={"HX-Push-Url": "/console/wirings"})


@router.get("/wirings")
async def list_wirings(house: HouseDep, guest: Annotated[Guest, needs("read", "some")]) -> Response:
    return await page(house, guest)


@router.get("/wirings/new")
async def new_wiring(
    house: HouseDep, guest: Annotated[Guest, needs("admin", "all")], agent: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    return await editor(house, guest, WiringForm(agent=agent), None)


@router.post("/wirings/new")
async def make_wiring(house: HouseDep, request: Request, guest: Annotated[Guest, needs("admin", "all")]) -> Response:
    return await save(house, guest, await _read(request), None)


@router.get("/wirings/{wiring_id}")
async def show_wiring(house: HouseDep, wiring_id: RowId, guest: Annotated[Guest, needs("read", "some")]) -> Response:
    row = await house.db.read(lambda conn: wiring_of(conn, guest.user_id, wiring_id))
    return await editor(house, guest, WiringForm.of(row), row)


@router.post("/wirings/{wiring_id}")
async def change_wiring(
    house: HouseDep, wiring_id: RowId, request: Request, guest: Annotated[Guest, needs("admin", "all")]
) -> Response:
    row = await house.db.read(lambda conn: wiring_of(conn, guest.user_id, wiring_id, Act.CONFIGURE))
    form = await _read(request)
    # Which agent, and where, is what a wiring is: another one is another wiring.
    return await save(house, guest, form.at(row), row)


@router.post("/wirings/{wiring_id}/remove")
async def remove(house: HouseDep, wiring_id: RowId, guest: Annotated[Guest, needs("admin", "all")]) -> Response:
    row = await house.db.read(lambda conn: wiring_of(conn, guest.user_id, wiring_id, Act.CONFIGURE))
    if not await unwire(house, guest.user_id, row.agent_group_id, row.channel_type, row.platform_id):
        raise HTTPException(404, NONE)
    said = f"{row.folder} no longer listens on {row.channel_type} {row.platform_id}. What was said there stays."
    return await page(house, guest, Notice(said), headers={"HX-Push-Url": "/console/wirings"})


async def _read(request: Request) -> WiringForm:
    given = await request.form()
    return WiringForm(**{name: storable(str(given[name])) for name in FIELDS if name in given})
