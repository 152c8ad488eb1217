"""Which words may stand where git expects a commit, a branch or a tree's name. Whatever is refused here never gets onto
a command line, where it could be an option, a range or another revision."""

import re
from typing import Final

from adapters.errors import GitError
from adapters.git.settings import shown

# All zeros is no commit: where git expects one, it deletes.
_COMMIT: Final = re.compile(r"(?!0+$)[0-9a-f]{40}(?:[0-9a-f]{24})?")
_TREE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# The rules of `git check-ref-format`; in `refs/heads/` none begins with a dash, and HEAD would be taken for another.
_NOT_IN_BRANCH: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[./-]|[./]$|^@$|^HEAD$")
_LONGEST_BRANCH: Final = 200


def check_commit(commit: str) -> str:
    if not _COMMIT.fullmatch(commit):
        raise GitError(f"{shown(commit)!r} is no commit's whole id")
    return commit


def check_tree(name: str) -> str:
    if not _TREE.fullmatch(name):
        raise GitError(f"{shown(name)!r} is no name for a tree: letters, digits, `-` and `_`, at most 64")
    return name


def check_branch(name: str) -> str:
    """Also for the name of a ref without what stands before it."""
    if not name or len(name) > _LONGEST_BRANCH or _NOT_IN_BRANCH.search(name):
        raise GitError(f"{shown(name)!r} is no name for a branch")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise GitError(f"{name!r} is no name for a branch") from error
    return name


def check_revision(words: str) -> str:
    """What a person calls a commit of theirs: a branch, a tag, an id, `main~3`."""
    if not words or words.startswith("-") or not words.isprintable() or ".." in words or ":" in words:
        raise GitError(f"{shown(words)!r} names no commit")
    return words
