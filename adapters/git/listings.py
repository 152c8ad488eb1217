"""Reading what git lists, in the forms that programs are meant to read (`-z`): names may hold line breaks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters.git.settings import shown

UNREADABLE: Final = "\ufffd"  # stands for bytes that are no text


@dataclass(frozen=True)
class Changed:
    """A file that differs. `path` is for people. Lines are None if it is not text."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True)
class Blob:
    """A file that is new, as git keeps it."""

    id: str
    path: str


@dataclass(frozen=True)
class Attempt:
    """A merge as far as it went: the tree with marks in its files, the conflicts as the index keeps them, and the files
    they are in, for people."""

    tree: str
    stages: tuple[str, ...]
    conflicts: tuple[str, ...]


def read_changes(said: str) -> tuple[Changed, ...]:
    """Of `--numstat -z --no-renames`."""
    found = []
    for record in _records(said):
        added, removed, path = record.split("\t", 2)
        found.append(Changed(shown(path), _number(added), _number(removed)))
    return tuple(found)


def read_blobs(said: str) -> tuple[Blob, ...]:
    """Of `--raw -z --no-renames --no-abbrev`: what the new side holds; other repositories are no files."""
    records = list(_records(said))
    found = []
    for facts, path in zip(records[::2], records[1::2], strict=True):
        _, mode, _, new, _ = facts.split(" ")
        if mode not in ("000000", "160000"):
            found.append(Blob(new, path))
    return tuple(found)


def read_attempt(said: str) -> Attempt:
    """Of `merge-tree --write-tree -z --no-messages`."""
    tree, *stages = _records(said)
    paths = dict.fromkeys(stage.split("\t", 1)[1] for stage in stages)
    return Attempt(tree, tuple(stages), tuple(map(shown, paths)))


def index_input(attempt: Attempt) -> bytes:
    """For `update-index -z --index-info`: the conflicts instead of the files with marks. A name that cannot be read
    is left out: its file is in the tree all the same."""
    readable = [stage for stage in attempt.stages if UNREADABLE not in stage]
    paths = dict.fromkeys(stage.split("\t", 1)[1] for stage in readable)
    gone = [f"0 {'0' * len(attempt.tree)}\t{path}" for path in paths]
    return "".join(f"{line}\0" for line in (*gone, *readable)).encode()


def _records(said: str) -> Iterator[str]:
    return (record for record in said.split("\0") if record)


def _number(word: str) -> int | None:
    return None if word == "-" else int(word)
