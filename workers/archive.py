"""Rows on their way out, kept as files: one line of JSON each, compressed, one file for each batch.

A file has its name only when it is whole and on the disk. Whoever removes rows does that after: a crash in between
leaves them in both places, never in none."""

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from models.base import new_id

SUFFIX = ".jsonl.gz"
UNFINISHED = ".part"


class ArchiveError(Exception):
    """The archive cannot be written to, so nothing is removed."""


class Archive:
    """A folder, with one for each day (UTC) in it. Blocking: call it in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0

    def check(self) -> None:
        """Raises ArchiveError if nothing can be kept there."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = self.folder / f"{new_id()}{UNFINISHED}"
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            probe.unlink()
        except OSError as error:
            raise self._refused(error) from error

    def write(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Path:
        """Keep rows, each with the name of its table; returns their file, once it is on the disk."""
        at = datetime.now(UTC)
        folder = self.folder / f"{at:%Y-%m-%d}"
        path = folder / f"{at:%H%M%S}-{new_id()[-12:]}{SUFFIX}"
        unfinished = path.with_name(path.name + UNFINISHED)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(unfinished, rows)
            unfinished.rename(path)
            _sync(folder)
            _sync(self.folder)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()
            raise self._refused(error) from error
        self.files += 1
        return path

    def _refused(self, error: OSError) -> ArchiveError:
        return ArchiveError(f"the archive {self.folder} cannot be written to ({error.strerror or error})")


def _write(path: Path, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with gzip.GzipFile(fileobj=file, mode="wb", filename="") as packed:
            for table, row in rows:
                line = json.dumps({"table": table, "row": dict(row)}, default=_plain, ensure_ascii=False)
                packed.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _plain(value: Any) -> str:
    """As PostgreSQL reads it back into a column of the same type."""
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case _:
            raise TypeError(f"{type(value).__name__} has no form in an archive")


def _sync(folder: Path) -> None:
    """A name is on the disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
