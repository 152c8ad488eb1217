"""The tools that a Responses request offers: functions, those in a namespace (codex puts an MCP server's there), and
custom ones that take a text instead of JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.model_api.conversation import Body, dicts


@dataclass(frozen=True)
class Offered:
    name: str
    namespace: str | None = None
    custom: bool = False


def offered(body: Body) -> dict[str, Offered]:
    """By the names for scripts: in a namespace it is `namespace__name`. Tools of the server's own have no name."""
    return {
        f"{one.namespace}__{one.name}" if one.namespace else one.name: one
        for tool in (*dicts(body.get("tools")), *_added(body))
        for one in _offers(tool)
    }


def call_facts(body: Body, name: str, arguments: str) -> dict[str, Any]:
    """The type of a call's item, and how it names its tool and what it is called with."""
    tool = offered(body).get(name, Offered(name))
    if tool.custom:
        return {"type": "custom_tool_call", "name": tool.name, "input": arguments}
    place = {"namespace": tool.namespace} if tool.namespace else {}
    return {"type": "function_call", "name": tool.name, **place, "arguments": arguments}


def _added(body: Body) -> list[dict[str, Any]]:
    """Codex names the tools of models with code mode in the conversation itself."""
    added = [item for item in dicts(body.get("input")) if item.get("type") == "additional_tools"]
    return [tool for item in added for tool in dicts(item.get("tools"))]


def _offers(tool: Mapping[str, Any]) -> Iterator[Offered]:
    if tool.get("type") == "namespace":
        for inner in dicts(tool.get("tools")):
            yield Offered(str(inner.get("name")), str(tool.get("name")), inner.get("type") == "custom")
    elif "name" in tool:
        yield Offered(str(tool["name"]), custom=tool.get("type") == "custom")
