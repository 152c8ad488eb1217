"""Guessing a repository's own test command from its files. Pure: the command is run elsewhere, and a person can always
name another."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Final

MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")
# Whose texts are looked at, if they are there.
FILES: Final = (*MAKEFILES, "pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg", "package.json")
_TEST_TARGET: Final = re.compile(r"^(?:[\w./%-]+[ \t]+)*test(?:[ \t]+[\w./%-]+)*[ \t]*::?(?!=)", re.MULTILINE)
_PYTEST_SECTION: Final = re.compile(r"^\[(?:tool\.pytest\b|pytest\]|tool:pytest\])", re.MULTILINE)
_PYTEST_NEEDED: Final = re.compile(r"""["']pytest\b""")
_NO_TESTS: Final = "no test specified"  # what npm writes into a new package


def check_command_of(paths: Collection[str], texts: Mapping[str, str]) -> str | None:
    """`paths` are all files of the repository, `texts` what is in those of `FILES` and of `test_files`."""
    here = set(paths)
    if any(_TEST_TARGET.search(texts.get(name, "")) for name in MAKEFILES):
        return "make test"
    if _wants_pytest(here, texts):
        return "python3 -m pytest -q"
    if tests := test_files(paths):
        folder = PurePosixPath(tests[0]).parts[0]
        # Without this file its tests are found only from within.
        inner = len(PurePosixPath(tests[0]).parts) > 1 and f"{folder}/__init__.py" not in here
        return f"python3 -m unittest discover -s {folder}" if inner and folder.isidentifier() else "python3 -m unittest"
    if _has_npm_test(texts.get("package.json", "")):
        return "npm test"
    for name, command in (("Cargo.toml", "cargo test"), ("go.mod", "go test ./...")):
        if name in here:
            return command
    return None


def test_files(paths: Collection[str]) -> list[str]:
    """Python's, the topmost first."""
    found = [path for path in paths if re.fullmatch(r"test\w*\.py", PurePosixPath(path).name)]
    return sorted(found, key=lambda path: (path.count("/"), path))


def _wants_pytest(paths: Collection[str], texts: Mapping[str, str]) -> bool:
    if "pytest.ini" in paths or any(PurePosixPath(path).name == "conftest.py" for path in paths):
        return True
    if any(_PYTEST_SECTION.search(texts.get(name, "")) for name in ("pyproject.toml", "tox.ini", "setup.cfg")):
        return True
    if _PYTEST_NEEDED.search(texts.get("pyproject.toml", "")):
        return True
    # A test that is a plain function is none for unittest.
    tests = [texts.get(path, "") for path in test_files(paths)]
    return any(re.search(r"^(?:import pytest|from pytest |(?:async )?def test_)", text, re.MULTILINE) for text in tests)


def _has_npm_test(text: str) -> bool:
    try:
        scripts = json.loads(text or "{}").get("scripts", {})
        command = scripts.get("test")
    except (ValueError, AttributeError, RecursionError):
        return False
    return isinstance(command, str) and bool(command.strip()) and _NO_TESTS not in command
