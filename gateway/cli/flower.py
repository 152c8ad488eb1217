"""`longshore flower`: Celery's own view of the fleet, never without a password, on this machine only unless told."""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from gateway.cli.desk import err, fail
from gateway.embedded import write_private
from workers.settings import SettingsError, load_settings, require_broker

PORT: Final = 5555
USER: Final = "longshore"
AUTH: Final = "FLOWER_BASIC_AUTH"
_OTHER_AUTH: Final = ("FLOWER_AUTH", "FLOWER_AUTH_PROVIDER")  # by somebody else's accounts
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def flower(
    host: Annotated[str, typer.Option(help="where to listen; other machines come through a proxy that adds TLS")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="of the pages")] = PORT,
) -> None:
    """Run Flower, with a password: FLOWER_BASIC_AUTH=user:password, or one that is made and kept in a file."""
    try:
        settings = load_settings()
        require_broker(settings)
    except SettingsError as error:
        fail(str(error))
    env = dict(os.environ)
    if not any(env.get(name) for name in (AUTH, *_OTHER_AUTH)):
        if host not in LOOPBACK:
            fail(f"set {AUTH}=user:password before Flower listens on {host}: everybody there could see the fleet", 2)
        env |= flower_env(settings.home)
        err.print(f"Flower: http://{host}:{port}, user {USER}, password in {password_file(settings.home)}")
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "flower", f"--address={host}", f"--port={port}"]
    os.execve(sys.executable, command, env)  # noqa: S606 - our own command


def flower_env(home: Path) -> Mapping[str, str]:
    """In the environment, not in the arguments, which everybody on the machine can read."""
    file = password_file(home)
    if not file.exists():
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(file, secrets.token_urlsafe(12))
    return {AUTH: f"{USER}:{file.read_text().strip()}"}


def password_file(home: Path) -> Path:
    return home / "flower.password"
