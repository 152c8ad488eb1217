"""`read_file`, `write_file`, `edit_file`, `list_files`, `search_files`: an agent's own folder.

Everything goes through the workspace, which cannot be left; here it is only made small enough to read. What a search
looks for is the agent's own expression, and one that never ends must not stop a worker: it runs in another process."""

import asyncio
import difflib
import functools
import inspect
import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from typing import Annotated, Final

from pydantic import Field

from adapters.errors import ToolError, WorkspaceError
from adapters.tool_port import Tool, ToolArguments, ToolContext
from adapters.workspace import MAX_WRITTEN, Workspace
from adapters.workspace_files import Entry
from adapters.workspace_paths import shown

MAX_LINES: Final = 2000
MAX_BYTES: Final = 100_000
MAX_LINE: Final = 2000  # bytes of one line that are shown
MAX_SKIPPED: Final = 64 << 20  # bytes that are passed over to get to a line
MAX_LISTED: Final = 1000
MAX_WALKED: Final = 20_000
MAX_HITS: Final = 200
SEARCH_SECONDS: Final = 10.0
SEARCHED_FILE: Final = 2 << 20  # bytes of one file that are searched
SEARCHED: Final = 64 << 20  # bytes in all
NEAREST_SECONDS: Final = 0.5
_SNIFFED: Final = 8192

FilePath = Annotated[str, Field(description="relative to your workspace, like notes/a.md")]
FolderPath = Annotated[str, Field(description="a folder, relative to your workspace; . is all of it")]

_searches = ThreadPoolExecutor(4, "search")  # so that other tools never wait for a long search
# An edit reads and then writes. Two of them in one workspace must not come between each other.
_editing = tuple(threading.Lock() for _ in range(64))


class ReadFileArguments(ToolArguments):
    path: FilePath
    offset: int = Field(1, ge=1, description="the first line to read; the file's first is 1")
    limit: int = Field(MAX_LINES, ge=1, le=MAX_LINES, description="how many lines to read")


class WriteFileArguments(ToolArguments):
    path: FilePath
    content: str = Field(description="the whole new content, at most 20 MB")


class EditFileArguments(ToolArguments):
    path: FilePath
    old: str = Field(min_length=1, description="the text to replace, exactly as it stands, with its white space")
    new: str = Field(description="what comes in its place")
    replace_all: bool = Field(False, description="replace every occurrence; else there must be exactly one")


class ListFilesArguments(ToolArguments):
    path: FolderPath = "."
    recursive: bool = Field(False, description="also what lies in the folders within it")
    pattern: str = Field("*", min_length=1, max_length=200, description="names to list, like *.md or notes/*.md")


class SearchFilesArguments(ToolArguments):
    pattern: str = Field(min_length=1, max_length=1000, description="a Python regular expression, tried on each line")
    path: FolderPath = "."
    glob: str = Field("*", min_length=1, max_length=200, description="names of the files to search, like *.py")
    max_results: int = Field(MAX_HITS, ge=1, le=MAX_HITS, description="how many lines to show at most")


async def _read_file(arguments: ReadFileArguments, context: ToolContext) -> str:
    return await asyncio.to_thread(_read, context.workspace, arguments)


async def _write_file(arguments: WriteFileArguments, context: ToolContext) -> str:
    data = _encoded(arguments.content)
    await asyncio.to_thread(context.workspace.write, arguments.path, data)
    return f"wrote {len(data):,} bytes to {shown(arguments.path)}"


async def _edit_file(arguments: EditFileArguments, context: ToolContext) -> str:
    return await asyncio.to_thread(_edit, context.workspace, arguments)


async def _list_files(arguments: ListFilesArguments, context: ToolContext) -> str:
    return await asyncio.to_thread(_list, context.workspace, arguments)


async def _search_files(arguments: SearchFilesArguments, context: ToolContext) -> str:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_searches, _search, context.workspace, arguments)


