"""Where the Gemini CLI keeps conversations in its home, and how one is made ready to be continued.

It names a conversation's file by the minute, and one that it continues within that minute it would overwrite: files
are renamed before. Blocking, and only while no program runs there; links are never followed."""

import json
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from adapters.providers.cli.home import put
from adapters.workspace import Workspace

FOLDER: Final = ".gemini"
PROJECT: Final = "longshore"
CHATS: Final = f"{FOLDER}/tmp/{PROJECT}/chats"  # noqa: S108 - in the home
STATE: Final = f"{CHATS}/*.jsonl"
LARGEST: Final = 16 << 20  # bytes that are read of one
LONG_AGO: Final = "2000-01-01T00:00:00.000Z"
BEGINNING: Final = "The conversation begins here."


def registry(workspace: str) -> dict[str, str]:
    """Under which name it finds the workspace's conversations: the same on every machine."""
    return {f"{FOLDER}/projects.json": json.dumps({"projects": {workspace: PROJECT}})}


def seed() -> tuple[str, dict[str, str]]:
    """A conversation in which nothing was said yet: its id, and the file of it."""
    session = str(uuid.uuid4())
    lines = (
        {"sessionId": session, "projectHash": PROJECT, "startTime": LONG_AGO, "lastUpdated": LONG_AGO, "kind": "main"},
        {"id": str(uuid.uuid4()), "timestamp": LONG_AGO, "type": "user", "content": [{"text": BEGINNING}]},
    )
    return session, {f"{CHATS}/{_name(session, 0)}": "".join(json.dumps(line) + "\n" for line in lines)}


def make_ready(home: Path, session: str | None) -> bool:
    """Only the conversation that is continued stays, and of its files those in which something was said. False: there
    is none."""
    found = False
    for number, path in enumerate(_files(home)):
        said = path.read_text(encoding="utf-8", errors="replace")
        path.unlink()
        if session and path.name.endswith(f"-{session[:8]}.jsonl") and '\n{"id":' in said:
            put(home, f"{CHATS}/{_name(session, number)}", _healed(said))
            found = True
    return found


def said(home: Path) -> dict[str, str]:
    """What it has said in the conversations of its home, by the number of each message. Also while it runs there, and
    whatever it makes of its files."""
    found: dict[str, str] = {}
    files = Workspace(home)
    for entry in files.entries(CHATS):
        for line in files.read(entry.path, limit=LARGEST).decode("utf-8", "replace").splitlines():
            match _record(line):
                case {"type": "gemini", "id": str(number), "content": str(text)} if text.strip():
                    found[number] = text
    return found


def _healed(said: str) -> str:
    """It keeps tools' calls and results twice, in a record of their own and as what was said, and would tell the model
    both: its server refuses such a conversation. The latter go."""
    return "".join(f"{line}\n" for line in map(_healed_line, said.splitlines()) if line)


def _healed_line(line: str) -> str:
    if '"functionResponse"' not in line and '"functionCall"' not in line:
        return line
    match _record(line):
        case {"$set": {"messages": [*messages]} as whole} as record:  # a conversation that was continued
            kept = [healed for message in messages if (healed := _healed_message(message)) is not None]
            return json.dumps({**record, "$set": {**whole, "messages": kept}})
        case dict(message):
            return json.dumps(healed) if (healed := _healed_message(message)) is not None else ""
    return line


def _healed_message(message: Any) -> Any | None:
    match message:
        case {"type": "user", "content": [_, *_] as parts} if all(map(_is_of_a_tool, parts)):
            return None
        case {"type": "gemini", "content": [*parts], "toolCalls": [_, *_]}:
            return {**message, "content": [part for part in parts if not _is_of_a_tool(part)]}
    return message


def _is_of_a_tool(part: Any) -> bool:
    return isinstance(part, dict) and ("functionResponse" in part or "functionCall" in part)


def _record(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _files(home: Path) -> Iterator[Path]:
    folder = home
    for part in CHATS.split("/"):
        folder = folder / part
        try:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                return
        except FileNotFoundError:
            return
    with os.scandir(folder) as entries:
        yield from [Path(entry.path) for entry in sorted(entries, key=_by_name) if entry.is_file(follow_symlinks=False)]


def _by_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _name(session: str, number: int) -> str:
    return f"session-2000-01-01T00-{number % 60:02}-{session[:8]}.jsonl"
