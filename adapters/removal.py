"""Removing a folder that a program of an agent has written. By rm: Python's own way gives up where folders lie too deep
within each other, or are closed."""

import os
import subprocess
from pathlib import Path

import structlog

log = structlog.get_logger()


def remove_tree(folder: Path) -> None:
    """Blocking. What cannot be removed is told in the log."""
    if not _run("rm", "-rf", "--", str(folder)):
        _run("chmod", "-R", "u+rwX", "--", str(folder))
        if not _run("rm", "-rf", "--", str(folder)):
            log.warning("folder.not_removed", folder=str(folder))


def _run(*command: str) -> bool:
    env = {"PATH": os.defpath, "LC_ALL": "C"}
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0  # noqa: S603
