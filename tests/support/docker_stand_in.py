"""A stand-in for the docker client and its engine: the part of the command line that adapters/sandbox/docker.py uses.

Strict: whatever it does not know is an error, as is an image it does not have. `docker run` runs the program with
bubblewrap, which confines as a container would; `docker kill` ends it. `DOCKER_STAND_IN` names its folder of state."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from adapters.sandbox.bubblewrap import Bubblewrap, _Files
from adapters.sandbox.port import Command, SandboxLimits
from adapters.sandbox.process import Supervised

IMAGE = "longshore/stand-in:1"
STATE = Path(os.environ.get("DOCKER_STAND_IN", "/nonexistent"))


def make_docker(folder: Path) -> Path:
    """An executable `docker` in that folder, with its state beside it."""
    state = folder / "containers"
    state.mkdir(mode=0o700)
    modules = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)])
    program = folder / "docker"
    program.write_text(
        f"#!/bin/sh\nDOCKER_STAND_IN='{state}' PYTHONPATH='{modules}' exec '{sys.executable}' '{__file__}' \"$@\"\n"
    )
    program.chmod(0o755)
    return program


def main() -> int:
    parser = argparse.ArgumentParser(prog="docker", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    version = commands.add_parser("version", allow_abbrev=False)
    version.add_argument("--format", required=True)
    image = commands.add_parser("image", allow_abbrev=False)
    image.add_argument("verb", choices=["inspect"])
    image.add_argument("--format", required=True)
    image.add_argument("name")
    kill = commands.add_parser("kill", allow_abbrev=False)
    kill.add_argument("--signal", default="KILL", choices=["KILL", "TERM"])
    kill.add_argument("name")
    _add_run(commands.add_parser("run", allow_abbrev=False))
    arguments = parser.parse_args()
    if (STATE / "engine-down").exists():
        return _say("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
    if arguments.command == "version":
        print("27.0.0")
        return 0
    if arguments.command == "image":
        return 0 if arguments.name == IMAGE else _say(f"Error: No such image: {arguments.name}")
    if arguments.command == "kill":
        return _kill(arguments.name, arguments.signal)
    return asyncio.run(_run(arguments))


def _add_run(run: argparse.ArgumentParser) -> None:
    for flag in ("--rm", "--interactive", "--init", "--read-only"):
        run.add_argument(flag, action="store_true", required=True)
    for option, choices in (
        ("--network", ["none"]),
        ("--pull", ["never"]),
        ("--cap-drop", ["ALL"]),
        ("--security-opt", ["no-new-privileges"]),
        ("--log-driver", ["none"]),
    ):
        run.add_argument(option, choices=choices, required=True)
    for option in ("--name", "--label", "--hostname", "--user", "--shm-size", "--tmpfs", "--workdir", "--env-file"):
        run.add_argument(option, required=True)
    for option in ("--pids-limit", "--memory", "--memory-swap"):
        run.add_argument(option, required=True, type=int)
    run.add_argument("--ulimit", action="append", required=True)
    run.add_argument("--mount", action="append", required=True)
    run.add_argument("--entrypoint", required=True)
    run.add_argument("image")
    run.add_argument("arguments", nargs=argparse.REMAINDER)


async def _run(arguments: argparse.Namespace) -> int:
    if arguments.image != IMAGE:
        _say(f"Unable to find image '{arguments.image}' locally")
        return 125
    uid = int(arguments.user.split(":")[0])
    if uid == 0:
        _say("this stand-in runs nothing as root")
        return 125
    mounts = [dict(part.partition("=")[::2] for part in mount.split(",")) for mount in arguments.mount]
    assert all(mount["type"] == "bind" and Path(mount["src"]).exists() for mount in mounts), mounts
    writable = [mount for mount in mounts if "readonly" not in mount]
    assert [mount["dst"] for mount in writable] in (["/workspace"], ["/workspace", "/home/agent"]), mounts
    limits = dict(limit.split("=") for limit in arguments.ulimit)
    with open(arguments.env_file, errors="surrogateescape") as lines:
        env = dict(line.rstrip("\n").split("=", 1) for line in lines)
    command = Command(
        (arguments.entrypoint, *arguments.arguments),
        Path(writable[0]["src"]),
        folder=os.path.relpath(arguments.workdir, "/workspace"),
        env=env,
        limits=SandboxLimits(
            memory_bytes=arguments.memory,
            processes=arguments.pids_limit,
            file_bytes=int(limits["fsize"].split(":")[0]),
            disk_bytes=1 << 50,
        ),
    )
    engine = _Engine(uid, [mount for mount in mounts if mount["dst"] != "/workspace"])
    process = await engine.start(command)
    name = STATE / arguments.name
    name.write_text(str(os.getpid()))
    loop = asyncio.get_running_loop()
    # The engine's own signals, told apart from those that are meant for the client.
    loop.add_signal_handler(signal.SIGUSR1, lambda: loop.create_task(process.grip.terminate()))
    loop.add_signal_handler(signal.SIGUSR2, lambda: loop.create_task(process.grip.kill()))
    try:
        return await _attach(process)
    finally:
        name.unlink()


class _Engine(Bubblewrap):
    """bubblewrap with a container's mounts."""

    def __init__(self, uid: int, mounts: list[dict[str, str]]) -> None:
        super().__init__(uid)
        self.mounts = mounts

    def _arguments(self, command: Command, readable: Sequence[Path], files: _Files) -> Iterator[str]:
        yield from super()._arguments(command, readable, files)
        for mount in self.mounts:
            source = Path(mount["src"])
            # An engine reads as root what the user inside could not come to.
            if source.is_file():
                yield from ("--file", files.add(source.read_bytes()), mount["dst"])
            else:
                yield from ("--ro-bind" if "readonly" in mount else "--bind", mount["src"], mount["dst"])


async def _attach(process: Supervised) -> int:
    """Lead our own streams to the container's, as the client does."""
    loop = asyncio.get_running_loop()
    given = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(given), sys.stdin)

    async def feed() -> None:
        while data := await given.read(1 << 16):
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.close()

    async def show(source: asyncio.StreamReader, target: int) -> None:
        while data := await source.read(1 << 16):
            view = memoryview(data)
            while view:
                view = view[await loop.run_in_executor(None, os.write, target, view) :]

    feeding = asyncio.create_task(feed())
    await asyncio.gather(show(process.stdout, 1), show(process.stderr, 2))
    code = await process.wait()
    feeding.cancel()
    await asyncio.wait({feeding})
    await process.stop()
    return 137 if process.passed else code


def _kill(name: str, number: str) -> int:
    try:
        pid = int((STATE / name).read_text())
    except (FileNotFoundError, ValueError):
        return _say(f"Error response from daemon: No such container: {name}")
    os.kill(pid, signal.SIGUSR1 if number == "TERM" else signal.SIGUSR2)
    print(name)
    return 0


def _say(text: str) -> int:
    print(text, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
