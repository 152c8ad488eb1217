"""What an MCP server says, made fit to be shown to an agent or a model's API.

All of it is hostile text: it loses secrets, characters that cannot be seen, and what is too long."""

import json
import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any, Final

from adapters.known_secrets import LEAST_CHARACTERS
from adapters.redaction import Redactor
from adapters.redaction_stream import LABEL

MAX_TEXT: Final = 50_000


class Cleaner:
    """`secrets` are those the server was given: it may say them again, whole or in part."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._redactor = Redactor(secrets)
        self.longest_secret = max(map(len, secrets), default=0)
        self._short_secrets = [secret for secret in secrets if 4 <= len(secret) < LEAST_CHARACTERS]

    def clean(self, text: str, limit: int) -> str:
        """What may be shown of a text: no secrets, nothing invisible, and not without end. Most of a text that is much
        too long is not even looked at, as that would hold up everybody else in this process."""
        shown = self._redactor.text(text[: 2 * limit])
        for secret in self._short_secrets:
            shown = shown.replace(secret, LABEL)
        cut = len(text) > 2 * limit
        if cut:  # where it was cut, there may be half a secret, which nobody would recognise
            shown = shown[: -3 * self.longest_secret or None]
        shown = printable(shown)
        if len(shown) <= limit and not cut:
            return shown
        note = f"\n[cut: {limit} of {len(text)} characters are shown]" if limit == MAX_TEXT else ""
        return shown[:limit] + note


def text_of(result: Mapping[str, Any]) -> str:
    """The texts of a result; what is no text is named."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if not blocks and result.get("structuredContent") is not None:
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(map(_shown, blocks))


def printable(text: str) -> str:
    """Without what cannot be seen: control characters, and those that turn or hide what stands beside them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else " " for c in text)


def _shown(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio" as kind:
            return f"[{kind} {_word(block.get('mimeType'))}, {_decoded_size(block.get('data'))} bytes: not shown]"
        case "resource_link":
            return f"[resource {_word(block.get('uri'))} {_word(block.get('mimeType'))}: not shown]"
        case "resource":
            resource = block.get("resource")
            resource = resource if isinstance(resource, dict) else {}
            text, blob = resource.get("text"), resource.get("blob")
            size = len(text.encode("utf-8", "replace")) if isinstance(text, str) else _decoded_size(blob)
            return f"[resource {_word(resource.get('uri'))} {_word(resource.get('mimeType'))}, {size} bytes: not shown]"
        case kind:
            return f"[{_word(kind)}: not shown]"


def _word(value: Any) -> str:
    return re.sub(r"\s", " ", str(value))[:200] if value else "of unknown type"


def _decoded_size(data: Any) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else 0
