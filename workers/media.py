"""What people attach to their messages: fetched safely, kept in the agent's folder, shown to models that can see.

Everything about an attachment is hostile: its address, its name, the type it claims. A file's type is what its first
bytes say. What cannot be fetched is told to the agent in words, and the turn goes on. A later attempt finds what an
earlier one has saved, so that the same messages make the same prompt. What a platform keeps, its channel fetches."""

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import structlog

from adapters.channel_port import Channel
from adapters.contracts import Capabilities
from adapters.errors import AdapterError, ToolError, WebError, WorkspaceError
from adapters.media_types import native_kind, sniff
from adapters.registry import Drivers
from adapters.transcript import Item, Shown
from adapters.web import Web
from adapters.workspace import Workspace
from adapters.workspace_paths import INSIDE
from models.base import AnyRow

log = structlog.get_logger()

FOLDER: Final = "downloads"
MAX_BYTES: Final = 20 << 20
MAX_ATTACHMENTS: Final = 20
SECONDS: Final = 30.0
# Models refuse requests beyond some 30 MB: pictures of long ago are left out first.
MAX_SHOWN_BYTES: Final = 20 << 20
_ROW_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True)
class Attached:
    """One attachment: where it lies, or why it does not. `kind` is as what it can be shown."""

    name: str
    path: str = ""
    media_type: str = "application/octet-stream"
    kind: Literal["image", "pdf", "file"] = "file"
    problem: str = ""

    @property
    def note(self) -> str:
        what = f"{self.kind}: {self.name}"
        return (
            f"[{what} - not available: {self.problem}]" if self.problem else f"[{what} - file available at: {self.at}]"
        )

    @property
    def at(self) -> str:
        return f"{INSIDE}/{self.path}"


