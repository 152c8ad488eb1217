"""A thousand first messages at once make one session, one place and a thousand rows, each with its own number."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

import pytest
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from models import AgentGroup, MessageIn, MessagingGroup, Session
from models.database import Database
from tests.support.concurrent_senders import CHAT, GROUP, speak
from tests.support.piped_process import open_process
from tests.support.process_group import ROOT, child_environment

CROWD = 1000
PROCESSES = 4
SHARE = 100


@pytest.fixture
async def group(db: Database) -> None:
    await db.transact(
        lambda conn: conn.execute(insert(AgentGroup).values(name=GROUP, folder=GROUP, provider="scripted"))
    )


@pytest.mark.spec("M2", "D5")
@pytest.mark.usefixtures("group")
async def test_a_thousand_first_messages_make_one_session(db: Database, database_url: str) -> None:
    accepted = await speak(db, database_url, 0, CROWD)
    assert len(accepted) == CROWD
    await _check(db, [asdict(answer) for answer in accepted])


@pytest.mark.spec("M2", "D5")
@pytest.mark.usefixtures("group")
async def test_so_do_those_of_several_processes(db: Database, database_url: str) -> None:
    command = [sys.executable, "-m", "tests.support.concurrent_senders", database_url]
    async with AsyncExitStack() as opened:
        children = [
            await opened.enter_async_context(
                open_process([*command, str(number * SHARE), str(SHARE)], child_environment(), ROOT, stderr=2)
            )
            for number in range(PROCESSES)
        ]
        for child in children:
            assert await child.stdout.readline() == b"ready\n"
        heard = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
        assert [child.returncode for child in children] == [0] * PROCESSES
    accepted = [answer for output, _ in heard for answer in json.loads(output)]
    assert len(accepted) == PROCESSES * SHARE
    await _check(db, accepted)


async def _check(db: Database, accepted: list[dict[str, Any]]) -> None:
    [session] = await _rows(db, select(Session.__table__))
    [place] = await _rows(db, select(MessagingGroup.__table__).where(MessagingGroup.platform_id == CHAT))
    messages = await _rows(db, select(MessageIn.__table__).order_by(MessageIn.seq))
    assert session.messaging_group_id == place.id
    assert [message.seq for message in messages] == list(range(1, len(accepted) + 1))
    assert {message.session_id for message in messages} == {session.id}
    assert {answer["session_id"] for answer in accepted} == {session.id}
    assert sorted(answer["message_id"] for answer in accepted) == sorted(message.id for message in messages)
    assert not any(answer["duplicate"] for answer in accepted)
    assert any(answer["wake_provider"] for answer in accepted), "somebody is told to wake the agent"


async def _rows(db: Database, query: Any) -> list[Any]:
    async def work(conn: AsyncConnection) -> list[Any]:
        return list((await conn.execute(query)).all())

    return await db.read(work)