def _read(workspace: Workspace, arguments: ReadFileArguments) -> str:
    path, first, size = arguments.path, arguments.offset, workspace.size(arguments.path)
    with workspace.open(path) as file:
        if b"\0" in file.peek(_SNIFFED)[:_SNIFFED]:
            return f"{shown(path)} is a binary file of {size:,} bytes; it cannot be shown as text."
        passed = _pass_lines(file, first - 1)
        if passed is None:
            raise ToolError(
                f"line {first:,} of {path!r} is more than {MAX_SKIPPED >> 20} MB into the file, too far to look for; "
                "take out the part you need, for example with run_command and sed"
            )
        lines, more = _take_lines(file, arguments.limit)
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


def _edit(workspace: Workspace, arguments: EditFileArguments) -> str:
    path, old, new = arguments.path, arguments.old, arguments.new
    if old == new:
        raise ToolError("old and new are the same text: there is nothing to change")
    _encoded(old)
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
        if count > 1 and not arguments.replace_all:
            raise ToolError(
                f"old occurs {count} times in {path!r}, at {_lines_of(text, old)}: nothing was changed. Give more of "
                "the text around the one you mean, or set replace_all"
            )
        if len(text) + count * (len(new) - len(old)) > MAX_WRITTEN:
            raise ToolError(f"{path!r} would have more than {MAX_WRITTEN:,} bytes: nothing was changed")
        workspace.write(path, _encoded(text.replace(old, new)), replacing=version)
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {shown(path)}, at {_lines_of(text, old)}"


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"the text holds half a character at position {error.start}, which no file can hold") from None


def _decoded(path: str, data: bytes) -> str:
    if b"\0" in data[:_SNIFFED]:
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


def _matches(entry: Entry, folder: str, pattern: str) -> bool:
    path = entry.path.removeprefix(folder)
    pattern = pattern.removeprefix("**/")
    return fnmatchcase(path, pattern) or fnmatchcase(path.rpartition("/")[2], pattern)


def _prefix(entries: list[Entry]) -> str:
    return entries[0].path[: entries[0].path.rfind("/") + 1] if entries else ""


def _list(workspace: Workspace, arguments: ListFilesArguments) -> str:
    top = workspace.entries(arguments.path)
    found = list(workspace.walk(arguments.path, limit=MAX_WALKED)) if arguments.recursive else top
    folder = _prefix(top)
    matching = (entry for entry in found if _matches(entry, folder, arguments.pattern))
    lines = [_line(entry) for entry in islice(matching, MAX_LISTED)]
    if not lines:
        return (
            f"{shown(arguments.path)} is empty" if not found else f"nothing in {shown(arguments.path)} has such a name"
        )
    if next(matching, None) is not None:
        lines.append(f"[only the first {MAX_LISTED:,} are listed; list a folder within it, or give a narrower pattern]")
    elif arguments.recursive and len(found) == MAX_WALKED:
        lines.append(f"[only the first {MAX_WALKED:,} files and folders were looked at; list a folder within it]")
    return "\n".join(lines)


def _line(entry: Entry) -> str:
    name = shown(entry.path)
    match entry.kind:
        case "folder":
            return f"{name}/"
        case "file":
            return f"{name} ({entry.size:,} bytes)"
        case "link":
            return f"{name} (a link)"
        case _:
            return f"{name} (not a plain file)"


def _search(workspace: Workspace, arguments: SearchFilesArguments) -> str:
    until = time.monotonic() + SEARCH_SECONDS
    names: list[str] = []
    child = subprocess.Popen(  # noqa: S603  # our own text; the agent's comes in as data
        [sys.executable, "-I", "-S", "-c", _searcher()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},  # nothing of the worker's, least of all its keys
        cwd="/",
    )
    end = threading.Timer(SEARCH_SECONDS, child.kill)
    end.start()
    with child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            head = {"pattern": arguments.pattern, "most": arguments.max_results, "seconds": int(SEARCH_SECONDS) + 1}
            with suppress(BrokenPipeError), child.stdin as asked:  # it ends when it has found enough
                asked.write(json.dumps(head).encode() + b"\n")
                for name, data in _texts(workspace, arguments):
                    if time.monotonic() > until:
                        break
                    asked.write(b"%d %d\n" % (len(names), len(data)))
                    names.append(name)
                    asked.write(data)
            answer = child.stdout.read()
        finally:
            end.cancel()
            child.kill()
    if time.monotonic() > until:
        raise ToolError(
            f"the search was ended after {SEARCH_SECONDS:g} seconds; use a simpler expression (nested repeats such as "
            "(a+)+ can take forever), or search fewer files"
        )
    return _report(answer, names, arguments)


