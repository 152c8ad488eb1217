"""A test that is skipped fails the run in CI, and only there."""

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_asks_for_what_is_not_there():
    pytest.skip("no such kernel")

@pytest.mark.skipif(True, reason="no such machine")
def test_is_never_begun():
    pass

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail():
    assert False
"""


@pytest.mark.parametrize(
    ("ci", "outcomes"), [("true", {"failed": 1, "errors": 1, "xfailed": 1}), ("", {"skipped": 2, "xfailed": 1})]
)
def test_a_skipped_test_fails_in_ci_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, outcomes: dict[str, int]
) -> None:
    monkeypatch.setenv("CI", ci)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "tests.support.no_skips", "-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(**outcomes)
