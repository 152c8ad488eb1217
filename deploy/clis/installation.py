"""How a pinned npm package becomes a program in a folder of this project, by way of the user's cache folder.

A program is there when `<name>.json` is: that is written last. Nothing here runs a program it has installed. Used by
`make clis` and by `make browser`."""

import fcntl
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from download import NODE, NotInstalledError, fetch_node, fetch_packages
from unpacking import unpack

ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Program:
    """`recipe` is the folder of its package.json. `unpack` is a folder of archives that are opened where they lie,
    `keep` are the files and folders that running needs, `drop` the names left out of them, `run` the command; all in
    the folder of the program, `node` apart."""

    name: str
    version: str
    recipe: Path
    keep: list[str]
    drop: list[str]
    run: list[str]
    unpack: str | None = None

    @property
    def needs_node(self) -> bool:
        return "node" in self.run


NODE_PROGRAM = Program("node", NODE, Path(), keep=["bin/node"], drop=[], run=["bin/node"])


def read_recipe(folder: Path) -> Program:
    package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    recipe, (version,) = package["longshore"], package["dependencies"].values()
    keep, run = ([part.replace("{platform}", this_platform()) for part in recipe[name]] for name in ("keep", "run"))
    return Program(folder.name, version, folder, keep, recipe.get("drop", []), run, recipe.get("unpack"))


class Installation:
    """The project's folder and the user's cache, which several clones and several runs at once may share."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache

    def install(self, program: Program) -> str:
        """What was done, in words."""
        start = time.monotonic()
        if program.needs_node:
            self.install(NODE_PROGRAM)
        if self._is_there(program):
            return "is there"
        cached = self.cache / f"{program.name}-{program.version}"
        done = "from the cache" if cached.is_dir() else "downloaded"
        self._fetch(cached, lambda part, lock: self._build(program, part, lock))
        size = self._bring(program, cached)
        return f"{done}, {size / 2**20:.0f} MB, {time.monotonic() - start:.1f} s"

    def _is_there(self, program: Program) -> bool:
        try:
            known = json.loads((self.folder / f"{program.name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return known["version"] == program.version and all((self.folder / part).exists() for part in known["argv"])

    def _fetch(self, cached: Path, build: Callable[[Path, int], None]) -> None:
        """Build beside the place and rename into it: half a download is never found there."""
        if cached.is_dir():
            return
        with locked(cached.with_name(f"{cached.name}.lock")) as lock:
            if cached.is_dir():
                return
            part = cached.with_name(f"{cached.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            try:
                build(part, lock)
                part.rename(cached)
            finally:
                shutil.rmtree(part, ignore_errors=True)

    def _build(self, program: Program, part: Path, lock: int) -> None:
        if program.name == "node":
            fetch_node(part, lock)
            _open_to_all(part)
            return
        node = self.cache / f"node-{NODE}"
        self._fetch(node, lambda place, held: self._build(NODE_PROGRAM, place, held))
        raw = part / "raw"
        raw.mkdir()
        fetch_packages(program.recipe, raw, node, lock)
        if program.unpack:
            unpack(raw / program.unpack, node, lock)
        for pattern in program.keep:
            for path in _matching(raw, pattern, program):
                target = part / path.relative_to(raw)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        shutil.rmtree(raw)
        _leave_out(part, program.drop)
        _open_to_all(part)

    def _bring(self, program: Program, cached: Path) -> int:
        """Into the project's folder, and only then its description. Gives the bytes."""
        described, place = self.folder / f"{program.name}.json", self.folder / program.name
        part = self.folder / f"{program.name}.part"
        described.unlink(missing_ok=True)
        for old in (part, place):
            shutil.rmtree(old, ignore_errors=True)
        size = sum(_link_tree(path, part / path.relative_to(cached)) for path in _kept(cached, program))
        argv = [self._argument(program, part, word) for word in program.run]
        part.rename(place)
        readable = [program.name, *(["node"] if program.needs_node else [])]
        facts = {"name": program.name, "version": program.version, "argv": argv, "readable": readable}
        write(described, facts)
        return size

    def _argument(self, program: Program, part: Path, word: str) -> str:
        if word == "node":
            return "node/bin/node"
        (found,) = _matching(part, word, program)
        return str(Path(program.name) / found.relative_to(part))


def _kept(cached: Path, program: Program) -> list[Path]:
    return [path for pattern in program.keep for path in _matching(cached, pattern, program)]


def _matching(folder: Path, pattern: str, program: Program) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if not found:
        raise NotInstalledError(
            f"{program.name} {program.version} has no {pattern}; is {this_platform()} one of its platforms?"
        )
    return found


def _leave_out(folder: Path, names: list[str]) -> None:
    for path in folder.iterdir():
        known = any(fnmatch(path.name, pattern) for pattern in names)
        if path.is_symlink() or not path.is_dir():
            if known:
                path.unlink()
        elif known:
            shutil.rmtree(path)
        else:
            _leave_out(path, names)


def _link_tree(source: Path, target: Path) -> int:
    """Real files in the tree: the user of a sandbox cannot follow a link into somebody's home."""
    if source.is_symlink() or not source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # another file system, or one without links
            shutil.copy2(source, target, follow_symlinks=False)
        return source.lstat().st_size
    target.mkdir(parents=True, exist_ok=True)
    return sum(_link_tree(path, target / path.name) for path in source.iterdir())


def _open_to_all(folder: Path) -> None:
    """chmod -R a+rX, whatever the umask is."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if path.is_dir() or mode & 0o111 else 0o444))


def write(path: Path, facts: dict[str, Any]) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    part.chmod(0o644)
    part.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Held by one process at a time; a killed one lets go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def this_platform() -> str:
    machine = platform.machine().lower()
    return f"{sys.platform}-{ARCHITECTURES.get(machine, machine)}"


def user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longshore" / "clis"


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
