from sqlalchemy import insert, select

from models import AgentGroup, Database


async def test_it(db: Database, redis_url: str) -> None:
    async def w(conn):
        await conn.execute(insert(AgentGroup).values(name="a", folder="a"))
        return (await conn.execute(select(AgentGroup.__table__))).all()

    print(await db.transact(w))
