"""What every measurement stands on: a Valkey, a PostgreSQL and worker processes, all in one temporary folder.

Nothing has a fixed port, everything listens on 127.0.0.1, and leaving the stage stops what it started."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from gateway.supervisor import Child, Supervisor
from models import schema
from models.base import new_id
from tests.support.servers import Postgres, Valkey, private_folder

DatabaseKind = Literal["postgresql", "sqlite"]
ROOT = Path(__file__).resolve().parent.parent


class Stage:
    def __init__(self, folder: Path, valkey: Valkey, postgres: Postgres) -> None:
        self._folder = folder
        self._valkey = valkey
        self._postgres = postgres
        self.broker = valkey.url

    def make_database(self, kind: DatabaseKind) -> str:
        """A fresh, migrated database."""
        name = f"bench_{new_id()[-12:]}"
        url = f"sqlite:///{self._folder}/{name}.db" if kind == "sqlite" else self._postgres.make_database(name)
        schema.migrate(url)
        return url

    @contextmanager
    def workers(self, database_url: str = "", more: Mapping[str, str] = MappingProxyType({})) -> Iterator["Workers"]:
        """Worker processes that end with the block. They find an empty broker: what a measurement rang for and nobody
        answered would be counted by the next. `more` goes into their environment."""
        self._valkey.flush()
        folder = self._folder / new_id()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LONGSHORE_")}
        environment |= {
            "REDIS_URL": self.broker,
            "BROKER_URL": "",
            "DATABASE_URL": database_url,
            "DEFAULT_PROVIDER": "scripted",
            "WORKSPACE_ROOT": str(folder / "workspaces"),
            "LONGSHORE_HOME": str(folder),
            "LONGSHORE_GRACE_SECONDS": "1",
            "PYTHONPATH": str(ROOT),
            **more,
        }
        supervisor = Supervisor(folder / "logs", on_death=lambda name, how: None)
        try:
            yield Workers(supervisor, environment)
        finally:
            supervisor.stop(seconds=15)


class Workers:
    def __init__(self, supervisor: Supervisor, environment: dict[str, str]) -> None:
        self._supervisor = supervisor
        self._environment = environment

    def ours(self, name: str, queues: str, concurrency: int) -> Child:
        """As in the Procfile."""
        return self._start("workers.app", name, queues, concurrency)

    def plain(self, name: str, queues: str, concurrency: int, pool: str | None = None) -> Child:
        """The same command line; the level of its log is set as ours sets it."""
        return self._start("bench.plain", name, queues, concurrency, "-l", "INFO", *(["-P", pool] if pool else []))

    def program(self, name: str, command: list[str]) -> Child:
        """Anything else, in the same surroundings."""
        return self._supervisor.start(name, command, self._environment)

    def _start(self, app: str, name: str, queues: str, concurrency: int, *more: str) -> Child:
        command = [
            sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{name}@bench", "-Q", queues,
            "-c", str(concurrency), "--without-gossip", "--without-mingle", *more,
        ]  # fmt: skip
        return self._supervisor.start(name, command, self._environment)


@contextmanager
def set_stage() -> Iterator[Stage]:
    folder = private_folder()
    valkey, postgres = Valkey(folder / "valkey"), Postgres(folder / "postgres")
    try:
        valkey.start()
        postgres.start()
        yield Stage(folder, valkey, postgres)
    finally:
        postgres.stop()
        valkey.stop()
        shutil.rmtree(folder, ignore_errors=True)
