"""`longshore foreman watch` as a process: in a pipe, in a terminal, interrupted, and while the database is away."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import update

from models import Approval
from models.lookup import short
from tests.support.fleet import Fleet
from tests.support.piped_process import PipedProcess, open_process
from tests.support.terminal import Terminal
from tests.support.workflow_rows import MERGED, put_workflow
from tests.support.workflow_writing import WorkflowRows

pytestmark = pytest.mark.spec("O1", "G4")

BIN = Path(sys.executable).parent
RESULT = {"branch": "longshore/right-totals", "commit": MERGED, "summary": "Mend the sum", "files": ["totals.py"]}
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"])


def environment(database_url: str, folder: Path) -> dict[str, str]:
    return {"DATABASE_URL": database_url, "LONGSHORE_HOME": str(folder / "home")}


@asynccontextmanager
async def watching(rows: WorkflowRows, database_url: str, folder: Path, *more: str) -> AsyncIterator[PipedProcess]:
    env = environment(database_url, folder) | {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    async with open_process(["longshore", "foreman", "watch", short(rows.id), *more], env, folder) as process:
        yield process


async def read_until(process: PipedProcess, text: str) -> list[str]:
    lines: list[str] = []
    while not lines or text not in lines[-1]:
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line, lines
        lines.append(line.decode().rstrip())
    return lines


async def approve(fleet: Fleet, rows: WorkflowRows, stage_id: str) -> None:
    await fleet.execute(update(Approval).values(status="used", decided_by="web:ann"))
    await rows.finish(stage_id, {"ok": True, "branch": "longshore/right-totals", "commit": MERGED})
    await rows.end("completed", "branch longshore/right-totals at cccccccccccc", RESULT)


async def test_in_a_pipe_each_change_is_a_line_once(fleet: Fleet, database_url: str, tmp_path: Path) -> None:
    rows = await put_workflow(fleet, "planning")
    async with watching(rows, database_url, tmp_path) as process:
        told = await read_until(process, "plan begins")
        assert told == ["take in begins", "take in done (1 min)", "plan begins (claude-code:opus)"]
        stage = await rows.begin("publish")
        assert await read_until(process, "hand over") == ["hand over begins"]
        approval = await rows.ask_approval(stage, "to merge it", {"a": 1}, "merge")
        asked = f"waits for you: merge: to merge it: longshore approve {short(approval)}"
        assert await read_until(process, "waits") == [asked]
        await approve(fleet, rows, stage)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    rest = out.decode().splitlines()
    assert rest[:2] == [
        "approved by web:ann: to merge it",
        "hand over done: branch longshore/right-totals (2 min)",
    ]
    assert "completed: branch longshore/right-totals at cccccccccccc" in rest
    assert (process.returncode, err) == (0, b"")


@ONE_DATABASE
async def test_whoever_stops_watching_stops_nothing_else(fleet: Fleet, database_url: str, tmp_path: Path) -> None:
    rows = await put_workflow(fleet, "running")
    async with watching(rows, database_url, tmp_path) as process:
        await read_until(process, "docs: build begins")
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    told, name = err.decode(), short(rows.id)
    assert "it goes on without you" in told
    assert f"longshore foreman watch {name}" in told
    assert f"longshore foreman cancel {name}" in told
    assert (process.returncode, out) == (130, b"")


@ONE_DATABASE
async def test_programs_get_one_document_when_it_is_over(fleet: Fleet, database_url: str, tmp_path: Path) -> None:
    rows = await put_workflow(fleet, "running")
    async with watching(rows, database_url, tmp_path, "--json") as process:
        await rows.end("failed", "it was too hard")
        out, err = await asyncio.wait_for(process.communicate(), 30)
    shown = json.loads(out)
    assert (shown["id"], shown["status"], shown["outcome"]) == (rows.id, "failed", "it was too hard")
    assert (process.returncode, err) == (1, b"")


@ONE_DATABASE
async def test_in_a_terminal_a_board_is_redrawn_until_the_end(fleet: Fleet, database_url: str, tmp_path: Path) -> None:
    rows = await put_workflow(fleet, "running", word="\x1b]0;x\x07")
    terminal = Terminal(tmp_path, "foreman", "watch", short(rows.id), **environment(database_url, tmp_path))
    try:
        await asyncio.to_thread(terminal.wait_for, "run_command")
        stage = await rows.begin("publish")
        approval = await rows.ask_approval(stage, "to merge it", {"a": 1}, "merge")
        await asyncio.to_thread(terminal.wait_for, f"longshore approve {short(approval)}")
        await approve(fleet, rows, stage)
        await asyncio.to_thread(terminal.wait_for, "longshore foreman show")
        assert await asyncio.to_thread(terminal.process.wait, 30) == 0
        assert "\x1b]0;" not in terminal.shown, "nobody else's escape sequences"
        assert "\x1b[?25h" in terminal.shown, "the cursor is there again"
        # The board stays to be read, once, with the end below it: what was drawn before is taken away.
        raw = terminal.shown.rpartition("\x1b[?25h")[2]
        assert "\x1b[1A\x1b[2K" in raw
        last = re.sub(r"\x1b\[[0-9;]*m", "", raw)
        assert last.count("workflow ") == 1
        assert "hand over: branch longshore/right-totals" in last
    finally:
        terminal.close()


@pytest.mark.parametrize("database_kind", ["postgresql"])  # SQLite has no connections to lose
async def test_it_goes_on_when_connections_are_lost(fleet: Fleet, database_url: str, tmp_path: Path) -> None:
    rows = await put_workflow(fleet, "planning")
    async with watching(rows, database_url, tmp_path) as process:
        await read_until(process, "plan begins")
        with psycopg.connect(database_url, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await rows.begin("publish")
        await read_until(process, "hand over begins")
