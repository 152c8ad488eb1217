"""The doors of programs: folders with a socket, also after somebody was killed."""

import socket
import tempfile
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from adapters.local_server import LocalServer


@pytest.mark.spec("P12")
async def test_what_killed_processes_left_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alive = LocalServer(PlainTextResponse("yes"))
    await alive.open()
    for name in ("longshore-door-dead", "longshore-door-unfinished", "something-else"):
        (tmp_path / name).mkdir()
    for folder in ("longshore-door-dead", "something-else"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / folder / "http.sock"))
    late = LocalServer(PlainTextResponse("yes"))
    await late.open()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        alive.socket_path.parent.name,
        late.socket_path.parent.name,
        "longshore-door-unfinished",
        "something-else",
    }
    await alive.close()
    await late.close()
    assert {path.name for path in tmp_path.iterdir()} == {"longshore-door-unfinished", "something-else"}
