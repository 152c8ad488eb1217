"""The first page: how the fleet stands now, fetched again every two seconds. For those who oversee nothing, what is
theirs. Also the numbers beside the places in the menu."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.responses import show
from gateway.console.visitors import SIGNED_IN, Guest, needs
from gateway.http.dependencies import HouseDep, ListsDep
from gateway.queue_states import Lists, QueueState, queue_states
from gateway.session_words import turn_standing
from models.base import AnyRow
from models.overview import Overview, look_over
from models.pace import turns_per_hour
from workers.consent.waiting import approvals_for, questions_for
from workers.house import House

router = APIRouter()


async def now_of(house: House, lists: Lists, guest: Guest) -> dict[str, Any]:
    fleet = guest.reach.everything
    provider, alive = house.settings.default_provider, house.settings.alive_seconds
    seen = await house.db.read(
        lambda conn: look_over(conn, guest.reach.where, default_provider=provider, alive_seconds=alive, processes=fleet)
    )
    queues = queue_states(seen, await lists.look(), lists.names) if fleet else []
    return {
        "seen": seen,
        "turn_standing": turn_standing,
        "due": sum(one.messages + one.tasks for one in seen.waiting),
        "oldest": min((one.oldest for one in seen.waiting if one.oldest), default=None),
        "people": sum(1 for row in seen.turns if row.status == "parked"),
        "queues": [one for one in queues if not one.stray and _in_use(one)],
        "strays": [one for one in queues if one.stray],
        "workers": _workers(seen),
    }


async def pace_of(house: House, guest: Guest) -> dict[str, Any]:
    return {"pace": await house.db.read(lambda conn: turns_per_hour(conn, guest.reach.where))}


@router.get("/")
async def show_overview(house: HouseDep, lists: ListsDep, guest: Annotated[Guest, SIGNED_IN]) -> Response:
    if guest.sees == "own" or not guest.can("read"):
        return show(guest, "ashore.html")
    return show(guest, "overview.html", **await now_of(house, lists, guest), **await pace_of(house, guest))


@router.get("/overview/now")
async def show_now(house: HouseDep, lists: ListsDep, guest: Annotated[Guest, needs("read", "some")]) -> Response:
    return show(guest, "overview_now.html", **await now_of(house, lists, guest))


@router.get("/overview/pace")
async def show_pace(house: HouseDep, guest: Annotated[Guest, needs("read", "some")]) -> Response:
    return show(guest, "overview_pace.html", **await pace_of(house, guest))


@router.get("/counts")
async def show_counts(house: HouseDep, guest: Annotated[Guest, SIGNED_IN]) -> Response:
    async def count(conn: AsyncConnection) -> int:
        return len(await approvals_for(conn, guest.user_id)) + len(await questions_for(conn, guest.user_id))

    waiting = await house.db.read(count) if guest.can("decide") else 0
    return show(guest, "counts.html", waiting=waiting)


def _in_use(one: QueueState) -> bool:
    """Somebody reads it, or something waits in it: so the list stays as it is while they work."""
    return bool(one.workers or one.due or one.in_broker)


def _workers(seen: Overview) -> list[AnyRow]:
    """Those who work first, then those who have stopped saying that they live."""
    return sorted(seen.processes, key=lambda row: (not row.alive, row.kind != "worker", row.name))
