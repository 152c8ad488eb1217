"""What CLI agents ask for themselves beside the conversation: titles, summaries, suggestions, probes of a quota.

They get an answer that does, use up no fault and follow no rule: a script is about the conversation."""

import json
import re
from typing import Any

from tests.support.model_api.conversation import Conversation
from tests.support.model_api.script import Reply, reply

_INSTRUCTIONS = re.compile(r"You are a title generator|Summarize what was done in this conversation")  # opencode
_TEXT = re.compile(r"^\[SUGGESTION MODE|^quota$")  # claude


def side_reply(asked: Conversation) -> Reply | None:
    """The answer, or None to what is no side request."""
    if (schema := asked.answer_schema) is not None:
        return reply(json.dumps(_sample(schema)))
    if _INSTRUCTIONS.search(asked.instructions[:2000]) or _TEXT.search(asked.text):
        return reply("Stand-in")
    return None


def _sample(schema: dict[str, Any]) -> Any:
    """A small value that a JSON schema allows, as far as programs ask for one."""
    if schema.get("enum"):
        return schema["enum"][0]
    match str(schema.get("type", "object")).lower():
        case "object":
            return {name: _sample(part) for name, part in (schema.get("properties") or {}).items()}
        case "array":
            return []
        case "boolean":
            return False
        case "number" | "integer":
            return 1
    return "stand-in"
