"""The report of where a test run spends its time."""

import json
from pathlib import Path

import pytest

from tests.support.times import Recorder, read_rows, report


def write(path: Path, *rows: tuple[str, str, float, float, float]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_process_that_hands_out_the_tests_is_not_counted_with_those_that_run_them(tmp_path: Path) -> None:
    write(tmp_path / "main.jsonl", ("process", "process", 9, 9, 9))
    assert len(read_rows(tmp_path)) == 1, "alone it has run them itself"
    write(tmp_path / "gw0.jsonl", ("test", "tests/unit/test_a.py::test_one", 1, 0.5, 0.25))
    assert [row.kind for row in read_rows(tmp_path)] == ["test"]


def test_time_is_summed_by_level_file_fixture_and_test_the_dearest_first(tmp_path: Path) -> None:
    write(
        tmp_path / "gw0.jsonl",
        ("fixture", "db", 0.5, 0.5, 0),
        ("test", "tests/unit/test_a.py::test_one", 1, 1, 0),
        ("test", "tests/chaos/test_b.py::test_two", 5, 1, 3),
        ("test", "tests/chaos/test_b.py::test_three", 5, 2, 0),
        ("servers", "servers", 1, 0, 2),
        ("process", "process", 14, 5, 5),
    )
    lines = report(read_rows(tmp_path), most=2)
    assert lines[:2] == [
        "3 tests, 10 s of CPU in 1 processes",
        "  of these 3 s outside of tests: imports, collection, the servers of the run",
    ]
    tables = {
        part.split()[0]: [line.split() for line in part.splitlines()[1:]]
        for part in "\n".join(lines[2:]).strip().split("\n\n")
    }
    assert tables["level"] == [["chaos", "2", "6.0", "3.0", "3.0", "10.0"], ["unit", "1", "1.0", "1.0", "0.0", "1.0"]]
    assert [row[0] for row in tables["file"]] == ["tests/chaos/test_b.py", "tests/unit/test_a.py"]
    assert [row[:2] for row in tables["fixture"]] == [["db", "1"]]
    assert [row[0].split("::")[1] for row in tables["test"]] == ["test_two", "test_three"]


def test_servers_that_end_with_the_last_test_are_not_counted_as_its_cost(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "gw0.jsonl"
    recorder = Recorder(path.open("w"))
    for nextitem in (request.node, None):
        running = recorder.pytest_runtest_protocol(request.node, nextitem)
        next(running)
        with pytest.raises(StopIteration):
            running.send(None)
    recorder.pytest_unconfigure()
    assert [row.kind for row in read_rows(tmp_path)] == ["test", "servers", "test", "process"]
