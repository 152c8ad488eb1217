"""Homes of CLI agents: a private folder for one attempt, with what the program remembers laid out in it.

A folder is locked by the process that uses it: what a killed worker left behind has no lock, and is removed by the next
on the same machine. Beside the workspaces, where no agent's file tools reach."""

import asyncio
import fcntl
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from adapters.providers.cli.home import unpack
from adapters.removal import remove_tree
from models.base import new_id

log = structlog.get_logger()

FOLDER: Final = ".homes"  # beside the workspaces; no agent's folder begins with a dot
# A machine that has lent no home for so long is gone.
FORGOTTEN_SECONDS: Final = 7 * 86_400.0


class Homes:
    """`uid`: whose the folders are, for a worker of root."""

    def __init__(self, workspace_root: Path, uid: int) -> None:
        self._all = workspace_root.absolute() / FOLDER
        # Several machines may share the folder, and locks are not sure to reach from one to the other.
        self._root = self._all / socket.gethostname()
        self._uid = uid if os.geteuid() == 0 else None
        self._tidied = False

    @asynccontextmanager
    async def lend(self, state: bytes | None) -> AsyncIterator[Path]:
        """A home that holds what `state` says, and nothing else; removed when this is left."""
        making = asyncio.ensure_future(asyncio.to_thread(self._make, state))
        try:
            home, lock = await asyncio.shield(making)
        except asyncio.CancelledError:
            with suppress(Exception):  # a thread cannot be stopped; what it makes is ours, if it makes it
                await asyncio.to_thread(_remove, *(await making))
            raise
        try:
            yield home
        finally:
            await asyncio.shield(asyncio.to_thread(_remove, home, lock))

    def _make(self, state: bytes | None) -> tuple[Path, int]:
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in (self._all, self._root):
            folder.chmod(0o711)  # to be entered by the sandbox's user, not to be looked into
        if not self._tidied:
            self._tidied = True
            self._tidy()
        folder, lock = self._locked()
        try:
            if self._uid is not None:
                os.chown(folder, self._uid, self._uid)
            if state:
                unpack(state, folder)
        except BaseException:
            _remove(folder, lock)
            raise
        return folder, lock

    def _locked(self) -> tuple[Path, int]:
        """A new folder that is ours: somebody who tidies may have taken one between its making and its locking."""
        while True:
            folder = self._root / new_id()
            folder.mkdir(mode=0o700)
            with suppress(FileNotFoundError):
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(lock, fcntl.LOCK_EX)
                if folder.exists():
                    return folder, lock
                os.close(lock)

    def _tidy(self) -> None:
        for machine in self._all.iterdir():
            with suppress(OSError):  # another machine tidies as well
                if machine != self._root and machine.stat().st_mtime < time.time() - FORGOTTEN_SECONDS:
                    remove_tree(machine)
        for folder in self._root.iterdir():
            with suppress(OSError):
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    continue
                log.info("home.left_behind", folder=folder.name)
                _remove(folder, lock)


def _remove(folder: Path, lock: int) -> None:
    try:
        remove_tree(folder)
    finally:
        os.close(lock)
