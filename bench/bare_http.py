"""The peer of `http`: a bare FastAPI program that inserts what it is sent, and does nothing else.

The same server settings, engine and database as the gateway; no token, no routing, no numbers, nobody rung for.
`python -m bench.bare_http DATABASE_URL PORT`, until SIGTERM."""

import asyncio
import signal
import sys
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from adapters.local_server import listen_on
from gateway.http.serving import make_server
from models.base import Id, Json, Timestamp, new_id, now
from models.database import Database


class Base(DeclarativeBase):
    pass


class Message(Base):
    __tablename__ = "bare_messages"

    id: Mapped[str] = mapped_column(Id, primary_key=True, default=new_id)
    agent_group: Mapped[str]
    thread_id: Mapped[str]
    content: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(Timestamp, default=now())


class Body(BaseModel):
    agent_group: str
    thread_id: str
    text: str


class Stored(BaseModel):
    id: str


def make_app(db: Database) -> FastAPI:
    app = FastAPI()
    # As ours does: SQLite has one writer at a time, and its own way of waiting is slow.
    writer = asyncio.Lock() if db.is_sqlite else nullcontext()

    @app.post("/v1/messages", status_code=202)
    async def store(body: Body) -> Stored:
        row = {"id": new_id(), "agent_group": body.agent_group, "thread_id": body.thread_id}
        async with writer, db.engine.begin() as conn:
            await conn.execute(insert(Message), row | {"content": {"text": body.text}})
        return Stored(id=row["id"])

    return app


async def _serve(database_url: str, port: int) -> None:
    db = Database(database_url)
    async with db.engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
    server = make_server(make_app(db))

    def stop() -> None:
        server.should_exit = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await server.serve([listen_on("127.0.0.1", port)])
    await db.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
