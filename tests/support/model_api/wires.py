"""The four wires side by side: which path speaks which, and what each can do."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.model_api import (
    anthropic_checks,
    anthropic_wire,
    chat_wire,
    gemini_checks,
    gemini_wire,
    openai_checks,
    responses_wire,
)
from tests.support.model_api.answer import Answer
from tests.support.model_api.conversation import Body, Conversation, WireName
from tests.support.model_api.refusals import ErrorName, Form


@dataclass(frozen=True)
class Wire:
    name: WireName
    read: Callable[[Body], Conversation]
    check: Callable[[Body], list[str]]
    events: Callable[[Answer], list[bytes]]
    whole: Callable[[Answer], dict[str, Any]]
    error_event: Callable[[Answer, ErrorName, int, Form], bytes]  # the error, its place in the stream, its form


ANTHROPIC = Wire(
    "anthropic",
    anthropic_wire.read,
    anthropic_checks.check,
    anthropic_wire.events,
    anthropic_wire.whole,
    anthropic_wire.error_event,
)
RESPONSES = Wire(
    "responses",
    responses_wire.read,
    openai_checks.check_responses,
    responses_wire.events,
    responses_wire.whole,
    responses_wire.error_event,
)
CHAT = Wire("chat", chat_wire.read, openai_checks.check_chat, chat_wire.events, chat_wire.whole, chat_wire.error_event)
GEMINI = Wire(
    "gemini",
    gemini_wire.read,
    gemini_checks.check,
    gemini_wire.events,
    gemini_wire.whole,
    gemini_wire.error_event,
)

PATHS: dict[str, Wire] = {"/v1/messages": ANTHROPIC, "/v1/responses": RESPONSES, "/v1/chat/completions": CHAT}
GEMINI_PATH = r"/v1beta/models/{model}:{verb:generateContent|streamGenerateContent}"
_GEMINI_PATH = re.compile(r"/v1beta/models/([^/:]+):(generateContent|streamGenerateContent)")


def wire_of(path: str) -> tuple[Wire, dict[str, Any]]:
    """The wire, and what the path says that other wires have in the body."""
    if found := _GEMINI_PATH.fullmatch(path):
        return GEMINI, {"model": found[1], "stream": found[2] == "streamGenerateContent"}
    return PATHS[path], {}
