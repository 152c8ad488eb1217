"""The sandbox of a machine with a Docker engine: a container per program, with the engine's own limits.

The image is the operator's: it must be there already (nothing is pulled in the middle of a turn) and hold what agents
are to use. Reaching `hosts` needs python3 in it. The engine must see the worker's folders under the same paths. A
worker that is killed leaves its containers to the engine; they carry the label `longshore`."""

import asyncio
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from adapters.errors import SandboxError
from adapters.sandbox import forwarder
from adapters.sandbox.disk import Disk
from adapters.sandbox.launch import OPEN_FILES, Pipes, check_command, fixed_ports, forwarded, hand_over, inside, spawn
from adapters.sandbox.port import HOME, WORKSPACE, Command, Probe
from adapters.sandbox.probing import try_out
from adapters.sandbox.process import KILL_SECONDS, WATCH_SECONDS, Supervised, whole
from adapters.sandbox.proxy import Resolver, open_proxy, public_addresses

_OURS = "/run/longshore"
_CLIENT_ENV = re.compile(r"PATH|HOME|XDG_RUNTIME_DIR|DOCKER_\w+")
_ASK_SECONDS = 30.0
_CHECKS = ("write the system", "reach the network", "see a file of the host", "make any system call")
_KILLED = 137


class Docker:
    """`docker` is the client's command. As root, programs run as `uid_when_root`, else as this process' user."""

    name = "docker"
    confines = True

    def __init__(
        self,
        image: str,
        docker: str = "docker",
        uid_when_root: int = 65534,
        resolve: Resolver = public_addresses,
        workspace_root: Path | None = None,
    ) -> None:
        self._image = image
        self._docker = docker
        self._uid_when_root = uid_when_root
        self._resolve = resolve
        self._workspace_root = workspace_root
        self._disk = Disk()

    @property
    def uid(self) -> int | None:
        """The user to change to, who must be able to write what is put into a workspace; None: it is ours."""
        return self._uid_when_root if os.geteuid() == 0 else None

    def place(self, command: Command) -> tuple[str, str]:
        return WORKSPACE, HOME

    def ports(self, count: int) -> tuple[int, ...]:
        return fixed_ports(count)

    async def probe(self) -> Probe:
        try:
            code, said = await ask(self._docker, "version", "--format", "{{.Server.Version}}")
        except SandboxError as error:
            return Probe(False, str(error), "install Docker, or set LONGSHORE_SANDBOX=bubblewrap")
        if code:
            fix = "start the Docker engine, and let this user use it (the group `docker`, or DOCKER_HOST)"
            return Probe(False, f"the Docker engine cannot be reached: {said}", fix)
        code, said = await ask(self._docker, "image", "inspect", "--format", "{{.Id}}", self._image)
        if code:
            return Probe(False, f"the image {self._image} is not there: {said}", f"docker pull {self._image}")
        return await try_out(self, _CHECKS, self._workspace_root)

    async def start(self, command: Command) -> Supervised:
        return await whole(self._start(command))

    async def _start(self, command: Command) -> Supervised:
        check_command(command)
        if command.terminal is not None:
            raise SandboxError("a program in a container gets no terminal here: set LONGSHORE_SANDBOX=bubblewrap")
        if "," in str(command.workspace) or any("," in str(path) for path in command.readable):
            raise SandboxError("Docker cannot mount a folder with a comma in its name")
        if any("\n" in value or "\r" in value for value in command.env.values()):
            raise SandboxError("Docker takes no line break in an environment variable")
        if self.uid is not None:
            for folder in (command.workspace, *([command.home] if command.home else ())):
                hand_over(folder, self.uid)
        full = await self._disk.full(command.workspace, command.limits.disk_bytes)
        name = f"longshore-{secrets.token_hex(8)}"
        env = {"HOME": "/tmp" if command.home is None else HOME, "LANG": "C.UTF-8"} | dict(command.env)  # noqa: S108
        async with AsyncExitStack() as held:
            argv, mounts = list(command.argv), [_mount(path, path, read_only=True) for path in command.readable]
            doors = {door.port: door.socket for door in command.doors}
            if command.hosts:
                doors[0] = await held.enter_async_context(open_proxy(command.hosts, self._resolve, self.uid))
            mounts += [_mount(socket, f"{_OURS}/{port}.sock", read_only=True) for port, socket in doors.items()]
            if command.home is not None:
                mounts.append(_mount(command.home.absolute(), HOME))
            if doors:
                mounts.append(_mount(Path(forwarder.__file__), f"{_OURS}/forwarder.py", read_only=True))
                argv = forwarded(
                    argv, "python3", f"{_OURS}/forwarder.py", {port: f"{_OURS}/{port}.sock" for port in doors}
                )
            # By a file, not on the command line: every user of the host could read the environment there.
            listed = os.memfd_create("longshore")
            try:
                os.write(
                    listed, "".join(f"{key}={value}\n" for key, value in env.items()).encode(errors="surrogateescape")
                )
                os.lseek(listed, 0, os.SEEK_SET)
                options = [*self._options(command, name, full), *mounts, "--env-file", f"/dev/fd/{listed}"]
                client = [self._docker, "run", *options, "--entrypoint", argv[0], self._image, *argv[1:]]
                transport, pipes = await spawn(client, env=_client_env(), fds=[listed])
            finally:
                os.close(listed)
            return Supervised(
                transport, pipes, command, ContainerGrip(self._docker, name, pipes), self._disk, held.pop_all()
            )

    def _options(self, command: Command, name: str, full: bool) -> Iterator[str]:
        limits, uid = command.limits, self.uid
        user, group = (os.geteuid(), os.getegid()) if uid is None else (uid, uid)
        file_bytes = 0 if full else limits.file_bytes
        yield from ("--rm", "--interactive", "--init", "--pull", "never", "--name", name, "--label", "longshore")
        yield from ("--network", "none", "--hostname", "sandbox", "--log-driver", "none", "--read-only")
        yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", f"{user}:{group}")
        # One more for the engine's own init.
        yield from ("--pids-limit", str(limits.processes + 1))
        yield from ("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes))
        yield from ("--ulimit", f"fsize={file_bytes}:{file_bytes}", "--ulimit", "core=0:0")
        yield from ("--ulimit", f"nofile={OPEN_FILES}:{OPEN_FILES}", "--shm-size", "64m")
        yield from ("--tmpfs", f"/tmp:rw,nosuid,nodev,exec,mode=1777,size={limits.memory_bytes // 2}")  # noqa: S108
        yield _mount(command.workspace.absolute(), WORKSPACE)
        yield from ("--workdir", inside(command))


class ContainerGrip:
    """A container, held by its name through the client. The engine limits its memory."""

    def __init__(self, docker: str, name: str, pipes: Pipes) -> None:
        self._docker = docker
        self._name = name
        self._pipes = pipes

    def pids(self) -> Sequence[int]:
        return ()

    async def terminate(self) -> None:
        await ask(self._docker, "kill", "--signal", "TERM", self._name)

    async def kill(self) -> None:
        """Asked again while the client lives: a container that is not there yet would begin after having been ended."""
        deadline = asyncio.get_running_loop().time() + KILL_SECONDS
        while not self._pipes.exited.done() and asyncio.get_running_loop().time() < deadline:
            await ask(self._docker, "kill", self._name)
            await asyncio.wait({self._pipes.exited}, timeout=WATCH_SECONDS)

    async def gone(self) -> None:
        """The client returns when the container has ended, and a container's end is everybody's in it."""

    def limit_of(self, exit_code: int) -> Literal["memory"] | None:
        """Nobody here has killed it: then the kernel has, for its memory."""
        return "memory" if exit_code == _KILLED else None


async def ask(docker: str, *arguments: str) -> tuple[int, str]:
    """A short question to the engine: the exit code and what was said."""
    try:
        client = await asyncio.create_subprocess_exec(
            docker, *arguments, env=_client_env(), start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        raise SandboxError(f"{docker} could not be started: {error}") from error
    try:
        said, _ = await asyncio.wait_for(client.communicate(), _ASK_SECONDS)
    except TimeoutError:
        return 1, f"no answer within {_ASK_SECONDS:g} s"
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    return client.returncode or 0, said.decode(errors="replace").strip()


def _client_env() -> dict[str, str]:
    """What the client needs to find its engine; none of the worker's keys."""
    return {name: value for name, value in os.environ.items() if _CLIENT_ENV.fullmatch(name)}


def _mount(source: Path, target: Path | str, read_only: bool = False) -> str:
    return f"--mount=type=bind,src={source},dst={target}{',readonly' if read_only else ''}"
