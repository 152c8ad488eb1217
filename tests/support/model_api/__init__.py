"""A stand-in model server that speaks the wires of Anthropic and OpenAI over real HTTP, and can misbehave.

By hand: `python -m tests.support.model_api --help`."""

from tests.support.model_api.conversation import Conversation
from tests.support.model_api.faults import (
    Fault,
    cut,
    drip,
    drop,
    error_event,
    garbage,
    hang,
    refuse,
    stall,
    truncate,
)
from tests.support.model_api.limits import Limits
from tests.support.model_api.recording import Recorded
from tests.support.model_api.script import (
    Call,
    Reply,
    Rule,
    Script,
    Text,
    Think,
    Usage,
    load_script,
    reply,
    rule,
    script,
)
from tests.support.model_api.server import ModelApi
from tests.support.model_api.thread import ModelApiThread

__all__ = [
    "Call",
    "Conversation",
    "Fault",
    "Limits",
    "ModelApi",
    "ModelApiThread",
    "Recorded",
    "Reply",
    "Rule",
    "Script",
    "Text",
    "Think",
    "Usage",
    "cut",
    "drip",
    "drop",
    "error_event",
    "garbage",
    "hang",
    "load_script",
    "refuse",
    "reply",
    "rule",
    "script",
    "stall",
    "truncate",
]
