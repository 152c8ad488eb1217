"""`read_file`, `write_file`, `edit_file`, `list_files`, `search_files`: an agent's own folder, as tools.

What they take and how they are described. Everything goes through the workspace, which cannot be left, and happens in
a thread, so that a slow disk holds up nobody else."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from pydantic import Field

from adapters.tool_port import Tool, ToolArguments, ToolContext
from adapters.tools.file_listing import list_folder
from adapters.tools.file_search import MAX_HITS, search
from adapters.tools.file_texts import MAX_LINES, encoded, read_lines, replace_text
from adapters.workspace_paths import shown

FilePath = Annotated[str, Field(description="relative to your workspace, like notes/a.md")]
FolderPath = Annotated[str, Field(description="a folder, relative to your workspace; . is all of it")]

_searches = ThreadPoolExecutor(4, "search")  # so that other tools never wait for a long search


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
    return await asyncio.to_thread(read_lines, context.workspace, arguments.path, arguments.offset, arguments.limit)


async def _write_file(arguments: WriteFileArguments, context: ToolContext) -> str:
    data = encoded(arguments.content)
    await asyncio.to_thread(context.workspace.write, arguments.path, data)
    return f"wrote {len(data):,} bytes to {shown(arguments.path)}"


async def _edit_file(arguments: EditFileArguments, context: ToolContext) -> str:
    path, old, new, everywhere = arguments.path, arguments.old, arguments.new, arguments.replace_all
    return await asyncio.to_thread(replace_text, context.workspace, path, old, new, everywhere=everywhere)


async def _list_files(arguments: ListFilesArguments, context: ToolContext) -> str:
    path, pattern, recursive = arguments.path, arguments.pattern, arguments.recursive
    return await asyncio.to_thread(list_folder, context.workspace, path, pattern, recursive=recursive)


async def _search_files(arguments: SearchFilesArguments, context: ToolContext) -> str:
    loop = asyncio.get_running_loop()
    pattern, path, glob, most = arguments.pattern, arguments.path, arguments.glob, arguments.max_results
    return await loop.run_in_executor(_searches, search, context.workspace, pattern, path, glob, most)


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
