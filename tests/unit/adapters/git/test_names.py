"""What may stand on git's command line as a commit, a branch or a tree."""

import pytest

from adapters.errors import GitError
from adapters.git.names import check_branch, check_commit, check_revision, check_tree


@pytest.mark.parametrize("commit", ["a" * 40, "0123456789abcdef" * 4])
def test_whole_ids_are_commits(commit: str) -> None:
    assert check_commit(commit) == commit


@pytest.mark.parametrize(
    "words", ["", "HEAD", "a" * 39, "A" * 40, "-" + "a" * 39, "a" * 40 + "\n", "main", "0" * 40, "0" * 64]
)
def test_nothing_else_is_a_commit(words: str) -> None:
    with pytest.raises(GitError, match="no commit's whole id"):
        check_commit(words)


@pytest.mark.parametrize("name", ["one", "task-2", "A_b", "x" * 64])
def test_names_of_trees(name: str) -> None:
    assert check_tree(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a.lock", "a b", "é", "x" * 65, "a\n"])
def test_what_could_be_a_path_is_no_name_for_a_tree(name: str) -> None:
    with pytest.raises(GitError):
        check_tree(name)


@pytest.mark.parametrize("name", ["main", "longshore/fix-1", "für/dich", "a@b", "v1.2"])
def test_names_of_branches(name: str) -> None:
    assert check_branch(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-f", "a..b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "/a", "a/", "a//b", ".a", "a/.b", "a.",
     "a.lock", "a.lock/b", "@", "a@{1}", "HEAD", "a\x7f", "a\nb", "x" * 201, "\ud800"],
)  # fmt: skip
def test_what_git_refuses_is_refused(name: str) -> None:
    with pytest.raises(GitError, match="no name for a branch"):
        check_branch(name)


@pytest.mark.parametrize("words", ["main", "v1.0", "main~3", "a" * 40, "origin/main", "@{u}"])
def test_what_people_call_a_commit(words: str) -> None:
    assert check_revision(words) == words


@pytest.mark.parametrize("words", ["", "--all", "a..b", "main:file", "a\nb"])
def test_what_is_no_commit_is_refused(words: str) -> None:
    with pytest.raises(GitError, match="names no commit"):
        check_revision(words)
