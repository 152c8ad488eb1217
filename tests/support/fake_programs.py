"""A shell script in a CLI agent's place, for what the real one never does: junk on its pipes, versions nobody has seen.

It waits for the first line on its input, prints what it was given and ends. How it was called is left in its home."""

import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from adapters.providers.cli.installation import VARIABLE

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
