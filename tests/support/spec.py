"""`make spec`: every row of docs/features.md with the tests that prove it (`--brief`: only how many have some).

Tests say so with `@pytest.mark.spec("M5")`. They are read, not imported: this needs no services and no pytest."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FEATURES: Final = ROOT / "docs" / "features.md"
TESTS: Final = ROOT / "tests"
_ROW = re.compile(r"^\|\s*\**([A-Z]\d+)\**\s*\|\s*(.*?)\s*\|")
_WIDTH: Final = 90


@dataclass(frozen=True)
class Mark:
    """A test and a row it names."""

    row: str
    test: str  # path::name


def read_rows(markdown: str) -> dict[str, str]:
    """Id and text of each table row, in order."""
    found = (_ROW.match(line) for line in markdown.splitlines())
    return {match[1]: match[2] for match in found if match}


def read_marks(folder: Path) -> list[Mark]:
    return [mark for path in sorted(folder.rglob("test_*.py")) for mark in _marks_of(path, folder.parent)]


def report(rows: dict[str, str], marks: Sequence[Mark], *, have_rows: bool = True) -> tuple[list[str], bool]:
    """The lines to print, and whether every id that a test names exists."""
    tests: dict[str, list[str]] = defaultdict(list)
    for mark in marks:
        tests[mark.row].append(mark.test)
    if not have_rows:
        rows = dict.fromkeys(sorted(tests, key=_order), "")
    lines: list[str] = []
    for row, text in rows.items():
        lines.append(f"{row:4} {_shortened(text)}".rstrip())
        lines += [f"       {test}" for test in tests[row]] or ["       NO TEST"]
    unknown = [] if not have_rows else sorted(set(tests) - set(rows), key=_order)
    for row in unknown:
        lines += [f"UNKNOWN {row}: no such row in docs/features.md, but named by", *(f"       {t}" for t in tests[row])]
    bare = [row for row in rows if not tests[row]]
    lines += ["", f"{len(rows) - len(bare)} of {len(rows)} rows have tests, {len(marks)} proofs in all."]
    if bare:
        lines.append(f"Without a test: {', '.join(bare)}")
    return lines, not unknown


def main() -> int:
    have_rows = FEATURES.exists()
    rows = read_rows(FEATURES.read_text()) if have_rows else {}
    lines, good = report(rows, read_marks(TESTS), have_rows=have_rows)
    if not have_rows:
        print("docs/features.md is not there: showing only what the tests name.\n")
    if good and "--brief" in sys.argv[1:]:
        lines = lines[lines.index("") + 1 :]
    print("\n".join(lines))
    return 0 if good else 1


def _marks_of(path: Path, root: Path) -> Iterator[Mark]:
    tree = ast.parse(path.read_text(), str(path))
    yield from _within(tree, _assigned(tree), str(path.relative_to(root)))


def _within(node: ast.Module | ast.ClassDef, inherited: list[str], place: str) -> Iterator[Mark]:
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test"):
            for row in dict.fromkeys([*inherited, *_named(child.decorator_list)]):
                yield Mark(row, f"{place}::{child.name}")
        elif isinstance(child, ast.ClassDef) and child.name.startswith("Test"):
            yield from _within(child, [*inherited, *_named(child.decorator_list)], f"{place}::{child.name}")


def _assigned(tree: ast.Module) -> list[str]:
    """`pytestmark = pytest.mark.spec(...)`, or a list of marks: holds for the whole file."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets
        ):
            value = statement.value
            return _named(value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
    return []


def _named(decorators: Sequence[ast.expr]) -> list[str]:
    """The ids in `pytest.mark.spec("A1", "B2")` among these expressions."""
    return [
        argument.value
        for call in decorators
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.spec"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def _order(row: str) -> tuple[str, int]:
    letters = row.rstrip("0123456789")
    return letters, int(row[len(letters) :] or 0)


def _shortened(text: str) -> str:
    plain = text.replace("**", "")
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 1] + "…"


if __name__ == "__main__":
    sys.exit(main())
