"""The example `examples/pr_factory` plays its story to the end: what it tells is what the database says, and nothing is
left of it."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.processes import BIN, ROOT

pytestmark = [
    pytest.mark.spec("O3", "M14", "M15", "T4"),
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("platforms"),
]

ADA = "discord:1080000000000000042"
THREADS = ["issues/1", "issues/2", "issues/3"]


class Played:
    """What the fleet has left in its folder."""

    def __init__(self, folder: Path) -> None:
        self.workspaces = folder / ".longshore" / "workspaces"
        [database] = (folder / ".longshore").glob("*.db")
        self._db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(query, values).fetchall()

    def texts(self, query: str, *values: Any) -> list[str]:
        return [json.loads(content)["text"] for (content,) in self.rows(query, *values)]

    def close(self) -> None:
        self._db.close()


def _of(agent: str) -> str:
    return f"(SELECT id FROM agent_groups WHERE folder = '{agent}')"


def test_the_story_is_told_to_its_end_and_the_database_says_the_same(tmp_path: Path) -> None:
    folder, spare = tmp_path / "factory", tmp_path / "spare"
    spare.mkdir()
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": str(spare)}
    command = [sys.executable, str(ROOT / "examples" / "pr_factory" / "run.py"), "--keep", str(folder)]
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert [line.split(". ")[0] for line in ran.stdout.splitlines() if line[:1].isdigit()] == list("123456789")
    assert "3 conversations, 3 sessions:" in ran.stdout
    assert list(spare.iterdir()) == []
    assert _alive_in(folder) == []
    played = Played(folder)
    try:
        _check_workers(played)
        _check_supervisor(played)
        _check_manager(played)
    finally:
        played.close()


def _check_workers(played: Played) -> None:
    sessions = f"SELECT thread_id, status FROM sessions WHERE agent_group_id = {_of('pr-worker')} AND thread_id LIKE ?"
    found = sorted(played.rows(sessions, "issues/%"))
    assert found == sorted((thread, status) for thread in THREADS for status in ("active", "closed"))
    said = (
        "SELECT o.content FROM messages_out o JOIN sessions s ON s.id = o.session_id "
        f"WHERE s.agent_group_id = {_of('pr-worker')} AND s.thread_id = ? AND s.status = ? AND o.status = 'delivered'"
    )
    for thread in THREADS:
        [before], [after] = played.texts(said, thread, "closed"), played.texts(said, thread, "active")
        assert before.startswith("**Review.**")
        assert "which tests cover it" not in before
        assert "which tests cover it" in after
    skill = (played.workspaces / "pr-worker" / "skills" / "review" / "SKILL.md").read_text()
    assert "which tests cover it" in skill
    assert played.rows("SELECT status, decided_by FROM approvals") == [("used", ADA)]
    heard = f"SELECT content FROM messages_in WHERE agent_group_id = {_of('pr-worker')}"
    assert not any("@supervisor" in content for (content,) in played.rows(heard))


def _check_supervisor(played: Played) -> None:
    asked = (
        "SELECT m.kind, m.content FROM messages_in m JOIN sessions s ON s.id = m.session_id "
        f"WHERE s.agent_group_id = {_of('pr-supervisor')} AND s.thread_id = 'issues/2' ORDER BY m.seq"
    )
    (kind, context), (_, feedback) = played.rows(asked)
    assert kind == "system"
    told = json.loads(context)["result"]
    assert "Faster search" in told["said"][0]
    assert "**Review.**" in told["said"][1]
    assert "read_skill finished" in told["done"][0]
    assert "@supervisor this review" in json.loads(feedback)["text"]
    written = (played.workspaces / "pr-supervisor" / "feedback.txt").read_text()
    assert "Faster search" in written
    assert "@supervisor this review" in written
    lines = played.rows("SELECT who, json_extract(detail, '$.agent') FROM audit WHERE act = 'session.again'")
    assert lines == [(ADA, "pr-supervisor")] * 3


def _check_manager(played: Played) -> None:
    said = (
        "SELECT o.content FROM messages_out o JOIN sessions s ON s.id = o.session_id "
        f"WHERE s.agent_group_id = {_of('pr-manager')} AND o.status = 'delivered'"
    )
    [answer] = played.texts(said)
    assert answer.startswith("Today:\n3 conversations, 3 sessions:")
    assert all(title in answer for title in ("Count the tides in UTC", "Faster search", "Fix a typo in the README"))


def _alive_in(folder: Path) -> list[int]:
    """Processes that work in the fleet's folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and Path(process.cwd()).is_relative_to(folder):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
