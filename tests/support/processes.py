"""The fleet as an operator runs it: real processes with the Procfile's commands, each with a log, ended by pid."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import psycopg
from sqlalchemy import insert, make_url

from models import AgentGroup, Database, schema
from tests.support import fork_server
from tests.support.servers import Valkey, wait_until

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
EVERYTHING = "messages,upkeep,delivery,agent.scripted"  # the queues of a worker that does it all
Process = fork_server.Process | subprocess.Popen[bytes]


def procfile() -> dict[str, str]:
    lines = (ROOT / "Procfile").read_text().splitlines()
    entries = (line.split(":", 1) for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): command.strip() for name, command in entries}


class Operator:
    """Starts and ends processes against one database and one broker, and looks at the rows."""

    def __init__(self, folder: Path, database_url: str, broker: Valkey, **env: str) -> None:
        self.folder = folder
        self.broker = broker
        self.database_url = database_url
        self._started: list[Process] = []
        self._connection: psycopg.Connection | None = None
        self.env = {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "DATABASE_URL": database_url,
            "REDIS_URL": broker.url,
            "DEFAULT_PROVIDER": "scripted",
            "WORKSPACE_ROOT": str(folder / "workspaces"),
            "LONGSHORE_HOME": str(folder / "home"),
            "LONGSHORE_REPEAT_SECONDS": "1",
            "LONGSHORE_LEASE_SECONDS": "4",
            "LONGSHORE_RETRY_BASE_SECONDS": "0.2",
        } | env

    def start(self, command: str, name: str, ready: bool = True, **env: str) -> Process:
        """Start a command line. `ready`: wait until it says that it lives (workers do, in the database)."""
        with self._log(name) as log:
            out = log.fileno()
            process = fork_server.start(shlex.split(command), self.env | env, self.folder, stdout=out, stderr=out)
        return self._keep(process, name, ready)

    def start_anew(self, command: str, name: str, ready: bool = True) -> Process:
        """As a shell does it, not by a fork: where it is about the start itself."""
        with self._log(name) as log:
            process = subprocess.Popen(
                shlex.split(command), env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self._keep(process, name, ready)

    def _log(self, name: str) -> BinaryIO:
        return (self.folder / f"{name}.log").open("ab")

    def _keep(self, process: Process, name: str, ready: bool) -> Process:
        self._started.append(process)
        if ready:
            alive = "SELECT count(*) FROM processes WHERE pid = %s"
            self.wait_for(lambda: self.value(alive, process.pid), f"{name} to be ready", 40)
        return process

    def worker(self, queues: str, name: str = "worker", options: str = "-c 50", **env: str) -> Process:
        command = f"celery -A workers.app worker -Q {queues} -n {name}@%h {options} --without-gossip --without-mingle"
        return self.start(command, name, True, **env)

    def cli(
        self, *arguments: str, check: bool = True, given: str | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        result = fork_server.run(["longshore", *arguments], self.env | {"COLUMNS": "200"} | env, self.folder, given, 60)
        assert not check or result.returncode == 0, f"longshore {arguments}: {result.stdout}{result.stderr}"
        assert "Traceback" not in result.stderr, result.stderr
        return result

    def add_group(self, folder: str = "demo", script: str = "You said: {texts}") -> None:
        async def make() -> None:
            db = Database(self.database_url)
            values = {"folder": folder, "name": folder, "provider": "scripted"}
            config = {"provider_options": {"script": script}}
            await db.transact(lambda conn: conn.execute(insert(AgentGroup).values(config=config, **values)))
            await db.close()

        asyncio.run(make())

    def rows(self, query: str, *values: Any) -> list[Any]:
        """By one connection for all, and another when that was cut."""
        try:
            return self._connected().execute(query.encode(), values).fetchall()
        except psycopg.OperationalError:
            return self._connected().execute(query.encode(), values).fetchall()

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.database_url, autocommit=True)
        return self._connection

    def administer(self, statement: str) -> None:
        """Change the test's database ({} is its name), for connections made from now on; those there are end."""
        url = make_url(self.database_url)
        admin = url.set(database="postgres").render_as_string(hide_password=False)
        with psycopg.connect(admin, autocommit=True) as conn:
            conn.execute(statement.format(f'"{url.database}"').encode())
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (url.database,))

    def value(self, query: str, *values: Any) -> Any:
        found = self.rows(query, *values)
        return found[0][0] if found else None

    def wait_for(self, condition: Callable[[], Any], what: str, seconds: float = 30) -> None:
        try:
            wait_until(condition, seconds, what)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self, lines: int = 30) -> str:
        parts = []
        for log in sorted(self.folder.glob("*.log")):
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            parts.append(f"--- {log.name}\n" + "\n".join(tail))
        return "\n".join(parts)

    def end(self, process: Process, sig: signal.Signals = signal.SIGTERM, seconds: float = 30) -> int:
        process.send_signal(sig)
        return process.wait(seconds)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 15
        for process in self._started:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self._connection is not None:
            self._connection.close()


def migrated(url: str) -> str:
    schema.migrate(url)
    return url
