"""The home of a CLI agent on the host's side: settings put in before it starts, its memory taken out when it has ended
and laid out again on another machine.

What lies there was written by an agent: links are never followed, only plain files are taken, and not without end.
Blocking: call it in a thread, and only while no program runs there."""

import fnmatch
import gzip
import io
import os
import re
import secrets
import stat
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from adapters.errors import ErrorClass, ProviderError
from adapters.redaction import Redactor, process_redactor

MAX_STATE: Final = 64 << 20
MAX_PACKED: Final = 32 << 20
MAX_FILES: Final = 5_000
MAX_SEEN: Final = 100_000  # entries of folders that are looked at
MAX_DEPTH: Final = 20  # folders within each other
MAX_HEADER: Final = 8192  # bytes that go before a file in the archive: its name, if that is long
PIECE: Final = 1 << 18  # characters that are searched for secrets at once: other threads wait meanwhile
_TEXT: Final = (".json", ".jsonl", ".md", ".txt", ".toml", ".yaml", ".log")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = tarfile.BLOCKSIZE


def put(home: Path, path: str, text: str) -> None:
    """Write a file for the program, whatever an earlier one has left at that place."""
    with _cleared(home, path) as (folder, name):
        _write(home, folder, name, text.encode("utf-8", "replace"))


def remove(home: Path, path: str) -> None:
    """Whatever it is, and even if its folder was closed."""
    with _cleared(home, path):
        pass


def pack(home: Path, patterns: Sequence[str]) -> bytes:
    """What `patterns` name (`*` also stands for slashes), without secrets where it is text. Raises ProviderError if it
    is more than can be kept."""
    packed, size, redactor = io.BytesIO(), 0, process_redactor()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for number, (name, content) in enumerate(_files(home, patterns)):
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
    """Lay out in an empty home what `pack` took from another. Raises ProviderError for what it cannot have made: an
    agent may have had its hands in it. FileExistsError if the home is not empty."""
    most, size = MAX_STATE + MAX_FILES * (MAX_HEADER + 3 * _BLOCK), 0
    try:
        with gzip.open(io.BytesIO(packed)) as archive:
            unpacked = archive.read(most + 1)
        if not 0 < len(unpacked) <= most:
            raise ValueError(f"it has {len(unpacked):,} bytes or more")
        for number, (name, content) in enumerate(_entries(unpacked)):
            size += len(content)
            if size > MAX_STATE or number >= MAX_FILES:
                raise ValueError("it is larger than any that is kept")
            *folders, last = PurePosixPath(name).parts
            with _opened(home, folders, make=True) as folder:
                _write(home, folder, last, content)
    except FileExistsError:
        raise
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        raise ProviderError(
            f"the stored session cannot be laid out: {str(error)[:200]}", ErrorClass.INTERNAL
        ) from error


