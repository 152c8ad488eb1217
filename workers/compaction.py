"""Making a long conversation short: first everything is written to a file for people, then a model sums it up.

The file is `conversations/{date}-{summary}.md` in the agent's folder; nothing is lost by compacting."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from adapters.errors import WorkspaceError
from adapters.model_port import ModelRequest
from adapters.transcript import Called, Item, Returned, Said, Shown, Thought
from adapters.workspace import Workspace
from workers.context import trim

FOLDER: Final = "conversations"
MAX_ARCHIVE: Final = 1 << 30  # far more than any context holds: nothing may be lost for being long
SUMMARY_TOKENS: Final = 4096
TITLE_WORDS: Final = 8
INSTRUCTIONS: Final = (
    "The conversation above is about to be replaced by your summary of it. Write what is needed to go on without it: "
    "who the people are and what they want, what was decided and done (with names, numbers and file names exactly as "
    "they are), what is still open, and what was promised. Write only the summary."
)


def is_wished(messages: Sequence[Any]) -> bool:
    """By `/compact` (`intake/commands.py`)."""
    return any(message.kind == "system" and message.content.get("action") == "compact" for message in messages)


class Compactor:
    def __init__(self, workspace: Path) -> None:
        self._workspace = Workspace(workspace, max_written=MAX_ARCHIVE)

    async def archive(self, history: Sequence[Item]) -> str:
        """Write the conversation to a file of its own and return its path within the agent's folder. OSError if that
        cannot be: it may pass, and it is not the model's fault."""
        return await asyncio.to_thread(self._archive, history)

    def request(self, request: ModelRequest, history: Sequence[Item], tokens: int) -> ModelRequest:
        """The call that makes the summary: as much of the history as fits, in the same words and with the same tools as
        always, so that what the vendor has cached of it serves once more."""
        items = (*trim(history, tokens), Said("user", INSTRUCTIONS))
        return replace(request, items=items, max_tokens=min(request.max_tokens, SUMMARY_TOKENS))

    def _archive(self, history: Sequence[Item]) -> str:
        name = f"{FOLDER}/{datetime.now(UTC):%Y-%m-%d}-{_title(history)}"
        text = "# Conversation\n\n" + "\n\n".join(map(_paragraph, history)) + "\n"
        written = text.encode("utf-8", "replace")
        for number in range(1, 1000):
            path = f"{name}.md" if number == 1 else f"{name}-{number}.md"
            try:
                if self._workspace.add(path, written) or self._holds(path, written):
                    return path
            except WorkspaceError as error:
                raise OSError(f"the conversation was not archived: {error}") from error
        raise OSError(f"there are already 1000 conversations named {name}")

    def _holds(self, path: str, written: bytes) -> bool:
        """Whether this conversation is already there, archived by an attempt that failed later."""
        try:
            return self._workspace.read(path, limit=len(written) + 1) == written
        except WorkspaceError:
            return False


def _title(history: Sequence[Item]) -> str:
    """A few words of what the conversation began with, as part of a file's name."""
    first = next((item.text for item in history if isinstance(item, Said) and item.role == "user"), "")
    words = re.findall(r"[a-z0-9]+", re.sub(r"<[^>]*>", " ", first).lower())
    return "-".join(words[:TITLE_WORDS])[:60].strip("-") or "conversation"


def _paragraph(item: Item) -> str:
    match item:
        case Said(role="user", text=text):
            return f"**User**\n\n{text}"
        case Said(text=text):
            return f"**Agent**\n\n{text}"
        case Thought(text=text):
            return f"*{text or '(a thought)'}*"
        case Called(name=name, arguments=arguments):
            return f"`{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})`"
        case Returned(name=name, text=text, ok=ok):
            return f"`{name}` {'said' if ok else 'failed'}:\n\n```\n{text.replace('```', '~~~')}\n```"
        case Shown(name=name, path=path):
            return f"[{name or path}]({path})"
