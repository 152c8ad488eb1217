"""No sandbox: programs run as the worker itself does. Only for operators who have said so.

Limits, a clean environment and the end of all children hold as far as a process group goes; nothing is confined, and a
program that leaves its group (setsid) survives."""

import contextlib
import os
import socket
import sys
from contextlib import AsyncExitStack

from adapters.sandbox import forwarder
from adapters.sandbox.disk import Disk
from adapters.sandbox.launch import check_command, forwarded, limited, spawn
from adapters.sandbox.port import Command, Probe
from adapters.sandbox.process import GroupGrip, Supervised, whole
from adapters.sandbox.terminal import PseudoTerminal, on_terminal


class Unconfined:
    name = "none"
    confines = False
    warning = (
        "Programs of agents run without a sandbox: they can read and change whatever the worker can, keys included, "
        "and reach every network. Set LONGSHORE_SANDBOX=bubblewrap or LONGSHORE_SANDBOX=docker."
    )

    def __init__(self) -> None:
        self._disk = Disk()

    def place(self, command: Command) -> tuple[str, str]:
        return str(command.workspace), str(command.home or command.workspace)

    def ports(self, count: int) -> tuple[int, ...]:
        """Out here ports are everybody's: somebody may take one between this and the program's start."""
        with contextlib.ExitStack() as held:
            sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
            return tuple(one.getsockname()[1] for one in sockets)

    async def probe(self) -> Probe:
        return Probe(True, self.warning)

    async def start(self, command: Command) -> Supervised:
        """`hosts` and `readable` mean nothing here: everything can be reached."""
        return await whole(self._start(command))

    async def _start(self, command: Command) -> Supervised:
        check_command(command)
        full = await self._disk.full(command.workspace, command.limits.disk_bytes)
        env = {"PATH": _path(), "HOME": str(command.home or command.workspace), "LANG": "C.UTF-8"} | dict(command.env)
        program = list(command.argv)
        if command.doors:
            doors = {door.port: str(door.socket) for door in command.doors}
            program = forwarded(program, sys.executable, forwarder.__file__, doors)
        terminal = None
        if command.terminal is not None:
            program, terminal = on_terminal(program), PseudoTerminal(command.terminal)
        argv = limited(program, command.limits, full=full, own=_processes_of_user())
        cwd = "/" if command.folder is None else command.workspace / command.folder
        transport, pipes = await spawn(argv, env=env, cwd=cwd, terminal=terminal)
        grip = GroupGrip(transport.get_pid(), session=terminal is not None)
        return Supervised(transport, pipes, command, grip, self._disk, AsyncExitStack())


def _path() -> str:
    """Of the worker's environment only where programs are: they are the same machine's."""
    return os.environ.get("PATH", os.defpath)


def _processes_of_user() -> int:
    """Out here the kernel counts all processes and threads of the user; those there are already must not use up the
    limit. (For root it counts none, and a fork bomb is held by time and memory alone.)"""
    uid, count = os.getuid(), 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count
