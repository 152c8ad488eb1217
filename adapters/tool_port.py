"""The port of a tool: a name, a schema, a handler, and what may be said of it. One registry serves API providers (as
function schemas) and CLI agents (through MCP)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from adapters.actions import Action
from adapters.contracts import ToolSpec
from adapters.policy import Policy
from adapters.sandbox.port import Sandbox
from adapters.web import Web
from adapters.workspace import Workspace


@dataclass(frozen=True)
class Beside:
    """What programs find besides the workspace: folders to read, at their own paths, and variables."""

    readable: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


NOTHING_BESIDE: Final = Beside()


@dataclass(frozen=True)
class Concern:
    """What a call is about, for whoever has to approve it."""

    category: str
    summary: str
    risk: Literal["low", "medium", "high"] = "high"


@dataclass(frozen=True)
class ToolContext:
    """Who calls and from where, fixed by the fleet and not by the model; and what the tool may use.

    `call` names the call: the same for every attempt at it. `outbox` is where files to be sent wait for delivery.
    `clock` tells the time by which dates come due, which this machine's own may differ from."""

    session_id: str
    turn_id: str
    call: str
    agent_group: str  # its folder
    sender_id: str | None
    workspace: Workspace
    outbox: Path
    policy: Policy
    web: Web
    sandbox: Sandbox | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    beside: Beside = NOTHING_BESIDE


class ToolArguments(BaseModel):
    """What a tool may be told. Names are those agents are used to (camelCase, as aliases); ours are taken as well. A
    parameter that a model invents, an identity or a destination, is refused and not overheard."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")


Arguments = TypeVar("Arguments", bound=BaseModel)


class Handler(Protocol[Arguments]):  # type: ignore[misc]  # a callable protocol over its own argument type
    async def __call__(self, arguments: Arguments, context: ToolContext) -> str | Action: ...


@dataclass(frozen=True, eq=False)
class Tool(Generic[Arguments]):
    """A tool: its handler returns the text for the agent, or an action for the fleet, or raises ToolError with a text
    for the agent."""

    name: str
    description: str
    arguments: type[Arguments]
    handler: Handler[Arguments]
    idempotent: bool = False  # may be run again when nobody knows whether it finished
    risky: bool = False  # a person must approve each call
    concern: Callable[[Arguments], Concern] | None = None  # of a risky one, if the call's own words do not say it best
    admin_only: bool = False  # everybody whose messages the turn answers must be an admin
    needs_sandbox: bool = False  # without one, agents do not have it
    # Whether such a call leaves a program to be run later: refused where there is no sandbox or a secret in it, and a
    # person must approve it unless everybody whose messages the turn answers is an admin, and it is no scheduled run.
    brings_code: Callable[[Arguments], bool] = lambda _: False
    offered: Callable[[Policy], bool] = lambda _: True
    schema: Mapping[str, Any] | None = None  # of a tool that others describe; else it is that of `arguments`

    @cached_property
    def spec(self) -> ToolSpec:
        """Made once: the schemas of a few tools cost as much CPU as the rest of a turn's preparation."""
        return ToolSpec(self.name, self.description, dict(self.schema or self.arguments.model_json_schema()))
