"""`acp`: any other program that speaks the Agent Client Protocol, by configuration alone.

The group's options say how it is started, how it learns of its model's door, and what of its home is its memory. A key
is never among them: the program gets a token in its place, in the variable that `key_variable` names."""

import asyncio
import base64
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from adapters.contracts import Capabilities, Detection, Manifest, QueryInput
from adapters.errors import ErrorClass, ProviderError
from adapters.events import Progress
from adapters.providers import catalog
from adapters.providers.cli.acp.driver import AcpDriver, Doors, Launch, Meter
from adapters.providers.cli.acp.query import AcpQuery
from adapters.providers.cli.home import pack, put, remove, unpack
from adapters.providers.cli.installation import Installation, find
from adapters.providers.cli.key_proxy import KeyProxy
from adapters.providers.cli.options import check_shared, refusal
from adapters.providers.cli.program import station_of
from adapters.providers.cli.usage_seen import Wire
from adapters.providers.credentials import anthropic_credentials, gemini_credentials, is_openai, openai_credentials
from adapters.sandbox.port import Door
from adapters.station import Needs
from adapters.uninterrupted import uninterrupted

# The patterns differ from group to group, and the fleet keeps what the provider names: so all of it goes in here.
MEMORY: Final = ".longshore-acp/memory"
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_CREDENTIALS: Final = {
    "anthropic": anthropic_credentials,
    "openai": openai_credentials,
    "gemini": gemini_credentials,
}

Word = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    command: Word = Field("", validate_default=False)
    args: list[Word] = Field(default_factory=list, max_length=100)
    env: dict[Variable, str] = Field(default_factory=dict)
    readable: list[Word] = Field(default_factory=list, max_length=20)
    wire: Literal["anthropic", "openai", "gemini", "none"] = "none"
    url_variable: Variable = Field("", validate_default=False)
    url_path: Annotated[str, StringConstraints(pattern=r"^(/[\w.-]+)*$", max_length=100)] = ""
    key_variable: Variable = Field("", validate_default=False)
    model_variable: Variable = Field("", validate_default=False)
    log_in: Word = Field("", validate_default=False)
    state: list[Word] = Field(default_factory=list, max_length=50)
    price: dict[str, float] | None = None

    @field_validator("env")
    @classmethod
    def _no_secrets(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if _SECRET.search(name):
                raise ValueError(
                    f"{name} looks like a secret: the key's place is `key_variable`, and its value is ours"
                )
        return env

    @field_validator("readable")
    @classmethod
    def _absolute(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not os.path.isabs(path) or path == "/":
                raise ValueError(f"{path!r} is not the absolute path of a folder")
        return paths

    @field_validator("state")
    @classmethod
    def _below_home(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            if pattern.startswith("/") or ".." in pattern.split("/"):
                raise ValueError(f"{pattern!r} is not relative to the program's home")
        return patterns


def read(options: Mapping[str, Any]) -> Options:
    try:
        known = Options.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise refusal(
                f"the acp provider has no option {where}; it has: {', '.join(Options.model_fields)}"
            ) from None
        raise refusal(f"{where}: {first['msg']}") from None
    check_shared("acp", options)
    return known


class AcpProvider(AcpDriver):
    manifest = Manifest(
        adapter_id="acp",
        version="1",
        vendor="any",
        kind="cli",
        capabilities=Capabilities(
            streaming=True, tools=True, resume=True, push=True, images=True, mcp=True, approvals=True,
            structured_edits="file_events",
        ),
    )  # fmt: skip
    needs = Needs(state=(MEMORY,), memory_bytes=512 << 20)

    async def detect(self) -> Detection:
        return Detection(True, self.manifest.version, "whatever program a group's options name (`command`)")

    def check(self, options: Mapping[str, Any]) -> None:
        read(options)

    def proxy(self, options: Mapping[str, Any]) -> tuple[Wire, KeyProxy] | None:
        wire = read(options).wire
        if wire == "none":
            return None
        return wire, self._proxies.setdefault(wire, KeyProxy(wire, _CREDENTIALS[wire]))

    def model(self, given: QueryInput) -> str:
        return given.model or "unknown"

    def vendor(self, given: QueryInput) -> catalog.Vendor:
        match read(given.options).wire:
            case "anthropic":
                return catalog.ANTHROPIC
            case "openai" if is_openai(openai_credentials().base_url):
                return catalog.OPENAI
            case _:
                return catalog.COMPATIBLE

    async def launch(self, given: QueryInput, doors: Doors) -> Launch:
        options = read(given.options)
        env = dict(options.env)
        for variable, value in (
            (options.url_variable, doors.model_url + options.url_path if doors.model_url else ""),
            (options.key_variable, doors.model_token),
            (options.model_variable, given.model or ""),
        ):
            if variable and value:
                env[variable] = value
        note = await asyncio.to_thread(_lay_out, station_of(given).home) if given.continuation else ""
        return Launch(
            installation=_installation(options),
            version="",
            arguments=tuple(options.args),
            env=env,
            notes=(note,),
            prefix=given.system_prompt,
            choose="" if options.model_variable else given.model or "",
            log_in=options.log_in,
        )

    def query(self, given: QueryInput) -> "AcpAgentQuery":
        return AcpAgentQuery(given, self)


class AcpAgentQuery(AcpQuery):
    async def _attempt(self, doors: Doors, opened: list[Door], meter: Meter | None) -> None:
        try:
            await super()._attempt(doors, opened, meter)
        finally:
            try:
                patterns = tuple(read(self.given.options).state)
                await uninterrupted(asyncio.to_thread(_keep, station_of(self.given).home, patterns))
            except ProviderError as error:
                await self.say(Progress(text=f"what it remembers of this turn could not be kept: {error}"))


def _installation(options: Options) -> Installation:
    if not options.command:
        raise refusal("the acp provider needs the option `command`: the program that speaks the protocol")
    readable = tuple(map(Path, options.readable))
    if os.path.isabs(options.command):
        return Installation("acp", (options.command,), readable)
    found = find(options.command)
    if found is None:
        raise refusal(f"there is no program `{options.command}`: install it on the workers' PATH, or give its path")
    return Installation("acp", found.argv, (*found.readable, *readable))


def _keep(home: Path, patterns: tuple[str, ...]) -> None:
    """What lies there now was put there by the agent, and is never to be taken for ours."""
    try:
        remove(home, MEMORY)
        if patterns:
            put(home, MEMORY, base64.b64encode(pack(home, patterns)).decode())
    except OSError as error:
        raise ProviderError(f"its home cannot be written ({error.strerror})", ErrorClass.INTERNAL) from error


def _lay_out(home: Path) -> str:
    """In a home that has nothing yet. Where it ran before, all of it is still there. What there is to say about it."""
    try:
        kept = base64.b64decode((home / MEMORY).read_text())
    except (OSError, ValueError):
        return ""
    try:
        if kept:
            unpack(kept, home)
    except FileExistsError:
        pass
    except ProviderError as error:
        return str(error)
    return ""
