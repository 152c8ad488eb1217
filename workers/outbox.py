"""Files on their way out: copied beside the workspaces, where no agent can change them any more, into a folder named
after the message they go with. Removed when the message is delivered."""

import mimetypes
import shutil
from pathlib import Path

from adapters.contracts import OutboundFile
from adapters.errors import DeliveryError

FOLDER = ".outbox"  # no agent's folder begins with a dot
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

    def remove(self, message_id: str) -> None:
        shutil.rmtree(self.root / message_id, ignore_errors=True)
