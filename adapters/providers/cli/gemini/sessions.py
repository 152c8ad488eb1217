"""Where the Gemini CLI keeps conversations in its home, and how one is made ready to be continued.

It names a conversation's file by the minute, and one that it continues within that minute it would overwrite: files
are renamed before. Blocking, and only while no program runs there; links are never followed."""

import json
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from adapters.providers.cli.home import put

FOLDER: Final = ".gemini"
PROJECT: Final = "longshore"
CHATS: Final = f"{FOLDER}/tmp/{PROJECT}/chats"  # noqa: S108 - in the home
STATE: Final = f"{CHATS}/*.jsonl"
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


def make_ready(home: Path, session: str | None) -> None:
    """Only the conversation that is continued stays, and of its files those in which something was said."""
    for number, path in enumerate(_files(home)):
        said = path.read_text(encoding="utf-8", errors="replace")
        path.unlink()
        if session and path.name.endswith(f"-{session[:8]}.jsonl") and '\n{"id":' in said:
            put(home, f"{CHATS}/{_name(session, number)}", _healed(said))


def _healed(said: str) -> str:
    """It keeps a tool's result twice, beside the call and as a message, and would tell the model both: its server
    refuses such a conversation. The message goes."""
    return "".join(
        f"{line}\n" for line in said.splitlines() if '"functionResponse"' not in line or not _is_result(line)
    )


def _is_result(line: str) -> bool:
    try:
        record = json.loads(line)
        parts = record["content"] if record["type"] == "user" else []
        return isinstance(parts, list) and bool(parts) and all("functionResponse" in part for part in parts)
    except (ValueError, LookupError, TypeError):
        return False


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
