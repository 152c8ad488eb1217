"""Programs that the tests start by a fork are as those that are started anew."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.fork_server import Process
from tests.support.servers import wait_until

ENV = {"PATH": f"{fork_server.BIN}:/usr/bin:/bin", "LANG": "C.UTF-8"}
PROGRAM = """
import json, os, random, signal, sys, threading
from pathlib import Path
names = ("SIGINT", "SIGTERM", "SIGCHLD", "SIGPIPE", "SIGHUP")
found = {
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "path": sys.path[0],
    "session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "signals": {name: str(signal.getsignal(getattr(signal, name))) for name in names},
    "masked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": threading.active_count(),
    "main": __name__ + " " + Path(__file__).name,
    "open": sorted(os.listdir("/proc/self/fd"))[:-1],
}
if "alone" in sys.argv:
    found |= {"random": random.random()}
print(json.dumps(found, sort_keys=True))
sys.exit(3)
"""
WAITS = "import sys, time\nprint('here', flush=True)\ntime.sleep(60)\n"

Start = Callable[[str], Process]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def start(text: str) -> Process:
        (tmp_path / "program.py").write_text(text)
        with (tmp_path / "log").open("ab") as log:
            return fork_server.start(
                [sys.executable, "-m", "program"], ENV, tmp_path, stdout=log.fileno(), stderr=log.fileno()
            )

    return start


def test_it_finds_what_a_new_process_finds(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command, env = [sys.executable, "-m", "program", "one", ""], ENV | {"COLOUR": "blue"}
    forked = fork_server.run(command, env, tmp_path, None, 30)
    anew = subprocess.run(
        command, env=env, cwd=tmp_path, input="", capture_output=True, text=True, check=False, start_new_session=True
    )
    assert forked.stdout == anew.stdout
    assert (forked.returncode, forked.stderr) == (anew.returncode, anew.stderr) == (3, "")


def test_no_two_have_the_same_random_numbers(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "program", "alone"]
    assert len({fork_server.run(command, ENV, tmp_path, None, 30).stdout for _ in range(3)}) == 3


def test_a_script_imports_ours_in_its_own_environment(tmp_path: Path) -> None:
    for url, said in (("nonsense", "is not a database address"), ("mysql://x@127.0.0.1/y", "PostgreSQL or SQLite")):
        env = ENV | {"DATABASE_URL": url, "HOME": str(tmp_path)}
        ran = fork_server.run(["longshore", "sessions"], env, tmp_path, None, 30)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert said in ran.stderr


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_as_they_end_any(start: Start, tmp_path: Path, sig: signal.Signals) -> None:
    process = start(WAITS)
    wait_until(lambda: "here" in (tmp_path / "log").read_text())
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(sig)
    assert process.wait(10) == process.poll() == process.returncode == -sig
    process.send_signal(sig)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_what_it_cost_is_known_when_it_has_ended(start: Start) -> None:
    before = fork_server.cpu_seconds()
    start("import time\nwhile time.process_time() < 0.3: pass").wait(30)
    assert fork_server.cpu_seconds() - before >= 0.3


def test_none_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WAITS)
    starter = f"""
import os, sys
from pathlib import Path
from tests.support import fork_server
command = [sys.executable, "-m", "program"]
print(fork_server.start(command, {{}}, Path({str(tmp_path)!r}), stdout=2, stderr=2).pid, flush=True)
os.kill(os.getpid(), 9)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", starter], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10, "its end")
