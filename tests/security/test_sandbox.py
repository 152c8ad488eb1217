"""Attacks from inside the bubblewrap sandbox. Each is a program that tells what it could do; none may succeed."""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from adapters.addresses import resolve_public
from adapters.sandbox.bubblewrap import _ETC, Bubblewrap
from adapters.sandbox.port import Command, SandboxLimits
from adapters.sandbox.running import run
from tests.support.servers import wait_until

pytestmark = pytest.mark.spec("T6")

MB = 1 << 20
SECRET = "the secret outside"

# Attacks are Python; what is printed after BREACH is what was reached. An error is a defence that held.
PREAMBLE = """
import ctypes, errno, fcntl, glob, os, platform, signal, socket, struct, subprocess, sys, termios
libc = ctypes.CDLL(None, use_errno=True)
HOST, PORT, PID, SECRET = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
ARM = platform.machine() == "aarch64"

def breach(what):
    print("BREACH", what)

def call(x86, arm, *arguments):
    # long arguments: pointers must not be cut to 32 bits
    result = libc.syscall(ctypes.c_long(arm if ARM else x86), *map(ctypes.c_long, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def refused(code, x86, arm, *arguments):
    # The filter's own answer, not another obstacle further in.
    try:
        breach(call(x86, arm, *arguments))
    except OSError as error:
        if error.errno != code:
            breach(f"the filter let it pass: {error}")
        raise
"""
ATTACKS = {
    # files
    "the host's passwords": "breach(open('/etc/shadow').read())",
    "the host's users": "assert 'root' in open('/etc/passwd').read(); breach('root is listed')",
    "another workspace": "breach(open(HOST + '/other/secret').read())",
    "the worker's home": "breach([os.listdir(path) for path in ('/root', '/home') if os.path.exists(path)][0])",
    "the host's /tmp": "breach(os.stat(HOST))",
    "a way up from the workspace": "breach(open('/workspace/../other/secret').read())",
    "a link to the host's root": """
        os.symlink('/', 'root')
        breach(open('root' + HOST + '/other/secret').read())
    """,
    "a hard link to the system": "os.link('/usr/bin/env', 'env'); breach('linked')",
    "writing the system": "open('/usr/bin/longshore-attack', 'w'); breach('written')",
    "writing /etc": "open('/etc/longshore-attack', 'w'); breach('written')",
    "writing the root": "open('/longshore-attack', 'w'); breach('written')",
    "writing /dev": "open('/dev/longshore-attack', 'w'); breach('written')",
    "changing modes of the system": "os.chmod('/usr/bin/env', 0o4777); breach('changed')",
    "/sys": "breach(os.listdir('/sys'))",
    "physical memory": "breach(open('/dev/mem', 'rb').read(1))",
    "kernel memory": "breach(open('/proc/kcore', 'rb').read(1))",
    "the kernel's log": "breach(open('/dev/kmsg', 'rb').read(1))",
    "a disk": "os.mknod('disk', 0o60666, os.makedev(8, 0)); breach('made')",
    "a file by its handle": "refused(errno.EPERM, 304, 265, 0, 0, 0)",
    "a descriptor left open": """
        left = [fd for fd in map(int, os.listdir('/proc/self/fd')) if fd > 2 and os.path.exists(f'/proc/self/fd/{fd}')]
        assert left
        breach([os.readlink(f'/proc/self/fd/{fd}') for fd in left])
    """,
    # other processes and the kernel
    "the worker's environment": """
        for path in glob.glob('/proc/[0-9]*/environ'):
            if 'MODEL_KEY' in open(path).read():
                breach(path)
    """,
    "the worker's command line": """
        for path in glob.glob('/proc/[0-9]*/cmdline'):
            if 'py' + 'test' in open(path).read():
                breach(path)
    """,
    "another root by /proc": """
        for path in glob.glob('/proc/[0-9]*/root') + glob.glob('/proc/[0-9]*/cwd'):
            if os.path.exists(path + HOST) or os.path.exists(path + '/etc/shadow'):
                breach(path)
    """,
    "a setting of the kernel": """
        value = open('/proc/sys/kernel/core_pattern').read()
        open('/proc/sys/kernel/core_pattern', 'w').write(value)
        breach('written')
    """,
    "the magic key": "open('/proc/sysrq-trigger', 'w'); breach('opened')",
    "seeing the host's processes": "os.stat(f'/proc/{PID}/exe') if PID > 50 else os.stat('/none'); breach('seen')",
    "a signal to the worker": "os.kill(PID, 0) if PID > 50 else os.stat('/none'); breach('sent')",
    "a signal to everybody": """
        os.kill(-1, 0)  # reaches only this process' own namespace; who else is there?
        breach('others') if len(glob.glob('/proc/[0-9]*')) > 4 else None
    """,
    "tracing pid 1": "refused(errno.EPERM, 101, 117, 16, 1, 0, 0)",
    "memory of pid 1": "refused(errno.EPERM, 310, 270, 1, 0, 0, 0, 0, 0)",
    "a descriptor of pid 1": "refused(errno.EPERM, 438, 438, 0, 0, 0)",
    "the keyring": "refused(errno.EPERM, 250, 219, 0, -3, 1)",
    "a new key": "refused(errno.EPERM, 248, 217, 0, 0, 0, 0, 0)",
    "bpf": "refused(errno.EPERM, 321, 280, 0, 0, 0)",
    "performance events": "refused(errno.EPERM, 298, 241, 0, 0, -1, -1, 0)",
    "io_uring": "refused(errno.EPERM, 425, 425, 1, 0)",
    "page faults": "refused(errno.EPERM, 323, 282, 0)",
    "a kernel module": "refused(errno.EPERM, 175, 105, 0, 0, 0)",
    "another kernel": "refused(errno.EPERM, 246, 104, 0, 0, 0, 0)",
    "a reboot": "refused(errno.EPERM, 169, 142, 0, 0, 0, 0)",
    "a mount": "refused(errno.EPERM, 165, 40, 0, 0, 0, 0, 0)",
    "a mount, the new way": "refused(errno.EPERM, 428, 428, -1, 0, 0)",
    "an unmount": "refused(errno.EPERM, 166, 39, 0, 0)",
    "another root": "refused(errno.EPERM, 161, 51, 0)",
    "a new user namespace": "refused(errno.EPERM, 272, 97, 0x10000000)",
    "a new user namespace by clone": "refused(errno.EPERM, 56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)",
    "a new user namespace by clone3": "refused(errno.ENOSYS, 435, 435, 0, 0)",
    "a new user namespace by a program": "subprocess.run(['unshare', '-U', 'true'], check=True); breach('made')",
    "entering a namespace": "refused(errno.EPERM, 308, 268, 0, 0)",
    "memory that no process holds": "refused(errno.ENOSYS, 319, 279, 0, 0)",
    "a large segment of shared memory": "refused(errno.ENOMEM, 29, 194, 0, 1 << 20, 0o1600)",
    "an even larger one": "refused(errno.ENOMEM, 29, 194, 0, 1 << 32, 0o1600)",
    "typing on the terminal": """
        for request in (0x5412, 0x541C, 0x5412 | 1 << 32):
            try:
                refused(errno.EPERM, 16, 29, 0, request, 0)
            except PermissionError:
                pass
    """,
    "becoming root": "os.setuid(0); breach('root')",
    "a program that makes root": """
        made = [p for p in ('/usr/bin/su', '/usr/bin/passwd', '/usr/bin/sudo', '/usr/bin/mount') if os.path.exists(p)]
        status = open('/proc/self/status').read()
        assert 'NoNewPrivs:\\t1' not in status
        breach(made)
    """,
    "capabilities": """
        status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())
        assert any(int(status[name], 16) for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'))
        breach(status)
    """,
    "32-bit system calls": """
        # mov eax, 20 (getpid); int 0x80; ret: a filter for 64-bit calls alone would not see it
        if ARM or os.fork():
            code = 0 if ARM else os.wait()[1]
            assert not ARM and not (os.WIFSIGNALED(code) and os.WTERMSIG(code) in (signal.SIGSYS, signal.SIGSEGV))
        else:
            import mmap
            page = mmap.mmap(-1, 4096, prot=7)
            page.write(bytes.fromhex('b814000000cd80c3'))
            ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
            os._exit(0)
        breach('made')
    """,
    # the network
    "a server of the host": "socket.create_connection(('127.0.0.1', PORT), 2); breach('connected')",
    "a server of the host by IPv6": "socket.create_connection(('::1', PORT), 2); breach('connected')",
    "the internet": "socket.create_connection(('1.1.1.1', 443), 2); breach('connected')",
    "the cloud's metadata": "socket.create_connection(('169.254.169.254', 80), 2); breach('connected')",
    "a datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('1.1.1.1', 53)); breach('sent')",
    "a name": "breach(socket.getaddrinfo('example.com', 80))",
    "a raw packet": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); breach('made')",
    "an interface": "assert [n for _, n in socket.if_nameindex() if n in ('eth0', 'docker0')]; breach('seen')",
    "the virtual machine's host": "socket.socket(40, socket.SOCK_STREAM); breach('made')",
    "the kernel's ciphers": "socket.socket(38, socket.SOCK_SEQPACKET); breach('made')",
    "an abstract socket of the host": "socket.socket(socket.AF_UNIX).connect(chr(0) + SECRET); breach('connected')",
    "a socket of the host": "socket.socket(socket.AF_UNIX).connect(HOST + '/other/socket'); breach('connected')",
}


