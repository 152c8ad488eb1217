"""People of the `local` channel."""

from typing import Any

from sqlalchemy import insert

from models import UserRole
from models.database import Database
from models.people import remember_user


async def grant_role(db: Database, sender: str, role: str, agent_group_id: str | None = None) -> None:
    async def work(conn: Any) -> None:
        await remember_user(conn, f"local:{sender}", "local", sender)
        await conn.execute(insert(UserRole).values(user_id=f"local:{sender}", role=role, agent_group_id=agent_group_id))

    await db.transact(work)
