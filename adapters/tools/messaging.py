"""Talking on the way, before the turn's answer: messages, files, cards, edits, reactions, other agents.

Each returns an action; the fleet writes it down together with the call's result, so none of them can happen twice."""

import asyncio
import json
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field, field_validator

from adapters.actions import AddReaction, EditMessage, Place, Send, SendToAgent
from adapters.errors import ToolError
from adapters.tool_port import Tool, ToolArguments, ToolContext
from adapters.tools.dates import MAX_DATE, MAX_RECURRENCE, MAX_TIMEZONE, read_date
from adapters.workspace import Workspace

MAX_FILE_BYTES = 20 << 20
MAX_CARD_BYTES = 64 << 10


class SendMessageArguments(ToolArguments):
    text: str = Field(min_length=1, max_length=20_000, description="what to say")
    to: str | None = Field(None, description="a destination by the name you know it by; else the current conversation")
    channel: str | None = Field(None, max_length=50, description="another place: its platform, with platformId")
    platform_id: str | None = Field(None, alias="platformId", max_length=255, description="and the place on it")
    thread_id: str | None = Field(None, alias="threadId", max_length=255)
    deliver_after: str | None = Field(
        None,
        alias="deliverAfter",
        max_length=MAX_DATE,
        description="not at once but then, as a reminder: ISO 8601 with a UTC offset, like 2026-01-31T09:00:00+01:00",
    )
    recurrence: str | None = Field(
        None,
        max_length=MAX_RECURRENCE,
        description="the same text again and again: cron (0 9 * * 1-5) or @daily, @hourly, @weekly; without "
        "deliverAfter from its next date on",
    )
    timezone: str = Field("UTC", max_length=MAX_TIMEZONE, description="IANA name; cron is read in it")


async def _send_message(arguments: SendMessageArguments, context: ToolContext) -> Send:
    date = arguments.deliver_after
    return Send(
        {"text": arguments.text},
        to=_place(arguments, context),
        deliver_after=read_date(date, "deliverAfter") if date else None,
        recurrence=(arguments.recurrence or "").strip() or None,
        timezone=arguments.timezone,
    )


def _place(arguments: SendMessageArguments, context: ToolContext) -> Place | None:
    if arguments.to is not None:
        known = context.policy.destinations
        if arguments.to not in known:
            raise ToolError(f"there is no destination {arguments.to!r}; you know: {', '.join(known) or 'none'}")
        named = known[arguments.to]
        return Place(named.channel_type, named.platform_id, named.thread_id)
    if (arguments.channel is None) != (arguments.platform_id is None):
        raise ToolError("channel and platformId go together; leave both out to answer where you were asked")
    if arguments.channel is None or arguments.platform_id is None:
        return None
    return Place(arguments.channel, arguments.platform_id, arguments.thread_id)


SEND_MESSAGE = Tool(
    "send_message",
    "Sends a message at once, while you go on working: to the current conversation, or to another place you may write "
    "to. Your final answer is sent by itself; do not repeat it here. With deliverAfter or recurrence it is a reminder: "
    "the text is sent at its date just as you wrote it, without asking you again (for work to be done then, use "
    "schedule_task). list_tasks shows it, cancel_task takes it back.",
    SendMessageArguments,
    _send_message,
    idempotent=True,
)


class SendFileArguments(ToolArguments):
    path: str = Field(min_length=1, max_length=4096, description="a file in your workspace")
    text: str | None = Field(None, max_length=20_000, description="what to say with it")
    filename: str | None = Field(None, max_length=200, description="the name to show; else the file's own")

    @field_validator("filename")
    @classmethod
    def _plain(cls, name: str | None) -> str | None:
        if name is not None and not _is_plain(name):
            raise ValueError("a plain file name, without folders")
        return name


async def _send_file(arguments: SendFileArguments, context: ToolContext) -> Send:
    name = arguments.filename or PurePosixPath(arguments.path).name
    if not _is_plain(name):
        raise ToolError(f"{name!r} is not a name people can be sent; give a plain one as filename")
    size = await asyncio.to_thread(
        _copy_out, context.workspace, arguments.path, context.outbox / context.call, name[:200]
    )
    content: dict[str, Any] = {"text": arguments.text or "", "files": [{"name": name[:200], "size": size}]}
    return Send(content, outbox=context.call)