@contextmanager
def hosting() -> Iterator[Path]:
    """A workspace, and a secret beside it. Not below pytest's own folder, where the sandbox's user may not go."""
    made = Path(tempfile.mkdtemp(prefix="longshore-test-"))
    made.chmod(0o711)
    for name in ("other", "workspace"):
        (made / name).mkdir()
    (made / "other" / "secret").write_text(SECRET)
    yield made
    shutil.rmtree(made)


@contextmanager
def neighbouring(folder: Path) -> Iterator[list[str]]:
    """What is to be reached: servers, a process, a file. The arguments of an attack."""
    name = secrets.token_hex(8)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind("\0" + name)
        abstract.listen()
        named.bind(str(folder / "other" / "socket"))
        named.listen()
        (folder / "other" / "socket").chmod(0o777)
        yield [str(folder), str(server.getsockname()[1]), str(os.getpid()), name]


@pytest.fixture
def folder() -> Iterator[Path]:
    with hosting() as made:
        yield made


@pytest.fixture
def workspace(folder: Path) -> Path:
    return folder / "workspace"


@pytest.fixture
def neighbour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """With a key in the worker's environment."""
    monkeypatch.setenv("MODEL_KEY", SECRET)
    with neighbouring(folder) as arguments:
        yield arguments


