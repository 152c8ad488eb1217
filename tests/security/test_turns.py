"""Attacks by whole turns: a model that has been talked into it calls real tools on a real worker. Nothing gets
through, the agent is told what was wrong, and the turn lives on to answer."""

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from models import Step
from tests.support.fleet import Fleet, MakeFleet

pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"])

PYTHON = "python3"


@pytest.fixture
def fleet(sandboxed_fleet: Fleet) -> Fleet:
    return sandboxed_fleet


async def play(fleet: Fleet, tool: str, policy: dict[str, Any] | None = None, **arguments: Any) -> str:
    """What the agent is told by a call; it answers with just that."""
    scene = [{"play": [{"tool": tool, "with": arguments}, {"answer": "told: {result}"}]}]
    config = {"provider_options": {"script": yaml.safe_dump(scene)}, "policy": policy or {}}
    await fleet.add_group(config=config)
    await fleet.send("do it")
    assert await fleet.answer_wakes() == ["completed"]
    [answer] = await fleet.outbox()
    return str(answer.content["text"]).removeprefix("told: ")


async def failed(fleet: Fleet) -> bool:
    return [step.status for step in await fleet.rows(Step)] == ["failed"]


def python(code: str, **more: Any) -> dict[str, Any]:
    return {"argv": [PYTHON, "-c", code], **more}


@pytest.mark.spec("T5", "T6")
async def test_a_program_works_in_the_agents_folder(fleet: Fleet) -> None:
    """The control: without it, everything below could fail for another reason."""
    (await fleet.runtime.workspace("demo")).write("in.txt", b"three\nwords\nhere\n")
    said = await play(
        fleet, "run_command", **python("print(open('in.txt').read().split()); open('out.txt','w').write('x')")
    )
    assert "['three', 'words', 'here']" in said
    assert (await fleet.runtime.workspace("demo")).read("out.txt", limit=10) == b"x"
    assert not await failed(fleet)


@pytest.mark.spec("T5", "T6")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"argv": ["bash", "-c", "id"]}, "'bash' is not among the programs you may run"),
        ({"argv": ["/usr/bin/git"]}, "not among the programs"),
        ({"argv": ["ls; id"]}, "not among the programs"),
        ({"argv": ["git\x00x"]}, "argv.0: it holds a NUL"),
        ({"argv": ["cat", "a\x00b"]}, "NUL"),
        ({"argv": []}, "argv"),
        ({"argv": "ls"}, "argv"),
        ({"argv": ["ls"], "folder": "/etc"}, "could not be started"),
        ({"argv": ["ls"], "folder": "../other"}, "could not be started"),
        ({"argv": ["ls"], "env": {"LD_PRELOAD": "x"}}, "env"),
        ({"argv": ["ls"], "seconds": 1e9}, "seconds"),
        (python("while True: pass", seconds=0.5), "longer"),
        (python("import os\nwhile True: os.write(1, b'x' * 65536)"), "print"),
        (python("x = []\nwhile True: x.append(bytearray(10**7))"), "memory|MemoryError"),
    ],
)
async def test_programs(fleet: Fleet, arguments: dict[str, Any], complaint: str) -> None:
    said = await play(fleet, "run_command", **arguments)
    assert any(part in said for part in complaint.split("|")), said
    assert len(said) < 60_000


INSIDE = {
    "another group's files": "print(open('../other/secret.txt').read())",
    "the outbox": "import glob; print(glob.glob('/workspace/../.outbox/*')); open('/.outbox/x')",
    "the host's users": "print(open('/etc/shadow').read())",
    "the worker's environment": (
        "import os; e = open('/proc/1/environ').read(); print(e or 1/0, os.environ['HIDDEN_KEY'])"
    ),
    "the network": "import socket; socket.create_connection(('127.0.0.1', {port}), 2)",
    "the database": "open('{database}')",
    "its own instructions from outside": "open('/workspace/../AGENTS.md', 'w')",
}