def _is_plain(name: str) -> bool:
    return bool(name.strip(". ")) and not re.search(r"[/\\\x00-\x1f\x7f]", name)


def _copy_out(workspace: Workspace, path: str, folder: Path, name: str) -> int:
    # What an attempt that died has left there may be half a file.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    try:
        return workspace.copy_out(path, folder / name, limit=MAX_FILE_BYTES)
    except ToolError:
        folder.rmdir()
        raise


SEND_FILE = Tool(
    "send_file",
    f"Sends a file of your workspace to the current conversation (at most {MAX_FILE_BYTES >> 20} MB).",
    SendFileArguments,
    _send_file,
    idempotent=True,  # copying it again changes nothing
)


class SendCardArguments(ToolArguments):
    card: dict[str, Any] = Field(description="title, children (texts, fields) and actions (buttons)")
    fallback_text: str | None = Field(
        None, alias="fallbackText", max_length=20_000, description="shown where there are no cards"
    )

    @field_validator("card")
    @classmethod
    def _reasonable(cls, card: dict[str, Any]) -> dict[str, Any]:
        if not card:
            raise ValueError("the card is empty")
        if len(json.dumps(card, default=str)) > MAX_CARD_BYTES:
            raise ValueError(f"a card has at most {MAX_CARD_BYTES >> 10} kB")
        return card


async def _send_card(arguments: SendCardArguments, context: ToolContext) -> Send:
    text = arguments.fallback_text or "\n".join(_card_words(arguments.card)) or "(a card)"
    return Send({"text": text, "card": arguments.card}, kind="chat-sdk")


def _card_words(card: Any) -> list[str]:
    """The texts of a card, top to bottom, for where there are no cards. Its actions are buttons, or numbered there."""
    match card:
        case str():
            return [card]
        case list():
            return [words for part in card for words in _card_words(part)]
        case dict():
            own = [str(card[key]) for key in ("title", "text", "label", "value") if isinstance(card.get(key), str)]
            return own + _card_words(card.get("children"))
        case _:
            return []


SEND_CARD = Tool(
    "send_card",
    "Sends a card: a title, texts and buttons. Where the platform has no cards, its text is shown.",
    SendCardArguments,
    _send_card,
    idempotent=True,
)


class EditMessageArguments(ToolArguments):
    message_id: int = Field(alias="messageId", ge=1, lt=2**31, description="the number of a message you sent")
    text: str = Field(min_length=1, max_length=20_000, description="what it should say instead")


async def _edit_message(arguments: EditMessageArguments, context: ToolContext) -> EditMessage:
    return EditMessage(arguments.message_id, arguments.text)


EDIT_MESSAGE = Tool(
    "edit_message",
    "Changes a message you sent earlier. Where the platform cannot, the new text is sent as a message.",
    EditMessageArguments,
    _edit_message,
    idempotent=True,
)


class AddReactionArguments(ToolArguments):
    message_id: int = Field(alias="messageId", ge=1, lt=2**31, description="the message's number, as its id= says")
    emoji: str = Field(min_length=1, max_length=50, description="an emoji or its name, for example thumbs_up")


async def _add_reaction(arguments: AddReactionArguments, context: ToolContext) -> AddReaction:
    return AddReaction(arguments.message_id, arguments.emoji)


ADD_REACTION = Tool(
    "add_reaction",
    "Reacts to a message with an emoji, where the platform has reactions.",
    AddReactionArguments,
    _add_reaction,
    idempotent=True,
)


class SendToAgentArguments(ToolArguments):
    agent_group_id: str = Field(alias="agentGroupId", min_length=1, max_length=100, description="the agent, by name")
    text: str = Field(min_length=1, max_length=20_000)
    session_id: str | None = Field(None, alias="sessionId", max_length=36, description="a session of theirs")


async def _send_to_agent(arguments: SendToAgentArguments, context: ToolContext) -> SendToAgent:
    return SendToAgent(arguments.agent_group_id, arguments.text, arguments.session_id)


SEND_TO_AGENT = Tool(
    "send_to_agent",
    "Sends a message to another agent. It works on its own time; its answer comes to you as a message.",
    SendToAgentArguments,
    _send_to_agent,
    idempotent=True,
    offered=lambda policy: bool(policy.agents),
)
