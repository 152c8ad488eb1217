"""What all sandboxes do before a program starts: look at the command, hand over the workspace, set limits, spawn.

A limit that cannot be set ends the program before it begins; nothing here runs a shell over what an agent wrote."""

import asyncio
import os
import re
import resource
import stat
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from adapters.errors import SandboxError
from adapters.sandbox.port import WORKSPACE, Command, SandboxLimits
from adapters.sandbox.terminal import PseudoTerminal

# A CLI agent says a whole message per line, with files and pictures in it.
LONGEST_LINE = 8 << 20
# What a terminal has been sent and nobody has read; a flood makes the program wait.
TERMINAL_BYTES = 1 << 16
OPEN_FILES = 4096
CANNOT_LIMIT = 125
FIRST_PORT = 8701
SETPRIV = "/usr/bin/setpriv"

# dash and busybox say -p where bash says -u, and each refuses the other's: a subshell finds out which it is. dash ends
# at once when a limit cannot be set; for others there is the `||`. -f counts 512 bytes in any sh. -d is what a process
# may write to of its own: -v would count the address space that Node, Go and Java reserve and never use.
_LIMITED = """
if (ulimit -u "$1") 2>/dev/null; then ulimit -u "$1"; else ulimit -p "$1"; fi \
&& ulimit -f "$2" && ulimit -d "$3" && ulimit -n "$4" && ulimit -c 0 \
|| { echo 'sandbox: the limits cannot be set' >&2; exit 125; }
test "$2" -gt 0 || echo 'sandbox: the workspace is full: files can be deleted but not written' >&2
shift 4
exec "$@"
"""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_command(command: Command) -> None:
    """Raises SandboxError for what cannot be handed to a program, in words for the agent that asked for it."""
    if not command.argv or not command.argv[0]:
        raise SandboxError("there is no program to run")
    if command.argv[0].startswith("-"):
        raise SandboxError(f"{command.argv[0]!r} is no name for a program")
    for name in command.env:
        if not _ENV_NAME.fullmatch(name):
            raise SandboxError(f"{name!r} is no name for an environment variable")
    for text in (*command.argv, *command.env.values(), command.folder or ""):
        try:
            if b"\0" in os.fsencode(text):
                raise SandboxError("a NUL byte can stand neither in an argument nor in the environment")
        except UnicodeEncodeError as error:
            raise SandboxError(f"{text!r} cannot be written as bytes") from error
    folder = PurePosixPath(command.folder or ".")
    if folder.is_absolute() or ".." in folder.parts:
        raise SandboxError(f"the folder {command.folder!r} is not below the workspace")
    if not command.workspace.is_dir():
        raise SandboxError(f"the workspace {command.workspace} is not there")
    if not os.path.lexists(command.workspace / folder):
        raise SandboxError(f"the workspace has no folder {command.folder!r}")


def inside(command: Command) -> str:
    """Where the program begins, as it sees it."""
    return "/tmp" if command.folder is None else str(PurePosixPath(WORKSPACE) / command.folder)  # noqa: S108


def forwarded(program: Sequence[str], python: str, forwarder: str, doors: Mapping[int, str]) -> list[str]:
    """The command line that opens doors (sockets, by the port they are to be found at) and becomes the program."""
    listed = [f"{port}={path}" for port, path in doors.items()]
    return [python, "-I", forwarder, *listed, "--", *program]


def fixed_ports(count: int) -> tuple[int, ...]:
    """For a program with a loopback of its own, where nobody else listens yet."""
    return tuple(range(FIRST_PORT, FIRST_PORT + count))


