"""A fleet of its own in a folder of its own: `longshore up` as a child, and the command line beside it.

With an environment of its own too: no key and no setting of yours reaches it, and it reaches nothing but 127.0.0.1."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

START_SECONDS = 90.0
STEP_SECONDS = 60.0
STOP_SECONDS = 60.0
Found = TypeVar("Found")


class Fleet:
    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._home = folder / ".longshore"
        self.workspaces = self._home / "workspaces"
        self._log = folder / "up.log"
        self._env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "COLUMNS": "110",
            "DEFAULT_PROVIDER": "scripted",
            "LONGSHORE_HOME": str(self._home),
        } | settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway.cli", "up", "--no-flower"],
                cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.wait_for(lambda: "longshore send demo" in self._log.read_text(), "the fleet to start", START_SECONDS)

    def stop(self) -> None:
        """What runs is finished first; nothing of it is left."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    @property
    def door(self) -> str:
        """Where platforms knock."""
        return str(json.loads((self._home / "embedded.json").read_text())["public_url"])

    def longshore(self, *arguments: str) -> str:
        """What the command line says."""
        ran = subprocess.run(
            [sys.executable, "-m", "gateway.cli", *arguments],
            cwd=self._folder, env=self._env, capture_output=True, text=True, timeout=STEP_SECONDS,
        )  # fmt: skip
        if ran.returncode != 0:
            raise SystemExit(f"longshore {' '.join(arguments)}: {ran.stderr or ran.stdout}")
        return ran.stdout

    def sessions(self, agent: str) -> list[dict[str, Any]]:
        """Of one agent, with people; the oldest first."""
        listed = json.loads(self.longshore("sessions", "--json"))
        mine = [one for one in listed if one["agent"] == agent and one["channel_type"] != "agent"]
        return sorted(mine, key=lambda one: str(one["id"]))

    def add_agent(self, name: str, source: Path) -> None:
        """`source`: its script and policy, and what lies in its folder from the beginning."""
        how = ("--script", str(source / "script.yaml"), "--policy", str(source / "policy.yaml"))
        self.longshore("groups", "add", name, "--provider", "scripted", *how)
        if (source / "skills").exists():
            shutil.copytree(source / "skills", self.workspaces / name / "skills")

    def wait_for(self, look: Callable[[], Found | None], what: str, seconds: float = STEP_SECONDS) -> Found:
        """What `look` finds, as soon as it finds something."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            if self._process is not None and self._process.poll() is not None:
                raise SystemExit(f"the fleet has stopped:\n{self._log.read_text()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"waited in vain for {what}; the fleet says:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)
        return found
