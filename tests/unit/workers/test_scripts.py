"""What the last line of a script may say, and what is said about one that says something else."""

import json
import subprocess
from pathlib import Path

import pytest

from adapters.redaction import Redactor
from workers.scripts import _BASH, LIMITS, MAX_DATA, MAX_LINE, FailedScriptError, Found, read_output

pytestmark = pytest.mark.spec("S4")

SECRET = "hunter2-of-the-worker"
NOBODYS = Redactor()


@pytest.mark.parametrize(
    ("stdout", "found"),
    [
        ('{"wakeAgent": false}', Found(False)),
        ('{"wakeAgent": true}', Found(True)),
        ('looking...\n{"wakeAgent": true, "data": {"new": 3}}\n\n  \n', Found(True, '{"new": 3}')),
        ('{"wakeAgent": false}\r\n', Found(False)),
        ('{"data": [1, "two", null], "wakeAgent": true}', Found(True, '[1, "two", null]')),
        ('{"wakeAgent": true, "data": "\u2028é"}', Found(True, '"\u2028é"')),
        ('{"wakeAgent": true, "data": null}', Found(True)),
        ('{"wakeAgent": true, "data": false}', Found(True, "false")),
        ('{"wakeAgent": true, "data": ""}', Found(True, '""')),
        # What nobody will read is not kept, and what nobody asked for is left alone.
        ('{"wakeAgent": false, "data": 1, "reason": "nothing new"}', Found(False)),
        ('{"wakeAgent": true}\n{"wakeAgent": false}', Found(False)),
    ],
)
def test_what_it_says_last_counts(stdout: str, found: Found) -> None:
    assert read_output(stdout, NOBODYS) == found


@pytest.mark.parametrize(
    ("stdout", "why"),
    [
        ("", "it printed nothing"),
        (" \n\t\n", "it printed nothing"),
        ("done", "no JSON: 'done'"),
        ('{"wakeAgent": true}\ndone', "no JSON: 'done'"),
        ('{"wakeAgent": true', "no JSON"),
        ("{'wakeAgent': True}", "no JSON"),
        ('{"wakeAgent": true, "data": NaN}', "no JSON"),
        ('{"wakeAgent": true, "data": 1e999}', "no JSON"),
        ('{"wakeAgent": true, "data": ' + "9" * 5000 + "}", "no JSON"),
        ("true", "no JSON object: 'true'"),
        ("null", "no JSON object"),
        ('[{"wakeAgent": true}]', "no JSON object"),
        ("{}", "wakeAgent is missing"),
        ('{"wakeagent": true}', "wakeAgent is missing"),
        ('{"wakeAgent": "true"}', "wakeAgent is neither true nor false"),
        ('{"wakeAgent": 1}', "wakeAgent is neither true nor false"),
        ('{"wakeAgent": null}', "wakeAgent is neither true nor false"),
        (
            '{"wakeAgent": false' + " " * MAX_LINE + "}",
            "what it printed last has 350,020 characters; it may have 350,000",
        ),
        ("[" * 100_000, "nested too deep"),
        ('{"wakeAgent": true, "data": ' + "[" * 900 + "]" * 900 + "}", "nested too deep"),
        ('{"wakeAgent": true, "data": "' + "x" * MAX_DATA + '"}', "its data has 50,002 characters; it may have 50,000"),
    ],
)
def test_anything_else_is_said_in_a_sentence(stdout: str, why: str) -> None:
    with pytest.raises(FailedScriptError) as caught:
        read_output(stdout, NOBODYS)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_largest_data_is_taken() -> None:
    found = read_output('{"wakeAgent": true, "data": "' + "x" * (MAX_DATA - 2) + '"}', NOBODYS)
    assert found.data is not None
    assert len(found.data) == MAX_DATA


def test_data_is_measured_as_it_reads_and_not_as_it_is_escaped() -> None:
    found = read_output('{"wakeAgent": true, "data": "' + "\\u00e9" * (MAX_DATA - 2) + '"}', NOBODYS)
    assert found.data == f'"{"é" * (MAX_DATA - 2)}"'


@pytest.mark.parametrize(
    "line",
    [
        '{"wakeAgent": true, "data": "' + "sk-" * 300_000 + '"}',
        '{"wakeAgent": true, "data": "' + "sk-" * 80_000 + '"}',
        '{"wakeAgent": false, "data": ["' + "sk-" * 80_000 + '"]}',
    ],
)
def test_what_is_too_long_is_not_looked_through_for_secrets(line: str) -> None:
    """That takes a second or two for a megabyte of beginnings of keys, and all other turns of the worker wait."""
    looked_at = 0

    class Counting(Redactor):
        def text(self, text: str) -> str:
            nonlocal looked_at
            looked_at += len(text)
            return super().text(text)

    with pytest.raises(FailedScriptError, match="characters; it may have"):
        read_output(line, Counting())
    assert looked_at <= MAX_DATA


def test_what_no_database_takes_is_made_harmless() -> None:
    found = read_output('{"wakeAgent": true, "data": "a\\u0000b\\ud800c"}', NOBODYS)
    assert found.data == '"a\\u0000b?c"'


@pytest.mark.spec("T6")
def test_no_secret_comes_through() -> None:
    redactor = Redactor([SECRET])
    found = read_output(json.dumps({"wakeAgent": True, "data": {SECRET: [SECRET]}}), redactor)
    assert found.data is not None
    assert SECRET not in found.data
    with pytest.raises(FailedScriptError) as caught:
        read_output(f"no, {'x' * 150} {SECRET} {'x' * 50}", redactor)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["touch begun", "touch begun\n# e", "touch begun\n# end 1 ", ""])
def test_half_a_script_is_not_begun(tmp_path: Path, text: str) -> None:
    """A worker that is stopped while it hands one over must not leave `rm -rf folder/` of `rm -rf folder/old`."""
    ended = subprocess.run(["bash", "-c", _BASH, "script", "# end 1"], input=text, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 125
    assert not (tmp_path / "begun").exists()


@pytest.mark.spec("S4")
def test_a_script_has_so_much_time_and_so_many_words() -> None:
    limits = (LIMITS.seconds, LIMITS.output_bytes)
    assert (*limits, MAX_DATA) == (30, 1 << 20, 50_000)
