"""A shell script in a CLI agent's place, for what the real one never does: junk on its pipes, versions nobody has seen.

`fake_program` waits for the first line on its input, prints what it was given and ends; how it was called is left in
its home. `acted` does what a test has written."""

import json
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.providers.cli.installation import VARIABLE, find
from tests.support.programs import Cli, ProgramHarness, harness_of
from tests.support.servers import private_folder

ARGUMENTS: Final = "arguments"  # one on each line, in the home
_SCRIPT: Final = """#!/bin/sh
case "$*" in
  *--version) echo {version}; exit ;;
  *--help) echo {help}; exit ;;
esac
printf '%s\\n' "$@" > "$HOME/{arguments}"
read -r first
cat "${{0%/*}}/said"
echo {complaint} >&2
exit {code}
"""
# What every program that speaks ACP is asked first: who it is, and for a conversation.
ACP_HELLO: Final = """read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
read -r line; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"S"}}'
"""
ACP_NONSENSE: Final = {
    "words": "echo 'panic: out of cheese'",
    "half an object": """printf '{"id":1,"resu'""",
    "no UTF-8": r"""printf '\377\376{"id":1}\n'""",
    "50 MB in a line": r"head -c 50000000 /dev/zero | tr '\0' x; echo",
    "an end without a word": "echo 'there is no more memory' >&2; exit 3",
    "an end in the middle": f"{ACP_HELLO} read -r line; exit 0",
    "a refusal": """read -r line; echo '{"id":1,"error":{"code":-32000,"message":"not today"}}'; read -r line""",
}


@asynccontextmanager
async def acted(
    cli: Cli, body: str, monkeypatch: pytest.MonkeyPatch, *, version: str, offers: str
) -> AsyncIterator[ProgramHarness]:
    """`body` is what the program does when it is started to work; what the real one lives in can be read."""
    real, folder = find(cli.name), private_folder()
    folder.chmod(0o755)
    program = folder / cli.name
    program.write_text(
        f"""#!/bin/sh
        case "$*" in
        --version) echo '{version}' ;;
        --help) echo '{offers}' ;;
        *) {body}
        esac\n"""
    )
    program.chmod(0o755)
    readable = [str(folder), *(map(str, real.readable) if real else ())]
    (folder / f"{cli.name}.json").write_text(json.dumps({"argv": [str(program)], "readable": readable}))
    try:
        with monkeypatch.context() as patch:
            patch.setenv(VARIABLE, str(folder))
            async with harness_of(cli, patch) as harness:
                yield harness
    finally:
        shutil.rmtree(folder)


def lines(*said: object) -> str:
    """Shell that says so."""
    return "".join(f"echo {shlex.quote(json.dumps(one))}\n" for one in said)


def acp_updates(*said: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"method": "session/update", "params": {"sessionId": "S", "update": update}} for update in said]


@contextmanager
def fake_program(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    said: bytes,
    *,
    version: str = "9.9.9",
    help: str = "",
    complaint: str = "",
    code: int = 0,
) -> Iterator[None]:
    """While this is open, `name` is found here and nowhere else."""
    folder = Path(tempfile.mkdtemp(prefix="longshore-test-"))
    folder.chmod(0o755)
    script = folder / name
    script.write_text(
        _SCRIPT.format(
            version=shlex.quote(version),
            help=shlex.quote(help),
            arguments=ARGUMENTS,
            complaint=shlex.quote(complaint),
            code=code,
        )
    )
    script.chmod(0o755)
    (folder / "said").write_bytes(said)
    (folder / f"{name}.json").write_text(json.dumps({"argv": [name], "readable": ["."]}))
    monkeypatch.setenv(VARIABLE, str(folder))
    try:
        yield
    finally:
        shutil.rmtree(folder)
