"""What every sandbox promises, whichever it is. Where `none` or an engine promises less, the test says so by name."""

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.errors import SandboxError
from adapters.sandbox import docker, process, proxy
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.choice import make_sandbox
from adapters.sandbox.docker import Docker
from adapters.sandbox.none import Unconfined
from adapters.sandbox.port import Command, Door, Sandbox, SandboxLimits
from adapters.sandbox.running import KEEP_BYTES, Finished, run
from tests.support.docker_stand_in import IMAGE, make_docker
from tests.support.servers import wait_until

pytestmark = pytest.mark.spec("T6")

MB = 1 << 20
# What a shell sets by itself.
SHELL_ENV = {"PWD", "OLDPWD", "SHLVL", "_"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: below that, as root, the sandbox's user could not come."""
    made = Path(tempfile.mkdtemp(prefix="longshore-test-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def workspace(folder: Path) -> Path:
    made = folder / "workspace"
    made.mkdir()
    return made


async def loopback(host: str, port: int) -> list[tuple[int, str]]:
    """Every name is this machine: what the real resolver refuses is tested with it."""
    return [(socket.AF_INET, "127.0.0.1")]


@pytest.fixture(params=["bubblewrap", "docker", "none"])
def sandbox(request: pytest.FixtureRequest, folder: Path) -> Sandbox:
    if request.param == "bubblewrap":
        return Bubblewrap(resolve=loopback)
    if request.param == "docker":
        return Docker(IMAGE, docker=str(make_docker(folder)), resolve=loopback)
    return Unconfined()


def sh(workspace: Path, script: str, limits: SandboxLimits | None = None) -> Command:
    return Command(("/bin/sh", "-c", script), workspace, limits=limits or SandboxLimits())


def python(workspace: Path, script: str, *arguments: str, limits: SandboxLimits | None = None) -> Command:
    return Command(("python3", "-c", script, *arguments), workspace, limits=limits or SandboxLimits())


class Marked:
    """A `sleep` of a length that nobody else sleeps, to be found among all processes of the machine."""

    def __init__(self) -> None:
        self.seconds = f"9{secrets.randbelow(10**9):09d}"

    def alive(self) -> list[int]:
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                if words[:2] == [b"sleep", self.seconds.encode()]:
                    found.append(int(name))
        return found

    async def appear(self, count: int) -> None:
        """A shell goes on before its child has become another program."""
        await asyncio.to_thread(wait_until, lambda: len(self.alive()) == count, 30, f"{count} to sleep")


@pytest.fixture
def marked() -> Marked:
    return Marked()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs that end by force only, to which more time would make no difference."""
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.2)
    for module in (process, docker):
        monkeypatch.setattr(module, "KILL_SECONDS", 1.0)


@pytest.mark.parametrize("code", [0, 3, 255])
async def test_the_exit_code_is_the_programs(sandbox: Sandbox, workspace: Path, code: int) -> None:
    finished = await run(sandbox, sh(workspace, f"exit {code}"))
    assert (finished.exit_code, finished.ended) == (code, "exited")
    assert finished.words == f"exit code {code}"


async def test_an_end_by_a_signal_is_told_as_shells_tell_it(sandbox: Sandbox, workspace: Path) -> None:
    finished = await run(sandbox, sh(workspace, "kill -TERM $$"))
    assert (finished.exit_code, finished.ended) == (143, "exited")


async def test_bytes_go_in_and_come_out_unchanged(sandbox: Sandbox, workspace: Path) -> None:
    sent = bytes(range(256)) * 1000
    started = await sandbox.start(Command(("cat",), workspace))
    started.stdin.write(sent)
    started.stdin.close()
    assert await started.stdout.read() == sent
    assert await started.wait() == 0
    await started.stop()


async def test_the_two_streams_are_kept_apart(sandbox: Sandbox, workspace: Path) -> None:
    finished = await run(sandbox, sh(workspace, "cat; echo wrong >&2"), stdin=b"right")
    assert (finished.stdout, finished.stderr) == ("right", "wrong\n")


async def test_a_program_can_be_talked_with(sandbox: Sandbox, workspace: Path) -> None:
    started = await sandbox.start(sh(workspace, 'while read word; do echo "you said $word"; done'))
    for word in (b"one", b"two"):
        started.stdin.write(word + b"\n")
        assert await started.stdout.readline() == b"you said " + word + b"\n"
    started.stdin.close()
    assert await started.wait() == 0
    await started.stop()


async def test_a_program_need_not_read_what_it_is_given(sandbox: Sandbox, workspace: Path) -> None:
    assert (await run(sandbox, sh(workspace, "exec true"), stdin=b"x" * MB)).exit_code == 0


async def test_the_environment_is_what_was_handed_in(
    sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_KEY", "a secret of the worker")
    env = {"GIVEN": "a = 'b' $HOME ü", "EMPTY": ""}
    finished = await run(sandbox, Command(("env",), workspace, env=env))
    seen = dict(line.split("=", 1) for line in finished.stdout.splitlines())
    assert {name: seen[name] for name in env} == env
    assert seen.keys() - SHELL_ENV == {"PATH", "HOME", "LANG", *env}


async def test_a_program_begins_in_its_folder(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "part" / "deeper").mkdir(parents=True)
    finished = await run(sandbox, Command(("pwd",), workspace, folder="part/deeper"))
    root = workspace if sandbox.name == "none" else Path("/workspace")
    assert finished.stdout.strip() == str(root / "part/deeper")


async def test_the_workspace_is_shared_with_the_host(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "given").write_text("from outside")
    finished = await run(sandbox, sh(workspace, "cat given; mkdir new; echo from inside > new/file"))
    assert (finished.stdout, finished.stderr) == ("from outside", "")
    assert (workspace / "new" / "file").read_text() == "from inside\n"


async def test_a_program_of_the_hosts_can_be_made_readable(sandbox: Sandbox, workspace: Path, folder: Path) -> None:
    tool = folder / "tools" / "greet"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho hello from the tool\n")
    tool.chmod(0o755)
    finished = await run(sandbox, Command((str(tool),), workspace, readable=(tool.parent,)))
    assert finished.stdout == "hello from the tool\n", finished.stderr


@pytest.mark.parametrize("name", ["..", "part/../..", "/", "/etc", "missing", "a\0b"])
async def test_a_folder_outside_is_refused(sandbox: Sandbox, workspace: Path, name: str) -> None:
    with pytest.raises(SandboxError):
        await sandbox.start(Command(("true",), workspace, folder=name))


async def test_a_missing_workspace_is_refused(sandbox: Sandbox, folder: Path) -> None:
    with pytest.raises(SandboxError, match="not there"):
        await sandbox.start(Command(("true",), folder / "nowhere"))


async def test_arguments_arrive_as_they_are(sandbox: Sandbox, workspace: Path) -> None:
    odd = ["", " ", "a\nb", "$(id)", "*", "'\"`\\", "ü\u2028🎈", "\udcff\udcfe", "-x", "x" * 100_000]
    script = "import os, sys; print([os.fsencode(a).hex() for a in sys.argv[1:]])"
    finished = await run(sandbox, python(workspace, script, *odd), keep=MB)
    assert finished.stdout.strip() == str([os.fsencode(word).hex() for word in odd])


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ((), {}),
        (("",), {}),
        (("-c",), {}),
        (("echo", "a\0b"), {}),
        (("echo", "\ud800"), {}),
        (("true",), {"A": "a\0b"}),
        (("true",), {"A=B": "c"}),
        (("true",), {"": "c"}),
    ],
)
async def test_what_no_program_can_be_given_is_refused(
    sandbox: Sandbox, workspace: Path, argv: tuple[str, ...], env: dict[str, str]
) -> None:
    with pytest.raises(SandboxError):
        await sandbox.start(Command(argv, workspace, env=env))


async def test_too_long_a_command_line_is_refused(sandbox: Sandbox, workspace: Path) -> None:
    with pytest.raises(SandboxError, match="could not be started"):
        await sandbox.start(Command(("echo", *["x" * 100_000] * 100), workspace))


async def test_a_program_that_is_not_there_is_named(sandbox: Sandbox, workspace: Path) -> None:
    finished = await run(sandbox, Command(("no-such-program", "x"), workspace))
    assert finished.exit_code == 127
    assert "no-such-program" in finished.stderr


async def test_a_file_that_is_no_program_is_named(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "notes.txt").write_text("not a program")
    finished = await run(sandbox, Command(("./notes.txt",), workspace))
    assert finished.exit_code == 126
    assert "notes.txt" in finished.stderr


@pytest.mark.usefixtures("impatient")
async def test_a_program_that_takes_too_long_is_ended(sandbox: Sandbox, workspace: Path, marked: Marked) -> None:
    limits = SandboxLimits(seconds=1)
    finished = await run(sandbox, sh(workspace, f"echo begun; sleep {marked.seconds}", limits))
    assert (finished.ended, finished.stdout) == ("time", "begun\n")
    assert "longer than the 1 s" in finished.words
    assert marked.alive() == []


@pytest.mark.usefixtures("impatient")
async def test_a_program_that_prints_too_much_is_ended(sandbox: Sandbox, workspace: Path) -> None:
    finished = await run(sandbox, Command(("yes",), workspace, limits=SandboxLimits(output_bytes=MB)))
    assert finished.ended == "output"
    assert "printed more than the 1 MB" in finished.words
    assert len(finished.stdout) < KEEP_BYTES + 100


@pytest.mark.usefixtures("impatient")
async def test_too_much_on_stderr_counts_as_well(sandbox: Sandbox, workspace: Path) -> None:
    finished = await run(sandbox, sh(workspace, "yes >&2", SandboxLimits(output_bytes=MB)))
    assert (finished.ended, finished.stdout) == ("output", "")


async def test_long_output_keeps_its_beginning_and_its_end(sandbox: Sandbox, workspace: Path) -> None:
    finished = await run(sandbox, sh(workspace, "echo first; yes | head -c 500000; echo last"))
    assert finished.ended == "exited"
    assert finished.stdout.startswith("first\ny\n")
    assert finished.stdout.endswith("y\nlast\n")
    assert f"{6 + 500_000 + 5 - KEEP_BYTES:,} bytes left out" in finished.stdout


HOLD = """
import time
held = []
while True:
    try:
        held.append(bytearray(b"x") * (8 << 20))
    except MemoryError:
        time.sleep(0.1)
"""
SPREAD = f"""
import os
for _ in range(8):
    if not os.fork():
        exec({HOLD!r}.replace("while True:", "for _ in range(8):") + "time.sleep(1000)")
os.wait()
"""


@pytest.mark.parametrize("script", [HOLD, SPREAD], ids=["one process", "many small ones"])
async def test_a_program_that_holds_too_much_memory_is_ended(sandbox: Sandbox, workspace: Path, script: str) -> None:
    finished = await run(sandbox, python(workspace, script, limits=SandboxLimits(memory_bytes=256 * MB)))
    assert finished.ended == "memory", finished
    assert "256 MB of memory" in finished.words


FORKS = """
import os, signal
count = 0
while True:
    try:
        pid = os.fork()
    except OSError:
        print(count, "then no more")
        break
    if not pid:
        signal.pause()
    count += 1
"""


async def test_a_program_may_start_so_many_others(sandbox: Sandbox, workspace: Path) -> None:
    if sandbox.name == "none":
        return  # without a user namespace the kernel counts all processes of the user, and none of root's
    finished = await run(sandbox, python(workspace, FORKS, limits=SandboxLimits(processes=20)))
    count, words = finished.stdout.strip().split(" ", 1)
    assert words == "then no more"
    assert 10 <= int(count) <= 22


async def test_a_file_grows_to_its_limit(sandbox: Sandbox, workspace: Path) -> None:
    finished = await run(sandbox, sh(workspace, "exec head -c 3M /dev/zero > big", SandboxLimits(file_bytes=MB)))
    assert finished.exit_code != 0
    assert (workspace / "big").stat().st_size == MB


FILL = "i=0; while head -c 1M /dev/urandom > file-$i; do i=$((i+1)); done"
FILL_DELETED = """
import os, time
held = []
while True:
    name = f"file-{len(held)}"
    held.append(open(name, "wb", 0))
    os.unlink(name)
    held[-1].write(os.urandom(1 << 20))
"""


async def test_a_workspace_grows_to_its_limit_and_can_then_be_emptied(sandbox: Sandbox, workspace: Path) -> None:
    limits = SandboxLimits(disk_bytes=20 * MB)
    finished = await run(sandbox, sh(workspace, FILL, limits))
    assert finished.ended == "disk", finished
    assert "holds more than the 20 MB" in finished.words
    refused = await run(sandbox, sh(workspace, "echo one more > extra", limits))
    assert refused.exit_code != 0
    assert not (workspace / "extra").exists() or not (workspace / "extra").read_bytes()
    emptied = await run(sandbox, sh(workspace, "rm -f file-* && ls", limits))
    assert emptied.exit_code == 0
    again = await run(sandbox, sh(workspace, "echo room again > extra", limits))
    assert (again.exit_code, again.stderr) == (0, "")


async def test_deleted_files_that_are_held_open_count(sandbox: Sandbox, workspace: Path) -> None:
    if sandbox.name == "docker":
        return  # the files of a container's processes are the engine's to see
    finished = await run(sandbox, python(workspace, FILL_DELETED, limits=SandboxLimits(disk_bytes=20 * MB)))
    assert finished.ended == "disk", finished


async def test_files_in_a_folder_that_nobody_may_read_count(sandbox: Sandbox, workspace: Path) -> None:
    script = f"mkdir hidden && cd hidden && chmod 300 . && {FILL}"
    finished = await run(sandbox, sh(workspace, script, SandboxLimits(disk_bytes=20 * MB)))
    (workspace / "hidden").chmod(0o700)
    assert finished.ended == "disk", finished


@pytest.mark.usefixtures("impatient")
async def test_stopping_ends_the_children_too(sandbox: Sandbox, workspace: Path, marked: Marked) -> None:
    script = f"sleep {marked.seconds} & sleep {marked.seconds} & echo ready; wait"
    started = await sandbox.start(sh(workspace, script))
    assert await started.stdout.readline() == b"ready\n"
    await marked.appear(2)
    await started.stop()
    assert marked.alive() == []
    await started.stop()
    assert await started.wait() != 0
    assert started.passed is None


@pytest.mark.usefixtures("impatient")
async def test_stopping_ends_whoever_does_not_listen(sandbox: Sandbox, workspace: Path, marked: Marked) -> None:
    started = await sandbox.start(sh(workspace, f"trap '' TERM HUP INT; echo ready; sleep {marked.seconds}"))
    assert await started.stdout.readline() == b"ready\n"
    await started.stop()
    assert marked.alive() == []


async def test_a_program_is_asked_to_end_before_it_is_ended(sandbox: Sandbox, workspace: Path, marked: Marked) -> None:
    script = f"trap 'echo asked > asked; exit 0' TERM; sleep {marked.seconds} & echo ready; wait"
    started = await sandbox.start(sh(workspace, script))
    assert await started.stdout.readline() == b"ready\n"
    await started.stop()
    assert (workspace / "asked").read_text() == "asked\n"
    assert marked.alive() == []


async def test_a_program_has_the_time_it_was_given_to_put_its_things_in_order(
    sandbox: Sandbox, workspace: Path, marked: Marked
) -> None:
    script = f"trap 'sleep 1.5; echo done > done; exit 0' TERM; sleep {marked.seconds} & echo ready; wait"
    started = await sandbox.start(replace(sh(workspace, script), parting_seconds=20.0))
    assert await started.stdout.readline() == b"ready\n"
    await started.stop()
    assert (workspace / "done").read_text() == "done\n"


async def test_a_program_that_ends_with_its_input_is_not_killed(sandbox: Sandbox, workspace: Path) -> None:
    started = await sandbox.start(sh(workspace, "cat > /dev/null; exit 7"))
    await started.stop()
    assert await started.wait() == 7


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("seconds", [0.0, 0.1])
async def test_a_start_that_is_cancelled_leaves_nothing_and_does_not_hang(
    sandbox: Sandbox, workspace: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Also just between the child's beginning and that of its pipes, which takes long where much else is done."""
    loop = asyncio.get_running_loop()
    connect = loop.connect_write_pipe

    async def connect_late(*given: Any, **more: Any) -> Any:
        await asyncio.sleep(0.3)
        return await connect(*given, **more)

    monkeypatch.setattr(loop, "connect_write_pipe", connect_late)
    starting = asyncio.create_task(sandbox.start(sh(workspace, f"sleep {marked.seconds}")))
    await asyncio.wait({starting}, timeout=seconds)
    starting.cancel()
    await asyncio.wait({starting}, timeout=20)
    assert starting.cancelled(), "it hangs"
    assert marked.alive() == []


async def test_several_may_wait_for_the_same_program(sandbox: Sandbox, workspace: Path) -> None:
    started = await sandbox.start(sh(workspace, "read x; exit 4"))
    waiting = [asyncio.create_task(started.wait()) for _ in range(3)]
    impatient = asyncio.create_task(started.wait())
    await asyncio.sleep(0)
    impatient.cancel()
    started.stdin.close()
    assert await asyncio.gather(*waiting) == [4, 4, 4]
    await started.stop()


@pytest.mark.usefixtures("impatient")
async def test_a_cancelled_run_leaves_no_process(sandbox: Sandbox, workspace: Path, marked: Marked) -> None:
    os.mkfifo(workspace / "ready")
    (workspace / "ready").chmod(0o666)
    command = sh(workspace, f"sleep {marked.seconds} & echo yes > ready; sleep {marked.seconds}")
    running = asyncio.create_task(run(sandbox, command))
    assert await asyncio.to_thread((workspace / "ready").read_text) == "yes\n"
    await marked.appear(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert marked.alive() == []


async def test_children_in_the_background_do_not_keep_a_run_open(
    sandbox: Sandbox, workspace: Path, marked: Marked
) -> None:
    finished = await run(sandbox, sh(workspace, f"sleep {marked.seconds} & echo done"))
    assert (finished.exit_code, finished.ended, finished.stdout) == (0, "exited", "done\n")
    assert marked.alive() == []


async def test_many_run_at_the_same_time(sandbox: Sandbox, workspace: Path) -> None:
    commands = [sh(workspace, f"cat; echo {number}") for number in range(8)]
    finished = await asyncio.gather(*(run(sandbox, command, stdin=b"number ") for command in commands))
    assert [one.stdout for one in finished] == [f"number {number}\n" for number in range(8)]


@pytest.fixture
async def web(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A server that says what it was asked; its port is one of those that may be reached."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        body = head.split(b"\r\n")[0] + b" " + await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(proxy, "PORTS", (80, 443, port))
    yield port
    server.close()
    await server.wait_closed()


FETCH = """
import sys, urllib.error, urllib.request
data = sys.argv[2].encode() if len(sys.argv) > 2 else None
try:
    print(urllib.request.urlopen(sys.argv[1], data).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
TUNNEL = """
import http.client, os, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
host, port = sys.argv[1].split(":")
connection = http.client.HTTPConnection(proxy.hostname, proxy.port)
connection.set_tunnel(host, int(port))
try:
    connection.request("GET", "/through")
    print(connection.getresponse().read().decode())
except OSError as error:
    print(error)
"""


async def test_named_hosts_can_be_reached_and_no_other(sandbox: Sandbox, workspace: Path, web: int) -> None:
    if sandbox.name == "none":
        return  # everything can be reached
    hosts = ("api.example", "*.wide.example")

    async def say(script: str, *arguments: str) -> str:
        command = Command(("python3", "-c", script, *arguments), workspace, hosts=hosts)
        finished = await run(sandbox, command)
        assert finished.exit_code == 0, finished
        return finished.stdout.strip()

    assert await say(FETCH, f"http://API.example:{web}/path?a=b") == "GET /path?a=b HTTP/1.1"
    assert await say(FETCH, f"http://api.example:{web}/", "sent") == "POST / HTTP/1.1 sent"
    assert await say(FETCH, f"http://one.wide.example:{web}/") == "GET / HTTP/1.1"
    assert await say(TUNNEL, f"api.example:{web}") == "GET /through HTTP/1.1"
    refused = await say(FETCH, f"http://other.example:{web}/")
    assert refused.startswith("403")
    assert "other.example is not among the hosts" in refused
    assert "403" in await say(TUNNEL, f"wide.example:{web}")
    assert "port 22 may not be reached" in await say(FETCH, "http://api.example:22/")


@pytest.mark.usefixtures("impatient")
async def test_a_program_with_hosts_is_otherwise_the_same(
    sandbox: Sandbox, workspace: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(workspace.parent))

    def command(script: str) -> Command:
        return Command(("/bin/sh", "-c", script), workspace, hosts=("api.example",))

    finished = await run(sandbox, command("cat; exit 5"), stdin=b"given")
    assert (finished.exit_code, finished.stdout) == (5, "given")
    missing = await run(sandbox, Command(("no-such-program",), workspace, hosts=("api.example",)))
    assert missing.exit_code == 127
    assert "no-such-program" in missing.stderr
    started = await sandbox.start(command(f"sleep {marked.seconds} & echo ready; wait"))
    assert await started.stdout.readline() == b"ready\n"
    await started.stop()
    assert marked.alive() == []
    assert not list(workspace.parent.glob("longshore-proxy-*/proxy.sock"))


async def test_a_program_has_a_home_of_its_own_that_stays(sandbox: Sandbox, workspace: Path, folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    script = 'test ! -e "$HOME/kept" || cat "$HOME/kept"; echo from before > "$HOME/kept"; pwd; echo "$HOME"'
    command = Command(("/bin/sh", "-c", script), workspace, home=home)
    place = list(sandbox.place(command))
    assert (await run(sandbox, command)).stdout.split("\n")[:-1] == place
    assert (await run(sandbox, command)).stdout.split("\n")[:-1] == ["from before", *place]
    assert (home / "kept").read_text() == "from before\n"


async def test_a_home_grows_to_its_limit_as_well(sandbox: Sandbox, workspace: Path, folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    script = 'head -c 20000000 /dev/zero > "$HOME/large"; sync; sleep 60'
    limits = SandboxLimits(disk_bytes=4 << 20)
    assert (await run(sandbox, Command(("/bin/sh", "-c", script), workspace, home=home, limits=limits))).ended == "disk"


ASK_DOORS = """
import socket, sys
for port in map(int, sys.argv[1:]):
    with socket.create_connection(("127.0.0.1", port)) as door:
        door.sendall(b"knock")
        door.shutdown(socket.SHUT_WR)
        print(door.makefile().read())
"""


async def test_doors_lead_to_services_of_the_host(sandbox: Sandbox, workspace: Path, folder: Path) -> None:
    """Each to its own, also beside the proxy for hosts."""

    def service(name: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"{name} heard {(await reader.read()).decode()}".encode())
            writer.close()

        return answer

    ports = sandbox.ports(2)
    sockets = [folder / "one.sock", folder / "two.sock"]
    servers = [await asyncio.start_unix_server(service(path.stem), path) for path in sockets]
    for path in sockets:
        path.chmod(0o666)
    doors = tuple(Door(port, path) for port, path in zip(ports, sockets, strict=True))
    for hosts in ((), ("api.example",)):
        argv = ("python3", "-c", ASK_DOORS, *map(str, ports))
        finished = await run(sandbox, Command(argv, workspace, hosts=hosts, doors=doors))
        assert finished.stdout.split("\n")[:2] == ["one heard knock", "two heard knock"], finished
    for server in servers:
        server.close()


async def test_the_probe_finds_nothing_wrong(sandbox: Sandbox) -> None:
    probe = await sandbox.probe()
    assert probe.ok, probe


async def test_the_probe_of_docker_says_what_is_missing(folder: Path) -> None:
    client = str(make_docker(folder))
    missing = await Docker("nobody/nothing:1", docker=client).probe()
    assert not missing.ok
    assert missing.fix == "docker pull nobody/nothing:1"
    (folder / "containers" / "engine-down").touch()
    down = await Docker(IMAGE, docker=client).probe()
    assert not down.ok
    assert "start the Docker engine" in down.fix
    absent = await Docker(IMAGE, docker=str(folder / "nothing")).probe()
    assert not absent.ok
    assert "install Docker" in absent.fix


async def test_the_probe_of_bubblewrap_says_when_its_user_cannot_come_there(folder: Path) -> None:
    if os.geteuid() != 0:
        return  # there is no other user then
    closed = folder / "closed" / "workspaces"
    closed.mkdir(parents=True)
    closed.parent.chmod(0o700)
    probe = await Bubblewrap(workspace_root=closed).probe()
    assert not probe.ok
    assert str(closed.parent) in probe.detail
    assert "WORKSPACE_ROOT" in probe.fix


def test_the_settings_name_the_sandbox(folder: Path) -> None:
    for name in ("bubblewrap", "docker", "none"):
        assert make_sandbox(name, image=IMAGE, uid=65534).name == name
    with pytest.raises(SandboxError, match="there are bubblewrap, docker, none"):
        make_sandbox("chroot", image="", uid=65534)
    with pytest.raises(SandboxError, match="not run as root"):
        make_sandbox("bubblewrap", image="", uid=0)


def test_how_a_program_ended_is_said_in_words() -> None:
    assert Finished(3, "", "", "exited", 0.1).words == "exit code 3"
    assert Finished(137, "", "", "time", 60.02).words == "ended after 60 s: it took longer than the 60 s it may"


@pytest.mark.spec("T6")
async def test_a_program_that_is_tedious_to_look_at_holds_up_no_event_loop(
    sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of open files in a hundred processes take seconds to look through."""
    threads: set[str] = set()

    def watched(*_: object) -> bool:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return True

    monkeypatch.setattr(process, "exceeds", watched)
    finished = await run(sandbox, Command(("sleep", "60"), workspace))
    assert finished.ended == "memory"
    assert threads == {"longshore-watch"}


@pytest.mark.spec("T6")
async def test_a_workspace_may_be_named_from_where_the_worker_is(
    sandbox: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make up` does by default."""
    (workspace / "file").write_text("found")
    monkeypatch.chdir(workspace.parent)
    finished = await run(sandbox, Command(("cat", "file"), Path(workspace.name)))
    assert (finished.exit_code, finished.stdout, finished.stderr) == (0, "found", "")


AT_TERMINAL = """
import os, signal, sys
def say(where, what):
    os.write(where, f"{what} {os.get_terminal_size(0).columns}\\n".encode())
def interrupted(*_):
    say(1, "interrupted")
    sys.exit(5)
signal.signal(signal.SIGINT, interrupted)
say(2, "errors")
say(1, "waits")
while True:
    signal.pause()
"""


@pytest.mark.spec("P12", "T6")
async def test_a_program_can_have_a_terminal_of_its_own(sandbox: Sandbox, workspace: Path) -> None:
    """A real one: of a size, with Ctrl-C, and its errors on it."""
    command = Command(("python3", "-c", AT_TERMINAL), workspace, terminal=(30, 100))
    if sandbox.name == "docker":
        with pytest.raises(SandboxError, match="gets no terminal here"):
            await sandbox.start(command)
        return
    started = await sandbox.start(command)
    assert await started.stdout.readuntil(b"waits 100\r\n") == b"errors 100\r\nwaits 100\r\n"
    started.resize(50, 60)
    started.stdin.write(b"\x03")
    assert await started.stdout.read() == b"^Cinterrupted 60\r\n"
    assert await started.stderr.read() == b""
    assert await started.wait() == 5
    await started.stop()
    started.resize(1, 1)  # too late, and no harm


@pytest.mark.spec("P12", "T6")
async def test_stopping_hangs_up_a_terminal(sandbox: Sandbox, workspace: Path, marked: Marked) -> None:
    """Which ends a shell that does not mind TERM, and all of its jobs."""
    if sandbox.name == "docker":
        return  # has none
    script = f"sleep {marked.seconds} & sleep {marked.seconds}"
    started = await sandbox.start(Command(("bash", "--norc", "-ic", script), workspace, terminal=(30, 100)))
    await marked.appear(2)
    await started.stop()
    assert marked.alive() == []
    await started.stdout.read()  # it has an end


@pytest.mark.spec("P12", "T6")
async def test_a_program_that_is_not_there_says_so_on_its_terminal(sandbox: Sandbox, workspace: Path) -> None:
    if sandbox.name == "docker":
        return  # has none
    started = await sandbox.start(Command(("no-such-program",), workspace, terminal=(30, 100)))
    assert b"no-such-program" in await started.stdout.read()
    assert await started.wait() == 127
    await started.stop()
