"""Who is what to which agent, and the tokens they come in with. Only to look at: people are let in at the command line,
or by a card that asks an admin."""

from typing import Annotated

from fastapi import APIRouter, Response
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.console.responses import show
from gateway.console.visitors import Guest, needs
from gateway.http.dependencies import HouseDep
from models.base import AnyRow, now
from models.people import standings
from models.tokens import list_tokens

router = APIRouter()


@router.get("/people")
async def show_people(house: HouseDep, guest: Annotated[Guest, needs("admin", "all")]) -> Response:
    async def look(conn: AsyncConnection) -> tuple[list[AnyRow], list[AnyRow], object]:
        at = (await conn.execute(select(now()))).scalar_one()
        return await standings(conn), await list_tokens(conn), at

    people, tokens, at = await house.db.read(look)
    return show(guest, "people.html", people=people, tokens=tokens, at=at)
