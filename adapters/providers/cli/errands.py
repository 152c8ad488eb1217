"""What a request to a vendor asks for: a model's words, and from which; or an errand, which no agent may have run.

With the key behind it, a vendor would search, fetch or act elsewhere for an agent, past its policy and its sandbox."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from adapters.providers.cli.usage_seen import Wire

LARGE: Final = 1 << 20  # bytes that are not read on everybody's loop
MOST_PARTS: Final = 2_000_000  # reading tens of millions of empty lists would hold up the whole process
# Keys of a request, and how the types of its tools begin (in Gemini's a key), without their underscores.
_ERRANDS: Final[dict[Wire, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "anthropic": (("mcp_servers",), ("websearch", "webfetch", "codeexecution", "mcp")),
    "openai": (
        ("background", "web_search_options"),
        ("mcp", "websearch", "computer", "codeinterpreter", "filesearch"),
    ),
    "gemini": ((), ("googlesearch", "googlemaps", "urlcontext", "codeexecution", "filesearch", "enterprisewebsearch")),
}
_MODEL: Final = re.compile(r"/models/([\w.-]{1,100})")


class RefusedError(Exception):
    """A request asks for what agents may not have."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def model_asked(wire: Wire, path: str, body: bytes) -> str:
    """The model whose words are wanted; empty if it is not named. Raises RefusedError if more is."""
    asked = await asyncio.to_thread(_read, body) if len(body) > LARGE else _read(body)
    if errands := ", ".join(_errands(wire, asked)):
        raise RefusedError(403, f"agents may not have the vendor search, fetch or act for them ({errands[:200]})")
    in_path = _MODEL.search(path)
    model = in_path[1] if in_path else asked.get("model")
    return model[:100] if isinstance(model, str) else ""


def _read(body: bytes) -> dict[str, Any]:
    if sum(map(body.count, (b"[", b"{", b","))) > MOST_PARTS:
        raise RefusedError(413, f"a request may have {MOST_PARTS:,} parts")
    try:
        asked = json.loads(body or b"{}", object_pairs_hook=_said_once)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise RefusedError(400, "the request is no JSON object, or says something twice")
    return asked


def _errands(wire: Wire, asked: Mapping[str, Any]) -> Iterator[str]:
    keys, types = _ERRANDS[wire]
    yield from (key for key in keys if asked.get(key) not in (None, False, []))
    tools = asked.get("tools")
    for tool in tools if isinstance(tools, list) else [tools]:
        names = () if not isinstance(tool, dict) else tool if wire == "gemini" else [str(tool.get("type"))]
        yield from (name for name in names if name.replace("_", "").casefold().startswith(types))


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Else it would be for the vendor to say which of the two counts."""
    said = dict(pairs)
    if len(said) != len(pairs):
        raise ValueError
    return said
