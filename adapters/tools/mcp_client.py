"""Other people's tools: external MCP servers of a group, started in the sandbox with the turn and stopped with it.

Everything a server says is hostile text: names, descriptions, schemas, results and error lines are bounded and cleaned
before an agent or a model's API sees them. A server that fails costs its own tools and never the turn."""

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import BaseModel, ConfigDict

from adapters.policy import McpServerPolicy
from adapters.sandbox.port import Sandbox
from adapters.tool_port import Tool, ToolContext
from adapters.tools.mcp_connection import Connection
from adapters.tools.mcp_words import printable
from adapters.uninterrupted import uninterrupted

log = structlog.get_logger()

START_SECONDS: Final = 30.0
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1_000
MAX_SCHEMA: Final = 20_000
# What the model APIs take; one schema that they do not take would fail every call of the model.
_PROPERTY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_COMBINED: Final = ("anyOf", "oneOf", "allOf", "$ref")


class ExternalArguments(BaseModel):
    """Whatever the server's own schema says; checking it is the server's business."""

    model_config = ConfigDict(extra="allow")


@dataclass
class ExternalTools:
    """What the servers of a group offer. `problems`: why a server is not there, by its name; `dropped`: why one of a
    server's tools is not, by the name it would have had."""

    tools: dict[str, Tool[Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def external_tools(
    servers: Mapping[str, McpServerPolicy],
    sandbox: Sandbox,
    workspace: Path,
    environ: Mapping[str, str],
    *,
    reserved: Container[str] = frozenset(),
) -> AsyncIterator[ExternalTools]:
    """Start the servers, all at once; they are gone when this ends, however it ends. `environ` is where secrets named
    `$LONGSHORE_SECRET_...` are taken from; nothing else of it is handed on. `reserved` are names of our own tools."""
    connections = [Connection(name, server) for name, server in servers.items()]
    keepers = [
        asyncio.create_task(connection.keep(sandbox, workspace, environ), name=f"mcp {connection.name}")
        for connection in connections
    ]
    try:
        if keepers:
            await asyncio.wait([connection.started for connection in connections], timeout=START_SECONDS)
        for connection, keeper in zip(connections, keepers, strict=True):
            if not connection.started.done():
                connection.problem = f"{connection.title} did not answer within {START_SECONDS:g} s"
                keeper.cancel()
        yield _offered(connections, reserved)
    finally:
        for keeper in keepers:
            keeper.cancel()
        if keepers:
            await uninterrupted(asyncio.gather(*keepers, return_exceptions=True))


def _offered(connections: list[Connection], reserved: Container[str]) -> ExternalTools:
    offered = ExternalTools(problems={c.name: c.problem for c in connections if c.problem is not None})
    for name, problem in offered.problems.items():
        log.warning("mcp.not_started", server=name, reason=problem)
    found = [(c, tool) for c in connections if c.problem is None for tool in c.listed]
    plain = Counter(_plain_name(c.name, str(tool.get("name"))) for c, tool in found)
    for connection, tool in found:
        raw = tool.get("name")
        name = _plain_name(connection.name, str(raw))
        if plain[name] > 1 or len(name) > MAX_NAME:
            name = _numbered_name(name, connection.name, str(raw))
        reason = _why_not(tool)
        if reason is None and (name in offered.tools or name in reserved):
            reason = "there is one of that name already"
        if reason is not None:
            offered.dropped[name] = reason
            log.warning("mcp.tool_dropped", server=connection.name, tool=name, reason=reason)
            continue
        offered.tools[name] = _make_tool(connection, name, tool)
    return offered


def _make_tool(connection: Connection, name: str, described: Mapping[str, Any]) -> Tool[ExternalArguments]:
    raw = described["name"]
    description = described.get("description")

    async def handler(arguments: ExternalArguments, context: ToolContext) -> str:
        return await connection.call(raw, arguments.model_extra or {})

    return Tool(
        name,
        connection.clean(description if isinstance(description, str) else "", MAX_DESCRIPTION) or name,
        ExternalArguments,
        handler,
        needs_sandbox=True,
        schema=_tidy(described["inputSchema"]),
    )


def _plain_name(server: str, tool: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server}__{tool}")


def _numbered_name(name: str, server: str, tool: str) -> str:
    """Short enough, and different for different tools, in every turn the same."""
    digest = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{digest}"


def _why_not(tool: Mapping[str, Any]) -> str | None:
    """Why a model's API or an agent could not do anything with it."""
    name, schema = tool.get("name"), tool.get("inputSchema")
    if not isinstance(name, str) or not name or len(name) > 500:
        return "it has no usable name"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its schema is not that of an object"
    if len(json.dumps(schema)) > MAX_SCHEMA:
        return f"its schema is longer than {MAX_SCHEMA} characters"
    if any(key in schema for key in _COMBINED):
        return f"its schema is a combination ({', '.join(key for key in _COMBINED if key in schema)})"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(_PROPERTY.fullmatch(key) for key in properties):
        return "its arguments have names that cannot be used"
    if any(not reference.startswith("#") for reference in _references(schema)):
        return "its schema refers to something outside of it"
    return None


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield str(part["$ref"])
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def _tidy(part: Any) -> Any:
    """A schema whose descriptions hold only what can be seen."""
    if isinstance(part, list):
        return [_tidy(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    return {
        key: printable(value[:MAX_DESCRIPTION])
        if key in ("description", "title") and isinstance(value, str)
        else _tidy(value)
        for key, value in part.items()
    }
