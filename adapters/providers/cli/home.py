"""The home of a CLI agent on the host's side: settings put in before it starts, its memory taken out when it has ended
and laid out again on another machine.

What lies there was written by an agent: links are never followed, only plain files are taken, and not without end.
Blocking: call it in a thread, and only while no program runs there."""

import fnmatch
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from adapters.errors import ErrorClass, ProviderError
from adapters.redaction import Redactor, process_redactor

MAX_STATE: Final = 64 << 20
MAX_PACKED: Final = 32 << 20
MAX_FILES: Final = 5_000
MAX_DEPTH: Final = 20  # folders within each other
PIECE: Final = 1 << 18  # characters that are searched for secrets at once: other threads wait meanwhile
_TEXT: Final = (".json", ".jsonl", ".md", ".txt", ".toml", ".yaml", ".log")


def put(home: Path, path: str, text: str) -> None:
    """Write a file for the program, whatever an earlier one has left at that place."""
    target = home / path
    folder = home
    for name in PurePosixPath(path).parts[:-1]:
        folder = folder / name
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            folder.unlink()
        if not folder.exists():
            folder.mkdir(mode=0o700)
            _give(folder, home)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode("utf-8", "replace"))
    _give(target, home)


def pack(home: Path, patterns: Sequence[str]) -> bytes:
    """What `patterns` name (`*` also stands for slashes), without secrets where it is text. Raises ProviderError if it
    is more than can be kept."""
    packed, size, redactor = io.BytesIO(), 0, process_redactor()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for number, (path, name) in enumerate(_files(home, patterns)):
            try:
                content = _read(path)
            except OSError:
                continue  # a link in a file's place, or something that is gone
            if name.endswith(_TEXT):
                content = _redacted(content.decode("utf-8", "replace"), redactor).encode("utf-8", "replace")
            size += len(content)
            if size > MAX_STATE or number >= MAX_FILES:
                raise _too_much(f"{MAX_STATE >> 20} MB or {MAX_FILES:,} files")
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    if packed.tell() > MAX_PACKED:
        raise _too_much(f"{MAX_PACKED >> 20} MB, packed")
    return packed.getvalue()


def unpack(packed: bytes, home: Path) -> None:
    """Lay out in an empty home what `pack` took from another."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for entry in archive:
            parts = PurePosixPath(entry.name).parts
            content = archive.extractfile(entry) if entry.isreg() else None
            if content is None or not parts or ".." in parts or entry.name.startswith("/"):
                raise ProviderError(
                    f"the stored session holds {entry.name!r}, which is no plain file", ErrorClass.INTERNAL
                )
            folder = home
            for part in parts[:-1]:
                folder = folder / part
                if not folder.is_dir():
                    folder.mkdir(mode=0o700)
                    _give(folder, home)
            path = folder / parts[-1]
            with open(path, "xb") as file:
                shutil.copyfileobj(content, file)
            path.chmod(0o600)
            _give(path, home)


def _redacted(text: str, redactor: Redactor) -> str:
    """In pieces that end with a line, if lines are not too long for that."""
    pieces, start = [], 0
    while start < len(text):
        end = text.find("\n", start + PIECE) + 1 or len(text)
        pieces.append(redactor.text(text[start:end]))
        start = end
    return "".join(pieces)


def _files(home: Path, patterns: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """In an order of their own, and without going deeper than programs do."""
    waiting = [home]
    while waiting:
        folder = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            path = folder / entry.name
            relative = path.relative_to(home)
            if entry.is_dir(follow_symlinks=False):
                if len(relative.parts) < MAX_DEPTH:
                    waiting.append(path)
            elif any(fnmatch.fnmatchcase(relative.as_posix(), pattern) for pattern in patterns):
                yield path, relative.as_posix()


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no plain file")
        if status.st_size > MAX_STATE:
            raise _too_much(f"{MAX_STATE >> 20} MB")
        return file.read(MAX_STATE + 1)


def _give(path: Path, home: Path) -> None:
    """A worker of root hands what it writes to whoever owns the home."""
    if os.geteuid() == 0:
        owner = home.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _too_much(limit: str) -> ProviderError:
    return ProviderError(f"the program's session is larger than {limit}, and cannot be kept", ErrorClass.INTERNAL)