def _entries(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents, as `pack` has written them: plain files, and before one with an unusual name a header with
    that name. An archive can say much else (holes, other sizes, headers without end), and nothing of it is obeyed."""
    at, named = 0, ""
    while (head := archive[at : at + _BLOCK]) and any(head):
        entry = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
        content = archive[at + _BLOCK : at + _BLOCK + max(entry.size, 0)]
        at += _BLOCK + -(-len(content) // _BLOCK) * _BLOCK
        if len(content) != entry.size:
            raise ValueError("it is cut off")
        if entry.type == tarfile.XHDTYPE and not named and len(content) <= MAX_HEADER:
            named = _path_in(content)
            continue
        name, named = named or entry.name, ""
        parts = PurePosixPath(name).parts
        if entry.type != tarfile.REGTYPE or not 0 < len(parts) <= MAX_DEPTH or ".." in parts or name.startswith("/"):
            raise ValueError(f"it holds {name[:100]!r}, which is no plain file")
        yield name, content


def _path_in(header: bytes) -> str:
    """Of records like `20 path=some/where\n`, where the number counts itself; a name may hold anything."""
    path = b""
    while header:
        length = int(header[:10].partition(b" ")[0])
        word, _, value = header[:length].partition(b" ")[2].removesuffix(b"\n").partition(b"=")
        if length < 1 or word not in (b"path", b"hdrcharset"):
            raise ValueError("it has a header that is not ours")
        path = value if word == b"path" else path
        header = header[length:]
    if not path:
        raise ValueError("it has a header without a name")
    return path.decode("utf-8", "surrogateescape")


def _redacted(text: str, redactor: Redactor) -> str:
    """In pieces that end with a line, if lines are not too long for that."""
    pieces, start = [], 0
    while start < len(text):
        end = text.find("\n", start + PIECE) + 1 or len(text)
        pieces.append(redactor.text(text[start:end]))
        start = end
    return "".join(pieces)


def _files(home: Path, patterns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Names and contents, in an order of their own, and without going deeper than programs do."""
    waiting: list[tuple[str, ...]] = [()]
    left = MAX_SEEN
    while waiting:
        above = waiting.pop()
        try:
            with _opened(home, above) as folder:
                with os.scandir(folder) as listed:
                    entries = sorted(islice(listed, left + 1), key=lambda entry: entry.name)
                left -= len(entries)
                if left < 0:
                    raise _too_much(f"{MAX_SEEN:,} files and folders")
                for entry in entries:
                    parts = (*above, entry.name)
                    name = "/".join(parts)
                    if entry.is_dir(follow_symlinks=False):
                        if len(parts) < MAX_DEPTH and any(_may_hold(name, pattern) for pattern in patterns):
                            waiting.append(parts)
                    elif (
                        any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
                        and (content := _read(folder, entry.name)) is not None
                    ):
                        yield name, content
        except OSError:
            continue  # it is closed, or gone, or a link in a folder's place


def _may_hold(folder: str, pattern: str) -> bool:
    """Whether files that are meant can be below it: caches are large, and of no interest."""
    literal = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    return f"{folder}/".startswith(literal) or literal.startswith(f"{folder}/")


def _read(folder: int, name: str) -> bytes | None:
    """None: a link in a file's place, or something that is no file, or gone."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > MAX_STATE:
            raise _too_much(f"{MAX_STATE >> 20} MB")
        return file.read(MAX_STATE + 1)


@contextmanager
def _opened(home: Path, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """A folder below the home, entered step by step: whoever puts a link on the way leads nobody elsewhere. `make`: in
    place of whatever else is there, and for us to write."""
    folder = os.open(home, _FOLDER)
    try:
        for name in parts:
            if make:
                _make_folder(home, folder, name)
            above, folder = folder, os.open(name, _FOLDER, dir_fd=folder)
            os.close(above)
        yield folder
    finally:
        os.close(folder)


def _make_folder(home: Path, above: int, name: str) -> None:
    try:
        found = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    except FileNotFoundError:
        found = 0
    if stat.S_ISDIR(found):
        os.chmod(name, 0o700, dir_fd=above)
        return
    if found:
        os.unlink(name, dir_fd=above)
    os.mkdir(name, 0o700, dir_fd=above)
    if os.geteuid() == 0:
        owner = home.stat()
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=above, follow_symlinks=False)


@contextmanager
def _cleared(home: Path, path: str) -> Iterator[tuple[int, str]]:
    """A folder and a name in it, where nothing is any more."""
    *folders, name = PurePosixPath(path).parts
    home.chmod(0o700)
    with _opened(home, folders, make=True) as folder:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):  # aside: there may be no end to what is in it
            os.rename(name, f"{name}.{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=folder)
        yield folder, name


def _write(home: Path, folder: int, name: str, content: bytes) -> None:
    """A new file. A worker of root hands what it writes to whoever owns the home."""
    with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=folder), "wb") as file:
        file.write(content)
        if os.geteuid() == 0:
            owner = home.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)


def _too_much(limit: str) -> ProviderError:
    return ProviderError(f"the program's session is larger than {limit}, and cannot be kept", ErrorClass.INTERNAL)