# All attacks in one sandbox, each in a process of its own, which tells what became of it and has then ended.
EACH = """
import json
told = {}
for name, body in json.loads(sys.argv[5]).items():
    reading, writing = os.pipe()
    if not os.fork():
        os.dup2(writing, 1)
        os.close(reading)
        os.close(writing)
        try:
            exec(body)
        except (OSError, AssertionError, IndexError, subprocess.SubprocessError) as error:
            print('held', repr(error))
        print('tried', flush=True)
        os._exit(0)
    os.close(writing)
    with open(reading) as said:
        told[name] = said.read()
    os.wait()
print(json.dumps(told))
"""


def attacks(*names: str) -> str:
    return json.dumps({name: textwrap.dedent(ATTACKS[name]) for name in names})


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What each attack came to; run when the first test asks."""
    with hosting() as folder, neighbouring(folder) as arguments, pytest.MonkeyPatch.context() as patched:
        patched.setenv("MODEL_KEY", SECRET)
        argv = ("python3", "-I", "-c", PREAMBLE + EACH, *arguments, attacks(*ATTACKS))
        finished = asyncio.run(run(Bubblewrap(), Command(argv, folder / "workspace")))
    assert finished.exit_code == 0, finished
    found: dict[str, str] = json.loads(finished.stdout)
    return found


@pytest.mark.xdist_group("attacks")
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_from_inside_fails(told: dict[str, str], attack: str) -> None:
    assert told[attack].splitlines()[-1:] == ["tried"], told[attack]
    assert "BREACH" not in told[attack], told[attack]


async def test_the_attacks_would_be_seen(neighbour: list[str]) -> None:
    """The measure itself: what can be reached from outside is reached by the same programs."""
    reached = (
        "a server of the host",
        "another workspace",
        "an abstract socket of the host",
        "a signal to the worker",
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", PREAMBLE + EACH, *neighbour, attacks(*reached),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await process.communicate()
    for attack, told in json.loads(printed).items():
        assert "BREACH" in told, attack


async def test_only_what_is_named_is_mounted_and_only_the_workspace_can_be_written(workspace: Path) -> None:
    """Also where the files' own modes would let a program write them: where workers are an ordinary user's."""
    readable = workspace.parent / "other"
    command = Command(("cat", "/proc/self/mountinfo"), workspace, readable=(readable,))
    finished = await run(Bubblewrap(), command)
    fields = [line.split() for line in finished.stdout.splitlines()]
    options = {place: flags.split(",") for _, _, _, _, place, flags, *_ in fields}
    ours = {"/proc", "/tmp", "/dev/shm"}
    devices = {place for place in options if place.startswith("/dev/")}
    system = {"/", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/dev", *_ETC}
    assert options.keys() <= {"/workspace", str(readable)} | system | ours | devices
    assert {place for place, flags in options.items() if "rw" in flags} - devices == {"/workspace"} | ours - devices


async def test_a_flood_of_output_ends_early(workspace: Path) -> None:
    command = Command(("/bin/sh", "-c", "yes | head -c 10G"), workspace, limits=SandboxLimits(output_bytes=5 * MB))
    finished = await run(Bubblewrap(), command)
    assert finished.ended == "output"
    assert len(finished.stdout) < MB


BOMB = """
import os, sys
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


