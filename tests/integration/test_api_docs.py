"""What `docs/api.md` says is so: its routes are those of the OpenAPI document, and its examples run."""

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from tests.support.api_callers import caller
from tests.support.open_gateway import Gateway, answering

pytestmark = [pytest.mark.spec("G2"), pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
ROW = re.compile(r"^\| `([A-Z]+) (/v1/[^`]*)` \| `(\w+)` \| \S", re.MULTILINE)


async def test_every_route_is_in_the_table_with_its_scope(gateway: Gateway) -> None:
    document = (await gateway.client.get("/openapi.json")).json()
    served = {
        (method.upper(), path, scope)
        for path, operations in document["paths"].items()
        if path.startswith("/v1/")
        for method, operation in operations.items()
        for one in operation["security"]
        for scope in one["token"]
    }
    written = ROW.findall(PAGE)
    assert set(written) == served
    assert len(written) == len(served)


async def test_the_examples_run(gateway: Gateway) -> None:
    group = await gateway.fleet.add_group(script="You said: {texts}")
    crm = await caller(gateway, "crm", "admin", group, scopes=["send", "read", "operate"])
    block = PAGE.split("```sh\n", 1)[1].split("```", 1)[0].replace("\\\n", "")
    commands = [line for line in block.splitlines() if line.startswith("curl ")]
    assert len(commands) == 4
    known = {"TOKEN": crm.token}
    answers = []
    async with answering(gateway.fleet):
        for command in commands:
            here = command.replace("127.0.0.1:8400", f"127.0.0.1:{gateway.port}")
            child = await asyncio.create_subprocess_exec(
                "bash", "-c", here, env=os.environ | known, stdout=asyncio.subprocess.PIPE
            )
            answers.append(json.loads((await child.communicate())[0]))
            known |= {"ID": str(answers[0]["id"]), "SESSION": str(answers[0]["session"])}
    _sent, state, messages, dead = answers
    assert state["status"] == "completed", state
    assert [one["direction"] for one in messages["items"]] == ["in", "out"]
    assert dead == {"items": [], "next": None}
