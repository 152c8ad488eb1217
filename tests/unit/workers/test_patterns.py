"""Patterns of wirings: ordinary ones are taken, and none that is taken can take long."""

import re

import pytest

from workers.intake.patterns import MAX_SEARCHED, find_fault, matches


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    "pattern",
    [
        "@boss",
        r"^/?(help|start)\b",
        "@boss.*(deploy|release).*prod",
        "foo.*bar.*baz",
        r"issue #?\d+",
        "^.*a.*b",
        "(ab)*",
    ],
)
def test_what_people_write_is_taken(pattern: str) -> None:
    assert find_fault(pattern) is None


@pytest.mark.spec("M2")
@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a|aa)+$",
        r"(\w+\s?)*z",
        "(x+x+)+y",
        ".*.*.*x",
        "a{0,400}a{0,400}b",
        "(?:a?){30}a{30}",
        "a?" * 30 + "a" * 30,
        r"(?=(a+)+)b",
        r"(a*)\1b",
        "(a)?(?(1)b|c)",
        "(" * 100 + ")" * 100 + "x" * 400,
        "",
        "(",
    ],
)
def test_what_could_take_long_or_cannot_be_read_is_not(pattern: str) -> None:
    assert find_fault(pattern) is not None
    assert not matches(pattern, "a" * 5000)


@pytest.mark.spec("M2")
def test_a_pattern_is_searched_in_the_beginning_of_a_text() -> None:
    assert matches("BOSS", "hello boss")
    assert not matches("boss", "x" * MAX_SEARCHED + "boss")
    assert matches("^a", "A") == (re.search("^a", "A", re.IGNORECASE) is not None)