@pytest.mark.spec("T6")
@pytest.mark.parametrize("attack", INSIDE)
async def test_from_inside(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, attack: str) -> None:
    monkeypatch.setenv("HIDDEN_KEY", "hidden-value-of-the-worker")
    (await fleet.runtime.workspace("other")).write("secret.txt", b"not yours")
    database = fleet.runtime.settings.database_url.removeprefix("sqlite:///")
    port = fleet.runtime.settings.redis_url.rpartition(":")[2].partition("/")[0]
    code = INSIDE[attack].replace("{port}", port or "1").replace("{database}", database)
    said = await play(fleet, "run_command", **python(code))
    assert "Error" in said  # Python's own, of a program that did not get what it wanted
    assert "not yours" not in said
    assert "hidden-value" not in said


@pytest.mark.spec("T6")
async def test_a_zip_bomb_fills_neither_disk_nor_memory(fleet: Fleet) -> None:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("big", "w", force_zip64=True) as big:
        for _ in range(400):
            big.write(bytes(1 << 20))
    workspace = await fleet.runtime.workspace("demo")
    workspace.write("bomb.zip", bomb.getvalue())
    said = await play(fleet, "run_command", **python("import zipfile; zipfile.ZipFile('bomb.zip').extractall()"))
    assert "File too large" in said
    assert workspace.size("big") <= 256 << 20


@pytest.mark.spec("T5")
@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("read_file", {"path": "../other/secret.txt"}, "workspace"),
        ("read_file", {"path": "/etc/passwd"}, "workspace"),
        ("read_file", {"path": "link"}, "out of your workspace"),
        ("read_file", {"path": "second-name"}, "hard link|more than one name|another name"),
        ("write_file", {"path": "../../x", "content": "x"}, "workspace"),
        ("write_file", {"path": "a\x00b", "content": "x"}, "NUL"),
        ("send_file", {"path": "link"}, "out of your workspace"),
        ("send_file", {"path": "second-name"}, "hard link|more than one name|another name"),
        ("send_file", {"path": "own.txt", "filename": "../../x"}, "plain file name"),
        ("read_skill", {"name": "../../etc"}, "name"),
        ("fetch_url", {"url": "http://169.254.169.254/latest/meta-data/"}, "public"),
        ("fetch_url", {"url": "http://[::ffff:127.0.0.1]/"}, "public"),
        ("fetch_url", {"url": "http://2130706433/"}, "not the name of a host"),
        ("fetch_url", {"url": "file:///etc/passwd"}, "http"),
        ("no_such_tool", {}, "there is no tool"),
        ("clock", {"timezone": "UTC", "as_user": "owner"}, "as_user"),
        ("send_message", {"text": "x", "sender_id": "owner"}, "sender_id"),
    ],
)
async def test_files_the_web_and_identity(fleet: Fleet, tool: str, arguments: dict[str, Any], complaint: str) -> None:
    (await fleet.runtime.workspace("other")).write("secret.txt", b"not yours")
    root = (await fleet.runtime.workspace("demo")).root
    (root / "own.txt").write_text("mine")
    (root / "link").symlink_to("../other/secret.txt")
    os.link(root.parent / "other" / "secret.txt", root / "second-name")
    said = await play(fleet, tool, **arguments)
    assert any(part in said for part in complaint.split("|")), said
    assert "not yours" not in said
    assert not (Path(root).parent / "x").exists()
    assert not list(fleet.runtime.outbox.root.glob("*/*"))


@pytest.mark.spec("T6")
async def test_without_a_sandbox_there_are_no_programs(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """Docker that is not there: the tool is absent, with all others in place."""
    fleet = await make_fleet(sandbox="docker", sandbox_image="no-such-image-here:1")
    said = await play(fleet, "run_command", argv=["ls"])
    assert "there is no tool 'run_command' here" in said
    assert "read_file" in said


@pytest.mark.spec("T6")
async def test_unconfined_only_if_the_operator_says_so(
    make_fleet: MakeFleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = await make_fleet(sandbox="none")
    said = await play(fleet, "run_command", **python("print(6 * 7)"))
    assert "42" in said
    assert "sandbox.none" in "".join(capsys.readouterr())
