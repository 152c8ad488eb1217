"""How git's version and failures are judged."""

import pytest

from adapters.errors import GitError
from adapters.git.settings import check_version, failure


@pytest.mark.parametrize("said", ["git version 2.38.0", "git version 2.50.1 (Apple Git-155)", "git version 3.0.0"])
def test_a_new_git_will_do(said: str) -> None:
    check_version(said, "here")


@pytest.mark.parametrize(
    ("said", "words"), [("git version 2.37.9", "is 2.37: 2.38 or newer"), ("", "no git here: install git 2.38")]
)
def test_an_old_git_and_none_are_told(said: str, words: str) -> None:
    with pytest.raises(GitError, match=words):
        check_version(said, "here")


@pytest.mark.parametrize(
    ("words", "retryable"),
    [
        ("fatal: Unable to create '/x/index.lock': File exists.", True),
        ("error: unable to write file: No space left on device", True),
        ("fatal: bad object", False),
        ("fatal: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'", False),
        ("fatal: cannot lock ref 'refs/heads/a': is at 0123abcd but expected 0123", True),
    ],
)
def test_what_may_pass_is_told_from_what_does_not(words: str, retryable: bool) -> None:
    assert failure(("add",), 128, words).retryable is retryable


def test_words_of_git_are_one_bounded_line() -> None:
    error = failure(("add",), 128, "fatal: a\x1b[31m\nb" + "x" * 10_000)
    assert str(error).startswith("git add did not work (exit code 128): fatal: a\\x1b[31m b")
    assert len(str(error)) < 800
