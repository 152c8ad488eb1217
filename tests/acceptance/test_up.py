"""`longshore up` in a terminal: a first answer without a key, a clean stop, and nothing forgotten."""

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gateway.cli.gateway import PORT as GATEWAY_PORT
from gateway.embedded import free_port
from tests.support.processes import BIN
from tests.support.servers import private_folder
from tests.support.terminal import Terminal


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where the sandbox's user can come too, also if the tests are root's."""
    folder = private_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(300)  # three starts and stops of everything
@pytest.mark.spec("G6", "G4", "P11", "T6")
def test_up_answers_stops_cleanly_and_goes_on(tmp_path: Path, terminals: list[Terminal]) -> None:
    first = Terminal(tmp_path, "up")
    terminals.append(first)
    said = (
        "broker",
        "database",
        "worker",
        "delivery",
        "beat",
        "flower",
        "bubblewrap keeps",
        "gateway",
        "⚙ clock",
        "nothing gets",
    )
    for shown in (*said, "done"):
        first.wait_for(shown)
    first.wait_for("longshore send demo")
    assert (tmp_path / ".longshore" / "valkey" / "appendonlydir").is_dir()
    assert oct((tmp_path / ".longshore" / "embedded.json").stat().st_mode)[-3:] == "600"

    for text, answer in (("what time is it?", "By my clock it is"), ("work", "13 tide.txt")):
        sent = subprocess.run(
            [str(BIN / "longshore"), "send", "demo", text], cwd=tmp_path, capture_output=True, text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}, timeout=60, check=False,
        )  # fmt: skip
        assert sent.returncode == 0, sent.stderr
        assert answer in sent.stdout
    second = Terminal(tmp_path, "up", "--no-flower")
    terminals.append(second)
    second.wait_for("another `longshore up` runs in this folder")
    assert second.process.wait(10) == 1

    worker = next(p for p in first.family() if "worker@%h" in " ".join(p.cmdline()))
    worker.kill()
    first.wait_for("worker killed by SIGKILL; starting it again")

    family = first.family()
    assert len(family) >= 5
    assert first.interrupt() == 0
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else listens there already
            other.bind(("127.0.0.1", GATEWAY_PORT))
            other.listen()
        again = Terminal(tmp_path, "up", "--no-flower")
        terminals.append(again)
        again.wait_for(f"{GATEWAY_PORT} is taken")
    again.wait_for("going on with 3 sessions")  # the demo's, its colleague's, and ours
    again.wait_for("longshore send demo")
    assert "a question that waits for you" in first.shown
    assert "a question that waits for you" not in again.shown
    assert again.interrupt() == 0


@pytest.mark.spec("G6")
def test_a_port_is_the_same_again_as_soon_as_nobody_listens_there() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as all servers do
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        server.listen()
        assert free_port(port) != port
        with socket.create_connection(("127.0.0.1", port)) as browser:
            accepted, _ = server.accept()
            accepted.close()  # by the server first, as at a stop: the system remembers the connection for a minute
            browser.recv(1)
    assert free_port(port) == port