async def test_a_fork_bomb_is_held_and_cleared_away(workspace: Path) -> None:
    sandbox, limits = Bubblewrap(), SandboxLimits(processes=30, seconds=3)
    process = await sandbox.start(Command(("python3", "-c", BOMB), workspace, limits=limits))
    grip = process.grip
    await asyncio.to_thread(wait_until, lambda: len(grip.pids()) >= 30, 30, "the bomb to have gone off")
    assert len(grip.pids()) <= 34  # bwrap inside and outside are not the program's
    await process.stop()
    assert list(grip.pids()) == [
        process._transport.get_pid()
    ]  # which has ended, and whose number is not used again yet
    assert (await run(sandbox, Command(("true",), workspace))).exit_code == 0


@pytest.mark.parametrize("where", ["/tmp", "/dev/shm"])
async def test_memory_in_the_shape_of_files_is_limited(workspace: Path, where: str) -> None:
    script = f"i=0; while head -c 10M /dev/zero > {where}/$i; do i=$((i+1)); done 2>/dev/null; du -sm {where} | cut -f1"
    command = Command(("/bin/sh", "-c", script), workspace, limits=SandboxLimits(memory_bytes=256 * MB))
    finished = await run(Bubblewrap(), command)
    assert int(finished.stdout) <= 129, finished


DAEMON = """
import os, signal, sys
if os.fork():
    os.wait()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.execvp("sleep", ["sleep", sys.argv[1]])
"""


def sleepers(seconds: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                found.append(path.parent.name)
        except OSError:
            continue
    return found


async def test_a_daemon_does_not_survive(workspace: Path) -> None:
    seconds = f"9{secrets.randbelow(10**9):09d}"
    process = await Bubblewrap().start(Command(("python3", "-c", DAEMON, seconds), workspace))
    assert await process.stdout.readline() == b"ready\n"
    await asyncio.to_thread(wait_until, lambda: sleepers(seconds), 30, "the daemon to be there")
    await process.stop()
    assert sleepers(seconds) == []


WORKER = """
import asyncio, sys
from pathlib import Path
from adapters.sandbox.bubblewrap import Bubblewrap
from adapters.sandbox.port import Command

async def main():
    argv = ("/bin/sh", "-c", f"sleep {sys.argv[2]} & echo ready; wait")
    process = await Bubblewrap().start(Command(argv, Path(sys.argv[1])))
    print((await process.stdout.readline()).decode(), flush=True)
    await process.wait()

asyncio.run(main())
"""


def test_programs_die_with_a_worker_that_is_killed(workspace: Path) -> None:
    seconds = f"9{secrets.randbelow(10**9):09d}"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(workspace), seconds], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    with worker.stdout:
        assert worker.stdout.readline() == b"ready\n"
        wait_until(lambda: sleepers(seconds), 30, "the program to be there")
        worker.kill()
        worker.wait()
    wait_until(lambda: not sleepers(seconds), 30, "the program to be gone")


