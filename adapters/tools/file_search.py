"""Searching an agent's files for a regular expression, in another process.

The expression is the agent's own, and one that never ends must not stop a worker. The files are read here, through the
workspace, and handed to a child that knows nothing else, has nothing of the worker's and is killed when time is up."""

import functools
import inspect
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from adapters.errors import ToolError, WorkspaceError
from adapters.tools.file_listing import MAX_WALKED, matches, prefix_of
from adapters.tools.file_texts import is_binary
from adapters.workspace import Workspace
from adapters.workspace_paths import shown

MAX_HITS: Final = 200
SEARCH_SECONDS: Final = 10.0
SEARCHED_FILE: Final = 2 << 20  # bytes of one file that are searched
SEARCHED: Final = 64 << 20  # bytes in all


def search(workspace: Workspace, expression: str, top: str, glob: str, most: int) -> str:
    """The first `most` lines that match, of the files below `top`, or of the file `top`, whose names match `glob`."""
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
            head = {"pattern": expression, "most": most, "seconds": int(SEARCH_SECONDS) + 1}
            with suppress(BrokenPipeError), child.stdin as asked:  # it ends when it has found enough
                asked.write(json.dumps(head).encode() + b"\n")
                for name, data in _texts(workspace, top, glob):
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
    return _report(answer, names, most)


def _texts(workspace: Workspace, top: str, glob: str) -> Iterator[tuple[str, bytes]]:
    """The text files to search, each once, as far as they are searched. What cannot be read is passed over."""
    room = SEARCHED
    itself = workspace.entry(top)
    if itself.kind == "file":
        found, folder = iter([itself]), itself.path[: itself.path.rfind("/") + 1]
    else:
        found, folder = workspace.walk(top, limit=MAX_WALKED), prefix_of(workspace.entries(top))
    for entry in found:
        if entry.kind != "file" or not matches(entry, folder, glob):
            continue
        try:
            data = workspace.read(entry.path, limit=min(SEARCHED_FILE, room))
        except WorkspaceError:
            continue
        if not is_binary(data):
            room -= len(data)
            yield entry.path, data
        if room <= 0:
            return


def _report(answer: bytes, names: list[str], most: int) -> str:
    if not answer:
        raise ToolError("the search took too much memory; use a simpler expression, or search fewer files")
    found = json.loads(answer)
    if "error" in found:
        raise ToolError(f"the pattern is not a regular expression: {found['error']}")
    lines = [f"{shown(names[file])}:{line}: {shown(text)}" for file, line, text in found["hits"]]
    if found["more"]:
        lines.append(f"[only the first {most} are shown; narrow the pattern, the path or the glob]")
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