def hand_over(workspace: Path, uid: int) -> None:
    """Make the workspace usable for the user that its programs run as. Only for a process of root.

    The folder itself changes hands if it is root's, nothing in it. Raises SandboxError, with what to do, if that user
    cannot come there."""
    if blocked := first_closed(workspace, uid):
        raise SandboxError(
            f"the sandbox's user ({uid}) may not enter {blocked}: run the workers as an ordinary user, or set "
            "WORKSPACE_ROOT to a folder that others may enter"
        )
    status = workspace.stat()
    if status.st_uid == 0:
        os.chown(workspace, uid, uid)
    elif status.st_uid != uid and not status.st_mode & stat.S_IWOTH:
        raise SandboxError(f"{workspace} belongs to user {status.st_uid}, not to the sandbox's user ({uid}): chown it")


def first_closed(path: Path, uid: int) -> Path | None:
    """The first folder on the way to `path` that the user may not enter, going by the permission bits."""
    for folder in reversed(path.resolve().parents):
        status = folder.stat()
        bit = stat.S_IXUSR if status.st_uid == uid else stat.S_IXGRP if status.st_gid == uid else stat.S_IXOTH
        if not status.st_mode & bit:
            return folder
    return None


def limited(argv: Sequence[str], limits: SandboxLimits, *, full: bool, own: int = 0) -> list[str]:
    """The command line that sets limits and becomes the program. Runs where the program runs: the kernel counts
    processes per user namespace. `own` are processes of the sandbox itself that count as well. `full`: no file may be
    written, so that an agent whose workspace is full can still delete."""
    values = (
        _at_most(limits.processes + own + 1, resource.RLIMIT_NPROC),
        0 if full else _at_most(limits.file_bytes, resource.RLIMIT_FSIZE) // 512,
        # Twice, because memory is counted for all processes together by the watch, which says so when it ends one;
        # this only keeps a single one from running far past it between two looks.
        _at_most(limits.memory_bytes * 2, resource.RLIMIT_DATA) // 1024,
        _at_most(OPEN_FILES, resource.RLIMIT_NOFILE),
    )
    return ["/bin/sh", "-c", _LIMITED, "sandbox", *map(str, values), *argv]


def _at_most(value: int, kind: int) -> int:
    """Nobody may raise a hard limit, so asking for more than it would fail."""
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


class Pipes(SubprocessStreamProtocol):
    """The streams of a child, and a future for its end: asyncio's own wait() may also wait for its pipes, which
    grandchildren can hold open for ever."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit=LONGEST_LINE, loop=loop)
        self.exited: asyncio.Future[None] = loop.create_future()
        self.terminal: PseudoTerminal | None = None

    async def take(self, terminal: PseudoTerminal) -> None:
        """For a child that has a terminal instead of pipes, on which errors look like all the rest."""
        self.terminal = terminal
        self.stdin, self.stdout = await terminal.streams(TERMINAL_BYTES)
        self.stderr = asyncio.StreamReader()
        self.stderr.feed_eof()
        terminal.let_go()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


async def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | Path | None = None,
    uid: int | None = None,
    fds: Sequence[int] = (),
    terminal: PseudoTerminal | None = None,
) -> tuple[asyncio.SubprocessTransport, Pipes]:
    """A child in a session of its own (a Ctrl-C at the worker's terminal is the worker's), as another user if `uid` is
    given. Raises SandboxError if there is no such program or the command line is too long."""
    options: dict[str, Any] = {}
    if uid is not None and os.access(SETPRIV, os.X_OK):
        # Python copies a process whole before it changes the user: 30 ms for one of 600 MB, where this takes 2.
        argv = [SETPRIV, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *argv]
    elif uid is not None:
        options = {"user": uid, "group": uid, "extra_groups": []}
    if terminal is not None:
        options |= {"stdin": terminal.theirs, "stdout": terminal.theirs, "stderr": terminal.theirs}
    try:
        transport, pipes = await asyncio.get_running_loop().subprocess_exec(
            Pipes, *argv, env=dict(env), cwd=cwd, pass_fds=tuple(fds), start_new_session=True, **options
        )
    except (OSError, ValueError) as error:
        if terminal is not None:
            terminal.close()
        raise SandboxError(f"{argv[0]} could not be started: {error}") from error
    if terminal is not None:
        await pipes.take(terminal)
    return transport, pipes
