"""What an agent may do beyond talking, as its group's configuration says (`policy`). What is not said is not allowed.

Set by operators (`longshore groups set NAME --policy FILE`), checked when it is set, and never by an agent."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

# Not a boundary (python3 can do what ls cannot): the sandbox is. It keeps agents to what their operator had in mind.
DEFAULT_COMMANDS: Final = (
    *("awk", "cat", "cp", "cut", "date", "diff", "du", "echo", "file", "find", "git", "grep", "gunzip", "gzip", "head"),
    *("jq", "ls", "md5sum", "mkdir", "mv", "python3", "rm", "rmdir", "sed", "seq", "sha256sum", "sort", "stat", "tail"),
    *("tar", "tee", "touch", "tr", "uniq", "unzip", "wc", "xargs", "zip"),
)
# Only variables of this name may be handed to a program: nobody can ask for the fleet's own keys.
SECRET_VARIABLE: Final = re.compile(r"LONGSHORE_SECRET_[A-Z0-9_]{1,80}")

Word = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
Category = Literal["merge", "dependency", "secrets", "deploy", "opaque", "large diff"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
HostName = Annotated[str, StringConstraints(pattern=r"^(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$", max_length=253)]


class PolicyError(ValueError):
    """A policy cannot be what was asked for. The text says where and why."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # built when a policy is first read


class NamedDestination(_Part):
    """A place the agent knows by a name of its own; it never sees where that is."""

    channel_type: Word
    platform_id: Word
    thread_id: Word | None = None


class McpServerPolicy(_Part):
    """An external MCP server: a pinned command, run in the sandbox for the length of a turn."""

    command: Word
    args: tuple[str, ...] = ()
    # A value `$LONGSHORE_SECRET_X` is taken from the worker's environment: secrets are not kept in rows.
    env: dict[str, str] = Field(default_factory=dict)
    hosts: tuple[HostName, ...] = ()

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return _no_addresses(hosts)

    @field_validator("env")
    @classmethod
    def _no_other_variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
                raise ValueError(f"{name!r} is not the name of a variable")
            if value.startswith("$") and not SECRET_VARIABLE.fullmatch(value[1:]):
                raise ValueError(f"{name}: only variables named LONGSHORE_SECRET_... can be handed on, not {value}")
        return env


class LargeDiff(_Part):
    """From when on a change is large."""

    files: int = Field(200, ge=1)
    lines: int = Field(10_000, ge=1)


class Policy(_Part):
    commands: tuple[Word, ...] = Field(
        DEFAULT_COMMANDS, description="programs run_command may start; empty: there is no run_command"
    )
    hosts: tuple[HostName, ...] = Field((), description="hosts that sandboxed programs reach, through the proxy")
    fetch: tuple[HostName | Literal["*"], ...] = Field(
        ("*",), description="hosts fetch_url may ask; *: all public ones"
    )
    approve: tuple[Word, ...] = Field((), description="tools that ask for approval first, besides the risky ones")
    without: tuple[Word, ...] = Field((), description="tools this agent does not have")
    destinations: dict[Label, NamedDestination] = Field(
        default_factory=dict, description="places send_message can name"
    )
    agents: tuple[Word, ...] = Field((), description="agents it may write to, by folder; *: all")
    oversees: dict[Word, Literal["messages", "steps"]] = Field(
        default_factory=dict, description="agents whose sessions it may read, by folder (*: all), and how much of them"
    )
    steers: tuple[Word, ...] = Field(
        (),
        description="agents whose sessions it may reset and replay, by folder; *: all. It does so only for admins of "
        "that agent",
    )
    mcp_servers: dict[Label, McpServerPolicy] = Field(default_factory=dict, description="external MCP servers")
    shell_allow: tuple[Word, ...] = Field(
        (),
        description="commands a CLI agent's own shell may run; all others ask. Patterns, like `npm test*`; empty: any",
    )
    shell_deny: tuple[Word, ...] = Field(
        (), description="commands a CLI agent's own shell is refused, whatever else allows them, like `git push*`"
    )
    approve_for: tuple[Category, ...] = Field(
        CATEGORIES, description=f"what a CLI agent asks for first, of {', '.join(CATEGORIES)}; without it: all of these"
    )
    large_diff: LargeDiff = Field(
        LargeDiff(), description="from how many `files` or `lines` on a change is a large diff: 200 and 10,000"
    )
    obey_repository: bool = Field(
        False, description="whether a CLI agent obeys settings, hooks and MCP files that it finds in its workspace"
    )

    def scope_of(self, folder: str) -> Literal["messages", "steps"] | None:
        """How much of an agent's sessions it may read. What is said of it by name goes before what is said of all."""
        return self.oversees.get(folder) or self.oversees.get("*")

    def may_steer(self, folder: str) -> bool:
        return folder in self.steers or "*" in self.steers

    @field_validator("shell_allow", "shell_deny")
    @classmethod
    def _command_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            program = pattern.split()[0] if pattern.split() else ""
            if pattern != " ".join(pattern.split()):
                raise ValueError(f"{pattern!r} has spaces that no command has: one between words, none at the ends")
            if "/" in program:
                raise ValueError(f"{pattern!r}: name the program without its folder, like git push*")
            if re.search(r"[;&|`<>]|\$\(", pattern):
                raise ValueError(f"{pattern!r} is more than one command; each part of a line is looked at by itself")
        return patterns

    @field_validator("commands")
    @classmethod
    def _programs(cls, commands: tuple[str, ...]) -> tuple[str, ...]:
        for command in commands:
            if not re.fullmatch(r"[A-Za-z0-9_.+-]+", command) or command.startswith("-"):
                raise ValueError(f"{command!r} is not the plain name of a program, like git")
        return commands

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return _no_addresses(hosts)


def _no_addresses(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        if re.fullmatch(r"[0-9.]+", host):
            raise ValueError(f"{host!r} is an address; hosts are opened by name")
    return hosts


def parse_policy(config: Mapping[str, Any]) -> Policy:
    """The policy in a group's configuration. PolicyError names the first thing that is wrong."""
    try:
        return Policy.model_validate(config.get("policy") or {})
    except ValidationError as error:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"] if not str(part).startswith(("constrained-str", "literal["))]
        raise PolicyError(f"{'.'.join(['policy', *place])}: {_in_words(first, place[0] if place else '')}") from None


def _in_words(error: Any, field: str) -> str:
    """For somebody who writes YAML and has never heard of our types."""
    match error["type"]:
        case "extra_forbidden":
            return f"there is no such field; a policy has {', '.join(Policy.model_fields)}"
        case "tuple_type":
            return "this must be a list, like [a, b]"
        case "literal_error" if field == "approve_for":
            return f"{str(error['input'])[:100]!r} is none of {', '.join(CATEGORIES)}"
        case "bool_parsing" | "bool_type":
            return "this must be true or false"
        case "int_parsing" | "int_type" | "int_from_float":
            return "this must be a whole number"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "this must be a mapping of names to values"
        case "string_pattern_mismatch" | "literal_error" if field in ("hosts", "fetch", "mcp_servers"):
            return f"{str(error['input'])[:100]!r} is not a host's name, like example.org or *.example.org"
        case "missing":
            return "this is missing"
        case _:
            return str(error["msg"]).removeprefix("Value error, ")
