"""What AI backends there are, how they are, and what is missing. Asking all of them takes seconds, since some are
programs that must be started: the page comes at once, and what they say follows."""

from typing import Annotated, Any

from fastapi import APIRouter, Response

from gateway.console.responses import show
from gateway.console.visitors import Guest, needs
from gateway.http.dependencies import HouseDep, LookoutDep
from workers.bells import agent_queue
from workers.provider_states import Seen, capability_words

router = APIRouter()
WORDS: dict[str, Any] = {"can": capability_words, "agent_queue": agent_queue}


@router.get("/providers")
async def show_providers(house: HouseDep, guest: Annotated[Guest, needs("read", "all")]) -> Response:
    return show(guest, "providers.html", names=house.registry.providers.names)


@router.get("/providers/list")
async def list_providers(
    lookout: LookoutDep, guest: Annotated[Guest, needs("read", "all")], again: bool = False
) -> Response:
    seen = await lookout.look(again=again)
    return show(guest, "providers_list.html", seen=sorted(seen, key=_order), at=lookout.at, **WORDS)


def _order(one: Seen) -> tuple[bool, int, str]:
    """The default one first, then those that could be used."""
    return not one.is_default, ("ok", "warning", "problem", "absent", "refused").index(one.state), one.name
