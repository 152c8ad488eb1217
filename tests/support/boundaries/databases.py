"""A database for each case: a copy of a migrated one, thrown away with its case."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

# Given the folder of the case, its address.
MakeDatabase = Callable[[Path], AbstractContextManager[str]]


def copies_of_file(template: Path) -> MakeDatabase:
    @contextmanager
    def make(folder: Path) -> Iterator[str]:
        yield f"sqlite:///{shutil.copy(template, folder / 'longshore.db')}"

    return make


def copies_on_server(make_postgres: Callable[[], Iterator[str]]) -> MakeDatabase:
    @contextmanager
    def make(_: Path) -> Iterator[str]:
        yield from make_postgres()

    return make
