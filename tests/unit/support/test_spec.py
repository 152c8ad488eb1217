"""The table of rows and the tests that prove them."""

from pathlib import Path

import pytest

from tests.support import spec
from tests.support.spec import Mark, read_marks, read_rows, report

FEATURES = """# What it does

| id | what | state |
| --- | --- | --- |
| M1 | **Accept**: dedupe, route, store | done |
| M10 | Output-sent protection | done |
|M2|Route | - |
| **P1** | One contract | |
not | M9 | a row |
"""

TESTS = """
import pytest

@pytest.mark.spec("M1", "M10")
async def test_one() -> None: ...

@pytest.mark.parametrize("x", [1])
@pytest.mark.spec("M1")
def test_two(x: int) -> None: ...

@pytest.mark.spec("M1")
def helper() -> None: ...

def test_three() -> None: ...

@pytest.mark.spec("P1")
class TestGroup:
    @pytest.mark.spec("M2", "P1")
    def test_inner(self) -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    (tests / "unit").mkdir(parents=True)
    (tests / "unit" / "test_things.py").write_text(TESTS)
    (tests / "unit" / "broken.py").write_text("this is not python, and no test")
    (tests / "test_all.py").write_text(
        'import pytest\n\npytestmark = [pytest.mark.spec("M2"), pytest.mark.slow]\n\n\ndef test_it() -> None: ...\n'
    )
    return tests


def test_rows_are_read_from_the_table() -> None:
    assert read_rows(FEATURES) == {
        "M1": "**Accept**: dedupe, route, store",
        "M10": "Output-sent protection",
        "M2": "Route",
        "P1": "One contract",
    }


def test_marks_are_read_without_importing(folder: Path) -> None:
    assert read_marks(folder) == [
        Mark("M2", "tests/test_all.py::test_it"),
        Mark("M1", "tests/unit/test_things.py::test_one"),
        Mark("M10", "tests/unit/test_things.py::test_one"),
        Mark("M1", "tests/unit/test_things.py::test_two"),
        Mark("P1", "tests/unit/test_things.py::TestGroup::test_inner"),
        Mark("M2", "tests/unit/test_things.py::TestGroup::test_inner"),
    ]


def test_each_row_is_listed_with_its_tests_and_bare_ones_stand_out() -> None:
    lines, good = report({"M1": "**Accept**: x", "M2": "Route"}, [Mark("M1", "a::b"), Mark("M1", "a::c")])
    assert good
    assert lines == [
        "M1   Accept: x",
        "       a::b",
        "       a::c",
        "M2   Route",
        "       NO TEST",
        "",
        "1 of 2 rows have tests, 2 proofs in all.",
        "Without a test: M2",
    ]


def test_an_id_that_is_no_row_is_an_error() -> None:
    lines, good = report({"M1": "Accept"}, [Mark("M1", "a::b"), Mark("Z9", "a::c")])
    assert not good
    assert "UNKNOWN Z9: no such row in docs/features.md, but named by" in lines
    assert "       a::c" in lines


def test_a_long_row_is_shortened() -> None:
    lines, _ = report({"M1": "x" * 500}, [])
    assert len(lines[0]) < 100
    assert lines[0].endswith("…")


@pytest.mark.parametrize(("known", "code"), [("M1", 1), ("M1|M2|M10|P1", 0)])
def test_the_command_fails_on_unknown_ids_only(
    known: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    features = folder.parent / "features.md"
    features.write_text("".join(f"| {row} | text |\n" for row in known.split("|")))
    monkeypatch.setattr(spec, "FEATURES", features)
    monkeypatch.setattr(spec, "TESTS", folder)
    assert spec.main() == code
    assert ("UNKNOWN M10" in capsys.readouterr().out) == bool(code)


def test_without_the_page_the_tests_own_ids_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spec, "FEATURES", folder / "none.md")
    monkeypatch.setattr(spec, "TESTS", folder)
    assert spec.main() == 0
    shown = capsys.readouterr().out
    assert "docs/features.md is not there" in shown
    assert shown.index("M2") < shown.index("M10") < shown.index("P1")