ASK = """
import http.client, json, os, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
answers = []
for method, target in json.loads(sys.argv[1]):
    connection = http.client.HTTPConnection(proxy.hostname, proxy.port)
    connection.request(method, target)
    response = connection.getresponse()
    answers.append(f"{response.status} {response.read().decode()}")
    connection.close()
print(json.dumps(answers))
"""


async def inward(host: str, port: int) -> list[tuple[int, str]]:
    """A resolver that the owner of a name has in hand."""
    address = {"metadata.example": "169.254.169.254", "home.example": "127.0.0.1"}.get(host, "10.0.0.1")
    return [(socket.AF_INET, address)]


REFUSED_BY_THE_PROXY = [
    ("CONNECT", "other.example:443", "not among the hosts"),
    ("CONNECT", "example:443", "not among the hosts"),
    ("CONNECT", "home.example.evil:443", "not among the hosts"),
    ("CONNECT", "evilhome.example:443", "not among the hosts"),
    ("CONNECT", "127.0.0.1:443", "not among the hosts"),
    ("CONNECT", "home.example:22", "port 22 may not be reached"),
    ("CONNECT", "home.example:5432", "port 5432 may not be reached"),
    ("CONNECT", "home.example:443", "not public"),
    ("CONNECT", "HOME.example.:443", "not public"),
    ("CONNECT", "metadata.example:80", "not public"),
    ("CONNECT", "deep.inner.example:443", "not public"),
    ("CONNECT", "169.254.169.254:80", "not a public address"),
    ("CONNECT", "home.example", "does not read"),
    ("CONNECT", "home.example:x", "does not read"),
    ("CONNECT", "user@home.example:443", "does not read"),
    ("GET", "http://other.example/", "not among the hosts"),
    ("GET", "http://home.example/", "not public"),
    ("GET", "http://home.example:8080/", "port 8080 may not be reached"),
    ("GET", "http://home.example@other.example/", "does not read"),
    ("GET", "https://home.example/", "only http://"),
    ("GET", "/etc/passwd", "only http://"),
    ("GET", "file:///etc/passwd", "only http://"),
]


async def test_the_proxy_leads_to_named_public_hosts_only(workspace: Path) -> None:
    sandbox = Bubblewrap(resolve=partial(resolve_public, resolve=inward))
    hosts = ("home.example", "metadata.example", "*.inner.example", "169.254.169.254")
    asked = json.dumps([(method, target) for method, target, _ in REFUSED_BY_THE_PROXY])
    finished = await run(sandbox, Command(("python3", "-c", ASK, asked), workspace, hosts=hosts))
    assert finished.exit_code == 0, finished
    for answer, (method, target, reason) in zip(json.loads(finished.stdout), REFUSED_BY_THE_PROXY, strict=True):
        assert answer[:3] in ("403", "400"), (method, target, answer)
        assert reason in answer, (method, target, answer)


async def test_a_program_with_hosts_has_no_other_network(workspace: Path, neighbour: list[str]) -> None:
    for attack in ("a server of the host", "the internet", "a name", "an abstract socket of the host"):
        script = f"{PREAMBLE}\ntry:\n    {ATTACKS[attack]}\nexcept OSError as error:\n    print('held', error)"
        command = Command(("python3", "-c", script, *neighbour), workspace, hosts=("home.example",))
        finished = await run(Bubblewrap(), command)
        assert finished.stdout.startswith("held"), finished


async def test_what_a_program_leaves_is_not_roots(workspace: Path) -> None:
    """A file with the set-uid bit of root would be a way up for any user of the host."""
    script = "cp /usr/bin/env tool && chmod 6755 tool && id -u"
    finished = await run(Bubblewrap(), Command(("/bin/sh", "-c", script), workspace))
    assert finished.exit_code == 0, finished
    assert int(finished.stdout) != 0
    assert (workspace / "tool").stat().st_uid == int(finished.stdout)
