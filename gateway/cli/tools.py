"""`longshore tools`: what agents can do, and the page about it (docs/tools.md)."""

from typing import Annotated, Any

import typer
from rich.table import Table

from adapters.policy import DEFAULT_COMMANDS, Policy
from adapters.registry import Registry
from adapters.tool_port import Tool
from gateway.cli.desk import AsJson, fail, out, print_json, shown


def tools(
    tool: Annotated[str | None, typer.Argument(help="show this one with its parameters")] = None,
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="as a page, with all parameters")] = False,
) -> None:
    """List what agents can do. Which of it an agent has is its policy."""
    registry = Registry()
    installed = [registry.tools.get(name) for name in registry.tools.names]
    if tool is not None:
        installed = [one for one in installed if one.name == tool] or fail(
            f"there is no tool {tool!r}; see: longshore tools"
        )
    if as_json:
        print_json([_facts(one) for one in installed])
    elif markdown:
        typer.echo(page(installed), nl=False)
    elif tool is not None:
        said = f" [dim]({', '.join(flags(installed[0]))})[/dim]" if flags(installed[0]) else ""
        out.print(f"[bold]{shown(tool)}[/bold] {shown(installed[0].description)}{said}")
        out.print(_parameters(installed[0]))
    else:
        table = Table("tool", "what it does", "", box=None, header_style="dim")
        for one in installed:
            table.add_row(f"[bold]{one.name}[/bold]", shown(one.description), f"[dim]{', '.join(flags(one))}[/dim]")
        out.print(table)


def flags(tool: Tool[Any]) -> list[str]:
    said = {
        "admins only": tool.admin_only,
        "needs approval": tool.risky,
        "needs a sandbox": tool.needs_sandbox,
        "by policy": not tool.offered(Policy()),
    }
    return [words for words, so in said.items() if so]


def page(installed: list[Tool[Any]]) -> str:
    """docs/tools.md, made from the tools themselves. A test keeps the file the same."""
    parts = [_HEAD]
    for tool in installed:
        said = flags(tool) + (["run again after a crash"] if tool.idempotent else ["never run twice"])
        parts.append(f"### `{tool.name}`\n\n{tool.description} *({'; '.join(said)})*\n")
        rows = [f"| `{name}` | {kind} | {words} |" for name, kind, words in _fields(tool)]
        if rows:
            parts.append("\n".join(["| parameter | type | |", "| --- | --- | --- |", *rows]) + "\n")
    return "\n".join([*parts, _policy_part()])


def _facts(tool: Tool[Any]) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "flags": flags(tool), "schema": tool.spec.schema}


def _parameters(tool: Tool[Any]) -> Table:
    table = Table(box=None, show_header=False)
    for name, kind, words in _fields(tool):
        table.add_row(f"[bold]{name}[/bold]", kind, shown(words))
    return table


def _fields(tool: Tool[Any]) -> list[tuple[str, str, str]]:
    schema = tool.spec.schema
    required = set(schema.get("required", ()))
    return [
        (
            name,
            _type(field),
            " ".join([*(["required."] if name in required else []), field.get("description", "")]).strip(),
        )
        for name, field in schema.get("properties", {}).items()
    ]


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(map(str, field["enum"]))
    several = [_type(part) for part in field.get("anyOf", ()) if part.get("type") != "null"]
    if several:
        return " or ".join(dict.fromkeys(several))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "object"))


def _policy_part() -> str:
    rows = [f"| `{name}` | {field.description} |" for name, field in Policy.model_fields.items()]
    return "\n".join([_POLICY_HEAD, "| field | what |", "| --- | --- |", *rows, "", _POLICY_FOOT])


_HEAD = """# Tools

What agents can do. This page is made from the tools themselves: `longshore tools --markdown > docs/tools.md`.

The same tools serve API providers as functions and CLI agents through MCP. Who calls, from which session and for whom
is what the fleet knows; nothing an agent writes into a call changes it. Results are cut at 50,000 characters, with a
note. A call that waits for a person (a question, an approval) parks the turn: no worker slot is held. Secrets in a
call or in its result are replaced by `[redacted]` before it is made or told; a call that brings a script is refused
instead. So is one with a NUL in it.

## The tools
"""
_POLICY_HEAD = """## What an agent may do: its policy

`longshore groups set NAME --policy FILE` sets it from a YAML file, `--policy default` takes it away, and
`longshore groups show NAME` shows it.
"""
_POLICY_FOOT = f"""```yaml
commands: [git, python3, pytest]
hosts: [pypi.org, "*.pythonhosted.org"]
approve: [write_file]
destinations:
  alerts: {{channel_type: webhook, platform_id: ops}}
agents: [researcher]
oversees: {{researcher: messages}}     # or steps: also what it called
steers: [researcher]                 # reset and replay its sessions, for admins of it
mcp_servers:
  weather:
    command: npx
    args: ["-y", "weather-mcp@1.4.2"]
    env: {{API_KEY: $LONGSHORE_SECRET_WEATHER}}
    hosts: [api.weather.example, registry.npmjs.org]
```

Without `commands`, these may be run: `{" ".join(DEFAULT_COMMANDS)}`.
The list keeps an agent to what you had in mind; it is the sandbox that keeps it from everything else.
"""
