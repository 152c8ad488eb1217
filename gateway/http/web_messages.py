"""Rows as the `web` channel's readers get them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy.ext.asyncio import AsyncConnection

from models.base import AnyRow
from models.groups import is_ours
from models.web_chats import Cursor, closed_cards, numbered_ids


async def show(conn: AsyncConnection, chat: str, rows: Sequence[AnyRow]) -> list[dict[str, Any]]:
    """Messages, and changes to earlier ones: those name the message they `change`."""
    changed = {(row.session_id, row.content["message"]) for row in rows if "operation" in row.content}
    targets = await numbered_ids(conn, changed)
    closed = await closed_cards(conn, [row.id for row in rows if (row.receipt or {}).get("buttons")])
    return [_shown(chat, row, targets, row.id in closed) for row in rows]


def show_work(sessions: Sequence[AnyRow]) -> list[dict[str, Any]]:
    """Who is at work, at what and since when."""
    return [
        {
            "agent": row.folder,
            "session": row.id,
            "doing": row.activity,
            "since": row.activity_since.isoformat() if row.activity_since is not None else None,
        }
        for row in sessions
        if row.lease_expires_at is not None and row.lease_expires_at > row.at
    ]


def _shown(chat: str, row: AnyRow, targets: dict[tuple[str, int], str], is_closed: bool) -> dict[str, Any]:
    content, receipt = row.content, row.receipt or {}
    shown: dict[str, Any] = {
        "id": row.id,
        "cursor": str(Cursor(row.delivered_at, row.id)),
        "agent": None if is_ours(row.folder) else row.folder,
        "kind": row.kind,
        "thread": row.thread_id,
        "text": str(content.get("text") or ""),
        "at": row.delivered_at.isoformat(),
    }
    if "operation" in content:
        shown["operation"] = content["operation"]
        shown["changes"] = targets.get((row.session_id, content["message"]))
    if "emoji" in content:
        shown["emoji"] = content["emoji"]
    if receipt.get("buttons") and not is_closed:
        shown["buttons"] = receipt["buttons"]
    if receipt.get("files"):
        folder = f"/web/{quote(chat, safe='')}/files/{row.id}"
        files = enumerate(receipt["files"])
        shown["files"] = [{"name": Path(path).name, "url": f"{folder}/{number}"} for number, path in files]
    return shown
