"""Texts in an agent's files, made small enough to read: some lines of one, and one piece in place of another.

What cannot be done is a ToolError that tells the agent what to do instead. Blocking: called in a thread, by
`adapters/tools/files.py`."""

import difflib
import io
import threading
import time
from typing import Final

from adapters.errors import ToolError
from adapters.workspace import MAX_WRITTEN, Workspace
from adapters.workspace_paths import shown

MAX_LINES: Final = 2000
MAX_BYTES: Final = 100_000
MAX_LINE: Final = 2000  # bytes of one line that are shown
MAX_SKIPPED: Final = 64 << 20  # bytes that are passed over to get to a line
NEAREST_SECONDS: Final = 0.5
_SNIFFED: Final = 8192

# An edit reads and then writes. Two of them in one workspace must not come between each other.
_editing = tuple(threading.Lock() for _ in range(64))


def read_lines(workspace: Workspace, path: str, first: int, count: int) -> str:
    """So many lines, the first line of a file being 1, with a note of where they stand unless they are all of it."""
    size = workspace.size(path)
    with workspace.open(path) as file:
        if is_binary(file.peek(_SNIFFED)):
            return f"{shown(path)} is a binary file of {size:,} bytes; it cannot be shown as text."
        passed = _pass_lines(file, first - 1)
        if passed is None:
            raise ToolError(
                f"line {first:,} of {path!r} is more than {MAX_SKIPPED >> 20} MB into the file, too far to look for; "
                "take out the part you need, for example with run_command and sed"
            )
        lines, more = _take_lines(file, count)
    if not lines:
        if first == 1:
            return f"{shown(path)} is empty."
        raise ToolError(f"{path!r} has only {passed:,} lines; there is no line {first:,}")
    text = "\n".join(lines).replace("\0", "\N{SYMBOL FOR NULL}")
    if first == 1 and not more:
        return text
    last = first + len(lines) - 1
    rest = f"there is more: read on with offset={last + 1}" if more else "this is the end"
    return f"{text}\n[lines {first}-{last} of {shown(path)}, a file of {size:,} bytes; {rest}]"


def _pass_lines(file: io.BufferedReader, count: int) -> int | None:
    """How many lines were passed over: `count`, or all there are. None if they are too long to go through."""
    passed, skipped, whole = 0, 0, True
    while passed < count and (piece := file.readline(1 << 16)):
        whole = piece.endswith(b"\n")
        passed += whole
        skipped += len(piece)
        if skipped > MAX_SKIPPED:
            return None
    return passed if whole else passed + 1


def _take_lines(file: io.BufferedReader, count: int) -> tuple[list[str], bool]:
    """So many lines, or as many as may be shown, each cut to a readable length; and whether there are more."""
    lines: list[str] = []
    room = MAX_BYTES
    while len(lines) < count and room > 0 and (piece := file.readline(MAX_LINE)):
        room -= len(piece)
        text, left = piece.removesuffix(b"\n").decode("utf-8", "replace"), 0
        while not piece.endswith(b"\n") and left < MAX_SKIPPED and (piece := file.readline(1 << 16)):
            left += len(piece.removesuffix(b"\n"))
        lines.append(f"{text.rstrip(chr(0xFFFD))} [line cut: {left:,} bytes more]" if left else text)
        if left >= MAX_SKIPPED:
            lines[-1] += " [and no further: the line is too long]"
            return lines, False
    return lines, bool(file.peek(1))


def replace_text(workspace: Workspace, path: str, old: str, new: str, *, everywhere: bool) -> str:
    """Unless `everywhere`, `old` must occur just once: which of several is meant, nobody can guess."""
    if old == new:
        raise ToolError("old and new are the same text: there is nothing to change")
    encoded(old)
    with _editing[hash(workspace.root) % len(_editing)]:
        if workspace.entry(path).kind == "link":
            raise ToolError(f"{path!r} is a link; edit the file it leads to by that file's own path")
        data, version = workspace.read_version(path, limit=MAX_WRITTEN + 1)
        if len(data) > MAX_WRITTEN:
            raise ToolError(f"{path!r} has {version.size:,} bytes; at most {MAX_WRITTEN:,} can be edited")
        text = _decoded(path, data)
        count = text.count(old)
        if count == 0:
            raise ToolError(f"old does not occur in {path!r}: nothing was changed. {_nearest(text, old)}")
        if count > 1 and not everywhere:
            raise ToolError(
                f"old occurs {count} times in {path!r}, at {_lines_of(text, old)}: nothing was changed. Give more of "
                "the text around the one you mean, or set replace_all"
            )
        if len(text) + count * (len(new) - len(old)) > MAX_WRITTEN:
            raise ToolError(f"{path!r} would have more than {MAX_WRITTEN:,} bytes: nothing was changed")
        workspace.write(path, encoded(text.replace(old, new)), replacing=version)
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {shown(path)}, at {_lines_of(text, old)}"


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:_SNIFFED]


def encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"the text holds half a character at position {error.start}, which no file can hold") from None


def _decoded(path: str, data: bytes) -> str:
    if is_binary(data):
        raise ToolError(f"{path!r} is a binary file of {len(data):,} bytes; only text can be edited")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{path!r} is not UTF-8 text (byte {error.start:,}); write it anew as a whole") from None


def _lines_of(text: str, old: str) -> str:
    numbers: list[str] = []
    at, line, start = text.find(old), 1, 0
    while at >= 0 and len(numbers) < 10:
        line += text.count("\n", start, at)
        numbers.append(str(line))
        start, at = at, text.find(old, at + len(old))
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}{' and more' if at >= 0 else ''}"


def _nearest(text: str, old: str) -> str:
    """The line most like the first one that was looked for: usually white space or a word has changed."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")[:200]
    matcher = difflib.SequenceMatcher(b=wanted, autojunk=False)
    best, found, until = 0.5, "", time.monotonic() + NEAREST_SECONDS
    for number, line in enumerate(text.split("\n"), 1):
        matcher.set_seq1(line.strip()[:200])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, f"The nearest line is {number}: {line[:300]!r}"
        if best == 1.0 or time.monotonic() > until:
            break
    return found or "No line is like it; read the file again"
