"""Making another agent: an admin's wish, approved by a person, done by the fleet."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, field_validator

from adapters.actions import Place, RegisterAgentGroup
from adapters.tool_port import Tool, ToolArguments, ToolContext

MAX_SENDERS: Final = 100
_PRINTABLE: Final = r"^[^\x00-\x1f\x7f]+$"
Word = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_PRINTABLE)]


class TriggerRules(ToolArguments):
    """What routing looks at; anything else would be a rule that never holds."""

    pattern: str | None = Field(None, min_length=1, max_length=500, description="answer only what matches this regex")
    mention_only: bool | None = Field(None, alias="mentionOnly", description="answer only when mentioned")
    include_senders: list[Word] | None = Field(None, alias="includeSenders", max_length=MAX_SENDERS)
    exclude_senders: list[Word] | None = Field(None, alias="excludeSenders", max_length=MAX_SENDERS)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return pattern


class RegisterAgentGroupArguments(ToolArguments):
    name: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$")
    folder: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$", description="its folder: small letters, digits, - and _; must be new"
    )
    platform_id: Word = Field(alias="platformId", description="the place where it listens")
    channel_type: str = Field(alias="channelType", min_length=1, max_length=50, description="and the platform")
    trigger_rules: TriggerRules | None = Field(
        None, alias="triggerRules", description="which messages there it answers; else all"
    )
    session_mode: Literal["shared", "per-thread"] = Field("shared", alias="sessionMode")
    provider: str | None = Field(None, min_length=1, max_length=100, description="an installed one; else the default")
    model: str | None = Field(None, min_length=1, max_length=200, pattern=_PRINTABLE)


async def _register(arguments: RegisterAgentGroupArguments, context: ToolContext) -> RegisterAgentGroup:
    rules: dict[str, Any] = {}
    if arguments.trigger_rules is not None:
        rules = arguments.trigger_rules.model_dump(by_alias=True, exclude_none=True)
    return RegisterAgentGroup(
        arguments.name.strip(),
        arguments.folder,
        Place(arguments.channel_type, arguments.platform_id),
        rules,
        arguments.session_mode,
        arguments.provider,
        arguments.model,
    )


REGISTER_AGENT_GROUP = Tool(
    "register_agent_group",
    "Makes a new agent with a folder of its own and lets it listen in a place. Only for owners and global admins; a "
    "person approves each call.",
    RegisterAgentGroupArguments,
    _register,
    idempotent=True,  # written with the call's result, or not at all
    risky=True,
    admin_only=True,
)
