"""`clock`: what time it is, in any time zone."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from adapters.errors import ToolError
from adapters.tool_port import Tool, ToolArguments, ToolContext


class ClockArguments(ToolArguments):
    timezone: str = Field("UTC", description="IANA name, for example Europe/Vienna")


async def _clock(arguments: ClockArguments, context: ToolContext) -> str:
    try:
        zone = ZoneInfo(arguments.timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ToolError(f"{arguments.timezone!r} is not a time zone; give an IANA name like Europe/Vienna") from None
    return context.clock().astimezone(zone).strftime("%A %Y-%m-%d %H:%M:%S %Z")


CLOCK = Tool("clock", "Tells the current date and time.", ClockArguments, _clock, idempotent=True)
