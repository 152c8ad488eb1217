"""`send_message`: say something now, before the turn's answer."""

from pydantic import BaseModel, Field

from adapters.tool_port import Tool, ToolContext


class SendMessageArguments(BaseModel):
    text: str = Field(min_length=1, max_length=20_000, description="what to say")


async def _send_message(arguments: SendMessageArguments, context: ToolContext) -> str:
    context.send({"text": arguments.text})
    return "sent"


SEND_MESSAGE = Tool(
    "send_message",
    "Sends a message to the current conversation at once, while you go on working.",
    SendMessageArguments,
    _send_message,
    idempotent=True,  # what it stages is written together with its result: if that is missing, nothing was sent
)
