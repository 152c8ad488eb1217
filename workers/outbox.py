"""Files on their way out: copied beside the workspaces, where no agent can change them any more, into a folder named
after the message they go with. Removed when the message is delivered."""

import asyncio
import mimetypes
import shutil
import time
from pathlib import Path

from sqlalchemy import select

from adapters.channel_port import OutboundFile
from adapters.errors import DeliveryError
from models.database import Database
from models.outbox import MessageOut

FOLDER = ".outbox"  # no agent's folder begins with a dot
TIDY_SECONDS = 86_400.0
_UNKNOWN = "application/octet-stream"


class Outbox:
    """Blocking: call it in a thread."""

    def __init__(self, workspace_root: Path) -> None:
        self.root = workspace_root / FOLDER

    def files(self, message_id: str) -> tuple[OutboundFile, ...]:
        """What goes with a message."""
        try:
            return tuple(
                OutboundFile(path.name, path, mimetypes.guess_type(path.name)[0] or _UNKNOWN, path.stat().st_size)
                for path in sorted((self.root / message_id).iterdir())
            )
        except OSError as error:
            why = "its files are not on this machine; is WORKSPACE_ROOT a folder that all workers share?"
            raise DeliveryError(why, retryable=True) from error

    def waiting(self, older_than: float) -> list[str]:
        """Messages whose files have lain there for more than so many seconds."""
        if not self.root.is_dir():
            return []
        before = time.time() - older_than
        return [folder.name for folder in self.root.iterdir() if folder.stat().st_mtime < before]

    def remove(self, message_id: str) -> None:
        shutil.rmtree(self.root / message_id, ignore_errors=True)


async def tidy(db: Database, outbox: Outbox) -> None:
    """Remove what a crash has left behind: files of messages that were delivered, or never came to be written."""
    for message_id in await asyncio.to_thread(outbox.waiting, TIDY_SECONDS):
        query = select(MessageOut.status).where(MessageOut.id == message_id)
        status = await db.read(lambda conn, query=query: conn.scalar(query))  # type: ignore[misc]
        if status in (None, "delivered", "cancelled"):
            await asyncio.to_thread(outbox.remove, message_id)
