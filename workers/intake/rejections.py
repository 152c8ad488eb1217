"""Keeping what was refused where people can see it, whatever it is made of."""

import json
import uuid
from typing import Any

from models.database import Database
from models.fleet import reject
from workers.intake.incoming import MAX_CONTENT_BYTES


async def record_rejection(db: Database, task_id: str, source: str, reason: str, payload: dict[str, Any]) -> None:
    """Keep what was refused where people can see it (`longshore dead --rejected`)."""
    try:
        kept = json.dumps(payload, default=repr)
    except (ValueError, RecursionError):
        kept = repr(type(payload))
    stored = json.loads(kept) if len(kept) <= MAX_CONTENT_BYTES else {"cut": kept[:2000]}
    stored = stored if isinstance(stored, dict) else {"unreadable": stored}
    await db.transact(lambda conn: reject(conn, row_id_of(task_id), source, reason, stored))


def row_id_of(task_id: str) -> str:
    """A Celery task's id as a row's. Other clients make ids of any length; the same one gives the same row."""
    if len(task_id) <= 36 and task_id.isprintable():
        return task_id
    encodable = task_id.encode(errors="backslashreplace").decode()
    return str(uuid.uuid5(uuid.NAMESPACE_OID, encodable))
