"""The file tools: what an agent reads of its folder, and what it is told when that is not possible."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from adapters.errors import ToolError
from adapters.tools import file_search, file_texts, files
from adapters.tools.files import EDIT_FILE, LIST_FILES, READ_FILE, SEARCH_FILES, WRITE_FILE
from tests.support.tool_contexts import use_tool

pytestmark = pytest.mark.spec("T5")


async def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    assert (
        await use_tool(WRITE_FILE, tmp_path, path="notes/a.md", content="one\ntwo\n") == "wrote 8 bytes to notes/a.md"
    )
    assert await use_tool(READ_FILE, tmp_path, path="/workspace/notes/a.md") == "one\ntwo"
    await use_tool(WRITE_FILE, tmp_path, path="empty", content="")
    assert await use_tool(READ_FILE, tmp_path, path="empty") == "empty is empty."


async def test_long_files_are_read_in_parts(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    first = await use_tool(READ_FILE, tmp_path, path="long")
    assert first.splitlines()[1999] == "line 2000"
    assert first.endswith("[lines 1-2000 of long, a file of 48,893 bytes; there is more: read on with offset=2001]")
    last = await use_tool(READ_FILE, tmp_path, path="long", offset=4999, limit=10)
    assert last.startswith("line 4999\nline 5000\n[lines 4999-5000 of long")
    assert last.endswith("this is the end]")
    with pytest.raises(ToolError, match="has only 5,000 lines; there is no line 5,001"):
        await use_tool(READ_FILE, tmp_path, path="long", offset=5001)
    (tmp_path / "short").write_text("a\nb")
    with pytest.raises(ToolError, match="has only 2 lines"):
        await use_tool(READ_FILE, tmp_path, path="short", offset=7)


async def test_long_lines_are_cut_and_all_of_it_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "wide").write_text("x" * 5000 + "\nshort\n" + "é" * 3000)
    text = await use_tool(READ_FILE, tmp_path, path="wide")
    assert text.splitlines()[0] == "x" * 2000 + " [line cut: 3,000 bytes more]"
    assert text.splitlines()[1] == "short"
    assert "\N{REPLACEMENT CHARACTER}" not in text
    (tmp_path / "wider").write_text(("y" * 1500 + "\n") * 200)
    text = await use_tool(READ_FILE, tmp_path, path="wider")
    assert len(text) < file_texts.MAX_BYTES + 5000
    assert "read on with offset=68]" in text


async def test_binary_files_are_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\0\0" * 1000)
    assert await use_tool(READ_FILE, tmp_path, path="photo.jpg") == (
        "photo.jpg is a binary file of 4,000 bytes; it cannot be shown as text."
    )
    with pytest.raises(ToolError, match="binary file of 4,000 bytes; only text can be edited"):
        await use_tool(EDIT_FILE, tmp_path, path="photo.jpg", old="a", new="b")
    (tmp_path / "late").write_bytes(b"a" * 9000 + b"\n\0")
    assert "\0" not in await use_tool(READ_FILE, tmp_path, path="late"), "no database stores it"


async def test_an_edit_wants_exactly_one_match(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("def run():\n    return 1\n\n\ndef walk():\n    return 1\n")
    with pytest.raises(ToolError, match=r"old occurs 2 times in 'a.py', at lines 2, 6: nothing was changed"):
        await use_tool(EDIT_FILE, tmp_path, path="a.py", old="return 1", new="return 2")
    with pytest.raises(ToolError, match=r"The nearest line is 5: 'def walk\(\):'"):
        await use_tool(EDIT_FILE, tmp_path, path="a.py", old="def walks():\n", new="")
    with pytest.raises(ToolError, match="No line is like it"):
        await use_tool(EDIT_FILE, tmp_path, path="a.py", old="########", new="")
    with pytest.raises(ToolError, match="the same text"):
        await use_tool(EDIT_FILE, tmp_path, path="a.py", old="def", new="def")
    assert "return 2" not in file.read_text()
    edited = await use_tool(EDIT_FILE, tmp_path, path="a.py", old="run():\n    return 1", new="run():\n    return 3")
    assert edited == "replaced 1 occurrence in a.py, at line 1"
    assert await use_tool(EDIT_FILE, tmp_path, path="a.py", old="def ", new="async def ", replace_all=True) == (
        "replaced 2 occurrences in a.py, at lines 1, 5"
    )
    assert file.read_text() == "async def run():\n    return 3\n\n\nasync def walk():\n    return 1\n"


async def test_an_edit_cannot_blow_up(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a" * 1_000_000)
    with pytest.raises(ToolError, match="would have more than"):
        await use_tool(EDIT_FILE, tmp_path, path="a", old="a", new="b" * 1_000_000, replace_all=True)
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(ToolError, match="not UTF-8 text"):
        await use_tool(EDIT_FILE, tmp_path, path="latin", old="c", new="d")
    with pytest.raises(ToolError, match="half a character"):
        await use_tool(WRITE_FILE, tmp_path, path="b", content="\ud800")


async def test_a_link_is_edited_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").symlink_to("a")
    assert await use_tool(READ_FILE, tmp_path, path="b") == "one"
    with pytest.raises(ToolError, match="'b' is a link; edit the file it leads to"):
        await use_tool(EDIT_FILE, tmp_path, path="b", old="one", new="two")


async def test_edits_at_the_same_time_all_happen(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"<{n}>\n" for n in range(40)))
    await asyncio.gather(*(use_tool(EDIT_FILE, tmp_path, path="a", old=f"<{n}>", new=f"[{n}]") for n in range(40)))
    assert (tmp_path / "a").read_text() == "".join(f"[{n}]\n" for n in range(40))


async def test_listing(tmp_path: Path) -> None:
    (tmp_path / "notes" / "old").mkdir(parents=True)
    (tmp_path / "notes" / "a.md").write_text("abc")
    (tmp_path / "notes" / "old" / "b.md").write_text("")
    (tmp_path / "z.txt").write_text("")
    (tmp_path / "link").symlink_to("notes")
    os.mkfifo(tmp_path / "pipe")
    assert await use_tool(LIST_FILES, tmp_path) == "link (a link)\nnotes/\npipe (not a plain file)\nz.txt (0 bytes)"
    assert await use_tool(LIST_FILES, tmp_path, recursive=True, pattern="*.md") == (
        "notes/a.md (3 bytes)\nnotes/old/b.md (0 bytes)"
    )
    assert await use_tool(LIST_FILES, tmp_path, recursive=True, pattern="**/*.txt") == "z.txt (0 bytes)"
    assert (
        await use_tool(LIST_FILES, tmp_path, path="notes", recursive=True, pattern="old/*")
        == "notes/old/b.md (0 bytes)"
    )
    assert (
        await use_tool(LIST_FILES, tmp_path, path="notes/old", pattern="*.py") == "nothing in notes/old has such a name"
    )
    (tmp_path / "empty").mkdir()
    assert await use_tool(LIST_FILES, tmp_path, path="empty") == "empty is empty"
    with pytest.raises(ToolError, match=r"'z.txt' is not a folder"):
        await use_tool(LIST_FILES, tmp_path, path="z.txt")


async def test_long_lists_are_cut(tmp_path: Path) -> None:
    for n in range(1005):
        (tmp_path / f"{n:04}").touch()
    lines = (await use_tool(LIST_FILES, tmp_path)).splitlines()
    assert lines[999] == "0999 (0 bytes)"
    assert lines[1000].startswith("[only the first 1,000 are listed")


async def test_searching(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("import os\n\nx = os.getcwd()\n")
    (tmp_path / "b.txt").write_text("os\r\n")
    (tmp_path / "c.bin").write_bytes(b"os\0")
    (tmp_path / "d.txt").symlink_to("b.txt")
    assert await use_tool(SEARCH_FILES, tmp_path, pattern=r"\bos\b") == (
        "b.txt:1: os\nsrc/a.py:1: import os\nsrc/a.py:3: x = os.getcwd()"
    )
    assert await use_tool(SEARCH_FILES, tmp_path, pattern="os", glob="*.py", max_results=1) == (
        "src/a.py:1: import os\n[only the first 1 are shown; narrow the pattern, the path or the glob]"
    )
    assert await use_tool(SEARCH_FILES, tmp_path, pattern="os", path="b.txt") == "b.txt:1: os"
    assert await use_tool(SEARCH_FILES, tmp_path, pattern="nowhere") == "no line matches, in 2 text files"
    with pytest.raises(ToolError, match="not a regular expression: missing \\)"):
        await use_tool(SEARCH_FILES, tmp_path, pattern="(")
    with pytest.raises(ToolError, match="there is no 'gone' in your workspace"):
        await use_tool(SEARCH_FILES, tmp_path, pattern="a", path="gone")


async def test_a_search_that_finds_much_ends_early(tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / f"{n:02}").write_text(("é" * 400 + "\n") * 1000)
    lines = (await use_tool(SEARCH_FILES, tmp_path, pattern="é")).splitlines()
    assert len(lines) == file_search.MAX_HITS + 1


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(.*)*(.*)*(.*)*b"])
async def test_an_expression_that_never_ends_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    (tmp_path / "a").write_text("a" * 5000 + "!\n" + "b\n" * 500_000)
    monkeypatch.setattr(file_search, "SEARCH_SECONDS", 1.0)
    started = time.monotonic()
    search = asyncio.create_task(use_tool(SEARCH_FILES, tmp_path, pattern=pattern))
    await asyncio.sleep(0.1)
    assert await use_tool(READ_FILE, tmp_path, path="a", limit=1), "others go on meanwhile"
    with pytest.raises(ToolError, match="the search was ended after 1 seconds"):
        await search
    assert time.monotonic() - started < 5


def test_bounds_are_in_the_schemas() -> None:
    for tool in (READ_FILE, WRITE_FILE, EDIT_FILE, LIST_FILES, SEARCH_FILES):
        assert all("description" in field for field in tool.spec.schema["properties"].values())
        assert tool.idempotent is (tool is not EDIT_FILE)
    with pytest.raises(ValidationError):
        files.ReadFileArguments(path="a", limit=2001)
    with pytest.raises(ValidationError):
        files.SearchFilesArguments(pattern="a", max_results=0)
