"""Files on their way out: copied beside the workspaces, where no agent can change them any more, into a folder named
after the message they go with. Removed when the message is delivered."""

import mimetypes
import shutil
from pathlib import Path

from adapters.contracts import OutboundFile

FOLDER = ".outbox"  # no agent's folder begins with a dot


class Outbox:
    """Blocking: call it in a thread."""

    def __init__(self, workspace_root: Path) -> None:
        self.root = workspace_root / FOLDER

    def files(self, message_id: str) -> tuple[OutboundFile, ...]:
        """What goes with a message. Missing files are an error of the sender's machine, and are tried again."""
        folder = self.root / message_id
        return tuple(
            OutboundFile(path.name, path, mimetypes.guess_type(path.name)[0] or "application/octet-stream", size)
            for path in sorted(folder.iterdir())
            if (size := path.stat().st_size) is not None
        )

    def remove(self, message_id: str) -> None:
        shutil.rmtree(self.root / message_id, ignore_errors=True)
