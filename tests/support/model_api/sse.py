"""Server-sent events as bytes."""

import json
from collections.abc import Mapping
from typing import Any


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event; its name, when it has one, goes before the data as both vendors send it."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