class Media:
    """The attachments of one turn's messages."""

    def __init__(
        self,
        workspace: Workspace,
        web: Web,
        channels: Drivers[Channel],
        capabilities: Capabilities,
        at_once: asyncio.Semaphore,
    ) -> None:
        """`at_once`: how many files a process has in its memory at a time, for all its turns."""
        self._workspace = workspace
        self._web = web
        self._channels = channels
        self._at_once = at_once
        self._sees = {kind for kind, can in (("image", capabilities.images), ("pdf", capabilities.pdfs)) if can}
        self._attached: dict[int, tuple[Attached, ...]] = {}

    async def prepare(self, messages: Sequence[AnyRow]) -> None:
        """Fetch what is attached to these. Never fails: what went wrong is in the notes."""
        new = [(row, given) for row in messages if row.seq not in self._attached and (given := _attachments(row))]
        for row, given in new:
            self._attached[row.seq] = tuple(
                await asyncio.gather(*(self._save(row, number, one) for number, one in enumerate(given, 1)))
            )

    @property
    def notes(self) -> Mapping[int, Sequence[str]]:
        """What the prompt says of each message's attachments, by the message's number."""
        return {seq: [attached.note for attached in several] for seq, several in self._attached.items()}

    @property
    def problems(self) -> list[str]:
        """What could not be had, in words, for those who look on."""
        return [one.note.strip("[]") for several in self._attached.values() for one in several if one.problem]

    def shown(self, messages: Sequence[AnyRow]) -> list[Shown]:
        """What a model that can see is given of these, besides the words."""
        several = (attached for row in messages for attached in self._attached.get(row.seq, ()))
        return [Shown(one.media_type, one.path, one.name) for one in several if one.kind in self._sees]

    async def load(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """The items for one request, with what is shown filled in, the newest first while there is room. What is gone,
        or is not what it was, is left as its name."""
        left = MAX_SHOWN_BYTES
        loaded = list(items)
        for position in range(len(loaded) - 1, -1, -1):
            item = loaded[position]
            if isinstance(item, Shown) and _kind(item.media_type) in self._sees and left > 0:
                size, data = await asyncio.to_thread(self._read, item, left)
                left -= size
                loaded[position] = replace(item, data=data)
        return tuple(loaded)

    def _read(self, item: Shown, left: int) -> tuple[int, str]:
        """Its size, and itself in base64; nothing if it is not what it was, or too much."""
        try:
            data = self._workspace.read(item.path, limit=left + 1)
        except WorkspaceError:
            return 0, ""
        if len(data) > left or sniff(data) != item.media_type or native_kind(data) is None:
            return 0, ""
        return len(data), base64.b64encode(data).decode()

    async def _save(self, row: AnyRow, number: int, given: dict[str, Any]) -> Attached:
        name = _name(given, number)
        folder = row.id if _ROW_ID.fullmatch(row.id) else hashlib.sha256(row.id.encode()).hexdigest()[:32]
        path = f"{FOLDER}/{folder}/{number}-{name}"
        try:
            async with self._at_once:
                data = await asyncio.to_thread(self._saved, path)
                if data is None:
                    data = await self._fetch(row.channel_type, given)
                    await asyncio.to_thread(self._workspace.write, path, data)
                return Attached(name, path, sniff(data) or "application/octet-stream", native_kind(data) or "file")
        except ToolError as error:
            return Attached(name, problem=str(error))

    def _saved(self, path: str) -> bytes | None:
        try:
            return self._workspace.read(path, limit=MAX_BYTES)
        except WorkspaceError:
            return None

    async def _fetch(self, channel_type: str, given: dict[str, Any]) -> bytes:
        if isinstance(given.get("data"), str):
            try:
                return base64.b64decode(given["data"], validate=True)
            except (binascii.Error, ValueError):
                raise WebError("its data is not base64") from None
        if isinstance(given.get("reference"), str):
            return await self._fetch_from(channel_type, given["reference"])
        if not isinstance(given.get("url"), str):
            note = given.get("note")  # the channel's word why it did not bring it along
            raise WebError(note[:200] if isinstance(note, str) else "it has neither an address nor data")
        fetched = await self._web.get(given["url"], max_bytes=MAX_BYTES, seconds=SECONDS)
        if fetched.status >= 400:
            raise WebError(f"the server answered {fetched.status}")
        if fetched.cut:
            raise WebError(f"it is larger than {MAX_BYTES >> 20} MB")
        return fetched.body

    async def _fetch_from(self, channel_type: str, reference: str) -> bytes:
        """What the platform of the message keeps. Where that lies is its channel's business: it may hold a key."""
        try:
            async with asyncio.timeout(SECONDS):
                data = await self._channels.get(channel_type).fetch(reference, MAX_BYTES)
        except TimeoutError:
            raise WebError(f"{channel_type} did not send it within {SECONDS:g} s") from None
        except AdapterError as error:
            raise WebError(str(error)) from error
        except Exception as error:  # a driver's bug costs the file, not the turn
            log.exception("channel.crashed", channel=channel_type)
            raise WebError(f"the {channel_type} channel crashed ({type(error).__name__})") from error
        if len(data) > MAX_BYTES:
            raise WebError(f"it is larger than {MAX_BYTES >> 20} MB")
        return data


def _attachments(row: AnyRow) -> list[dict[str, Any]]:
    given = row.content.get("attachments") if row.kind in ("chat", "chat-sdk") else None
    several = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    return several[:MAX_ATTACHMENTS]


def _name(given: dict[str, Any], number: int) -> str:
    """A name that is only a name, whatever was claimed."""
    claimed = str(given.get("name") or given.get("filename") or f"attachment{number}")
    plain = re.sub(r"[^\w. ()+-]", "_", re.split(r"[/\\]", claimed)[-1]).strip(". ")
    return plain[-80:].lstrip(". ") or f"attachment{number}"


def _kind(media_type: str) -> str:
    return "pdf" if media_type == "application/pdf" else "image" if media_type.startswith("image/") else "file"