def _texts(workspace: Workspace, arguments: SearchFilesArguments) -> Iterator[tuple[str, bytes]]:
    """The text files to search, each once, as far as they are searched. What cannot be read is passed over."""
    room = SEARCHED
    itself = workspace.entry(arguments.path)
    if itself.kind == "file":
        found, folder = iter([itself]), itself.path[: itself.path.rfind("/") + 1]
    else:
        found, folder = workspace.walk(arguments.path, limit=MAX_WALKED), _prefix(workspace.entries(arguments.path))
    for entry in found:
        if entry.kind != "file" or not _matches(entry, folder, arguments.glob):
            continue
        try:
            data = workspace.read(entry.path, limit=min(SEARCHED_FILE, room))
        except WorkspaceError:
            continue
        if b"\0" not in data[:_SNIFFED]:
            room -= len(data)
            yield entry.path, data
        if room <= 0:
            return


def _report(answer: bytes, names: list[str], arguments: SearchFilesArguments) -> str:
    if not answer:
        raise ToolError("the search took too much memory; use a simpler expression, or search fewer files")
    found = json.loads(answer)
    if "error" in found:
        raise ToolError(f"the pattern is not a regular expression: {found['error']}")
    lines = [f"{shown(names[file])}:{line}: {shown(text)}" for file, line, text in found["hits"]]
    if found["more"]:
        lines.append(f"[only the first {arguments.max_results} are shown; narrow the pattern, the path or the glob]")
    if not lines:
        lines.append(f"no line matches, in {len(names):,} text file{'s' * (len(names) != 1)}")
    return "\n".join(lines)


@functools.cache
def _searcher() -> str:
    return f"{inspect.getsource(_search_texts)}\n_search_texts()"


def _search_texts() -> None:
    """The process that searches: texts come in on stdin, what was found goes out at the end. It is given this text and
    nothing else, so it imports what it needs; it dies of its own limits if nobody is left to end it."""
    import json
    import os
    import re
    import resource
    import sys
    from contextlib import suppress

    asked = sys.stdin.buffer
    head = json.loads(asked.readline())
    for limit, value in ((resource.RLIMIT_CPU, head["seconds"]), (resource.RLIMIT_AS, 1 << 30)):
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))
    found: dict[str, object]
    try:
        expression = re.compile(head["pattern"])
        hits: list[tuple[int, int, str]] = []
        while len(hits) <= head["most"] and (line := asked.readline()):
            file, size = map(int, line.split())
            for number, text in enumerate(asked.read(size).decode("utf-8", "replace").split("\n"), 1):
                if match := expression.search(text):
                    start = max(0, match.start() - 100) if len(text) > 300 else 0
                    hits.append((file, number, text[start : start + 300].rstrip("\r")))
                    if len(hits) > head["most"]:
                        break
        found = {"hits": hits[: head["most"]], "more": len(hits) > head["most"]}
    except (re.error, RecursionError, OverflowError) as error:
        found = {"error": str(error)}
    os.close(0)  # whoever still writes there hears it, and comes to read
    sys.stdout.write(json.dumps(found))


READ_FILE = Tool(
    "read_file",
    "Reads a text file of your workspace, or some lines of it.",
    ReadFileArguments,
    _read_file,
    idempotent=True,
)
WRITE_FILE = Tool(
    "write_file",
    "Writes a file of your workspace: a new one, or in place of the old one. Folders on the way are made.",
    WriteFileArguments,
    _write_file,
    idempotent=True,  # the same content once more
)
EDIT_FILE = Tool(
    "edit_file",
    "Replaces a piece of text in a file of your workspace.",
    EditFileArguments,
    _edit_file,
    idempotent=False,  # done a second time it may find the old text again, within the new
)
LIST_FILES = Tool(
    "list_files", "Lists the files and folders of your workspace.", ListFilesArguments, _list_files, idempotent=True
)
SEARCH_FILES = Tool(
    "search_files",
    "Finds the lines in the text files of your workspace that match a regular expression.",
    SearchFilesArguments,
    _search_files,
    idempotent=True,
)
