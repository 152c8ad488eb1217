"""The test command that a repository's files speak for."""

import json

import pytest

from adapters.git import check_command_of


@pytest.mark.parametrize(
    ("texts", "command"),
    [
        ({"Makefile": "all:\n\tcc\ntest: all\n\t./t\n"}, "make test"),
        ({"makefile": ".PHONY: test\ncheck test lint:\n\t./t\n"}, "make test"),
        ({"Makefile": "test := x\ntests:\n\t./t\n#test:\n"}, None),
        ({"Makefile": "test:\n", "package.json": '{"scripts": {"test": "jest"}}'}, "make test"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
        ({"pyproject.toml": '[project.optional-dependencies]\ndev = ["pytest>=8"]\n'}, "python3 -m pytest -q"),
        ({"pytest.ini": ""}, "python3 -m pytest -q"),
        ({"tox.ini": "[pytest]\n"}, "python3 -m pytest -q"),
        ({"setup.cfg": "[tool:pytest]\n"}, "python3 -m pytest -q"),
        ({"tests/conftest.py": ""}, "python3 -m pytest -q"),
        ({"tests/test_a.py": "def test_a():\n    pass\n"}, "python3 -m pytest -q"),
        ({"tests/test_a.py": "import unittest\n", "tests/__init__.py": ""}, "python3 -m unittest"),
        ({"tests/test_a.py": "import unittest\n"}, "python3 -m unittest discover -s tests"),
        ({"test_a.py": "import unittest\n"}, "python3 -m unittest"),
        ({"a b; rm/test_a.py": "import unittest\n"}, "python3 -m unittest"),
        ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, None),
        ({"package.json": '{"scripts": []}'}, None),
        ({"package.json": "[" * 100_000}, None),
        ({"package.json": json.dumps({"scripts": {"test": 1}})}, None),
        ({"Cargo.toml": ""}, "cargo test"),
        ({"go.mod": ""}, "go test ./..."),
        ({"README": "x"}, None),
        ({}, None),
    ],
)
def test_the_command_is_guessed(texts: dict[str, str], command: str | None) -> None:
    assert check_command_of(list(texts), texts) == command
