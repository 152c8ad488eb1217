"""The tables: constraints the database keeps by itself, migrations both ways, and the clock."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, insert, inspect, select, text, update
from sqlalchemy.exc import IntegrityError

from models import (
    AgentGroup,
    AgentGroupMember,
    Base,
    Database,
    MessageIn,
    MessageOut,
    Session,
    Turn,
    User,
    UserRole,
    schema,
)
from models.base import new_id, now
from models.database import database_clock, database_url
from models.errors import DatabaseDownError, SchemaError
from tests.support.fleet import Fleet
from workers.access import Standing, standing_of

pytestmark = pytest.mark.both_databases


@pytest.mark.spec("D4")
async def test_owners_are_global(fleet: Fleet) -> None:
    group = await fleet.add_group()
    await fleet.insert(User, {"id": "fake:a", "kind": "fake"})
    with pytest.raises(IntegrityError):
        await fleet.insert(UserRole, {"user_id": "fake:a", "role": "owner", "agent_group_id": group})
    await fleet.insert(UserRole, {"user_id": "fake:a", "role": "owner"})
    with pytest.raises(IntegrityError):
        await fleet.insert(UserRole, {"user_id": "fake:a", "role": "owner"})


@pytest.mark.spec("D4")
async def test_admins_and_owners_are_members(fleet: Fleet) -> None:
    one, two = await fleet.add_group("one"), await fleet.add_group("two")
    await fleet.insert(
        User, *({"id": f"fake:{name}", "kind": "fake"} for name in ("owner", "admin", "scoped", "guest"))
    )
    await fleet.insert(UserRole, {"user_id": "fake:owner", "role": "owner"})
    await fleet.insert(UserRole, {"user_id": "fake:admin", "role": "admin"})
    await fleet.insert(UserRole, {"user_id": "fake:scoped", "role": "admin", "agent_group_id": one})
    await fleet.insert(AgentGroupMember, {"user_id": "fake:guest", "agent_group_id": two})

    async def table(conn: Any) -> dict[str, tuple[bool, ...]]:
        users = ("owner", "admin", "scoped", "guest", "stranger")
        return {
            name: tuple(
                [
                    await standing_of(conn, f"fake:{name}", group) >= least
                    for least in (Standing.ADMIN, Standing.MEMBER)
                    for group in (one, two)
                ]
            )
            for name in users
        }

    assert await fleet.db.read(table) == {
        "owner": (True, True, True, True),
        "admin": (True, True, True, True),
        "scoped": (True, False, True, False),
        "guest": (False, False, False, True),
        "stranger": (False, False, False, False),
    }


@pytest.mark.spec("D1", "D5", "M12")
async def test_the_database_itself_refuses_what_must_not_be(fleet: Fleet) -> None:
    group = await fleet.add_group()
    accepted = await fleet.send()
    await fleet.settle_down()
    [message] = await fleet.inbox()
    [reply] = await fleet.outbox()
    place = {"channel_type": "local", "platform_id": "inbox", "content": {}}
    same_number = {"session_id": accepted.session_id, "seq": message.seq, "kind": "chat"} | place
    wrong_kind = same_number | {"seq": 99, "kind": "gossip"}
    second_key = same_number | {"seq": 98, "idempotency_key": reply.idempotency_key}
    orphan = same_number | {"seq": 97, "session_id": new_id()}
    open_turn = {"session_id": accepted.session_id, "provider": "scripted", "lease_token": 1}
    for table, row in (
        (MessageIn, same_number),
        (MessageIn, wrong_kind),
        (MessageIn, orphan),
        (MessageOut, second_key),
        (AgentGroup, {"name": "again", "folder": "demo"}),
        (Session, {"agent_group_id": group, "messaging_group_id": (await fleet.sessions())[0].messaging_group_id}),
    ):
        with pytest.raises(IntegrityError):
            await fleet.insert(table, row)
    await fleet.insert(Turn, open_turn | {"number": 50})
    with pytest.raises(IntegrityError):
        await fleet.insert(Turn, open_turn | {"number": 51})


@pytest.mark.spec("D3", "D2")
def test_migrations_and_models_agree(database_url: str) -> None:
    engine = create_engine(_sync(database_url))
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert set(inspect(conn).get_table_names()) >= {table.name for table in Base.metadata.sorted_tables}
    engine.dispose()


@pytest.mark.spec("D3")
def test_migrations_go_down_and_up_again(database_url: str) -> None:
    schema.migrate(database_url, "base")
    with pytest.raises(SchemaError, match="run `longshore migrate`"):
        schema.check(database_url)
    schema.migrate(database_url)
    schema.check(database_url)


@pytest.mark.spec("D3")
def test_an_older_schema_is_refused_and_a_newer_one_is_not(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "head", lambda: "0009")
    with pytest.raises(SchemaError, match=r"at version 0007, this release needs 0009: run `longshore migrate`"):
        schema.check(database_url)
    monkeypatch.undo()
    engine = create_engine(_sync(database_url))
    with engine.begin() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    schema.check(database_url)


def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(DatabaseDownError) as raised:
        schema.check("postgresql://me:hunter2@127.0.0.1:1/none")
    assert "127.0.0.1:1/none" in str(raised.value)
    assert "hunter2" not in str(raised.value)


async def test_the_databases_clock_moves_within_a_transaction_and_has_no_zone_trouble(db: Database) -> None:
    async def work(conn: Any) -> tuple[Any, Any, float]:
        first = (await conn.execute(select(now()))).scalar_one()
        await asyncio.sleep(0.02)
        second = (await conn.execute(select(now(3600)))).scalar_one()
        return first, second, await database_clock(conn)

    first, second, clock = await db.read(work)
    assert first.utcoffset().total_seconds() == 0
    assert 3600 < (second - first).total_seconds() < 3610
    assert abs(first.timestamp() - clock) < 5


async def test_a_failed_transaction_leaves_nothing(fleet: Fleet) -> None:
    async def work(conn: Any) -> None:
        await conn.execute(insert(AgentGroup).values(name="a", folder="a"))
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError):
        await fleet.db.transact(work)
    assert await fleet.rows(AgentGroup) == []


@pytest.mark.spec("M4")
async def test_many_writers_wait_for_each_other(fleet: Fleet) -> None:
    await fleet.add_group()
    other = Database(fleet.runtime.settings.database_url)

    async def bump(database: Database) -> None:
        await database.transact(lambda conn: conn.execute(update(AgentGroup).values(name=AgentGroup.name + "x")))

    await asyncio.gather(*(bump(database) for database in (fleet.db, other) for _ in range(40)))
    await other.close()
    [group] = await fleet.rows(AgentGroup)
    assert group.name == "demo" + "x" * 80


def test_a_relative_sqlite_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    schema.migrate("sqlite:///deep/down/longshore.db")
    assert (tmp_path / "deep" / "down" / "longshore.db").exists()


def _sync(raw: str) -> Any:
    url = database_url(raw)
    return url.set(drivername="sqlite") if url.get_backend_name() == "sqlite" else url


@pytest.mark.spec("D3")
def test_the_numbers_in_the_file_names_are_alembics() -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(Path(schema.__file__).parent / "migrations"))
    assert [script.revision for script in scripts.walk_revisions()][::-1] == schema.revisions()
