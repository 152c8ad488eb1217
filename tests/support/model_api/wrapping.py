"""What CLI agents wrap around the words of their user, and take for the user's: reminders, surroundings, times.

Without this a rule would see the wrapping, and a reminder after a tool result would read as the user speaking anew."""

import re

from tests.support.model_api.conversation import Turn

_TAGS = (
    "system-reminder",  # claude
    "environment_context",  # codex, as the next two
    "user_instructions",
    "turn_aborted",
    "session_context",  # gemini
    "hook_context",
)
_CONTEXT = re.compile(
    "|".join(
        (
            *(rf"<{tag}>.*?</{tag}>" for tag in _TAGS),
            r"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
            r"\n\nRuntime: agent=[^\n]*\Z",  # openclaw, below the prompt
            r"\A\[\w{3} \d{4}-\d\d-\d\d \d\d:\d\d [^\]\n]*\] ",  # openclaw, before it
            r"\A# AGENTS\.md instructions for .*?</INSTRUCTIONS>",  # codex
        )
    ),
    re.DOTALL,
)
# claude, when the user speaks while it works: in a message of the system, or in a reminder.
_PUSHED = re.compile(
    r"The user sent a new message while you were working:\n(.*?)\n\nThis is how Claude Code surfaces", re.DOTALL
)


def system_turn(text: str) -> Turn:
    pushed = _PUSHED.findall(text)
    return Turn("user", "\n".join(pushed)) if pushed else Turn("system", text)


def user_turn(text: str) -> Turn:
    """A turn in which nobody speaks, because it is wrapping and nothing else, is none of the user's."""
    spoken = _CONTEXT.sub("", text)
    if spoken == text:
        return Turn("user", text)
    return Turn("user", spoken.strip()) if spoken.strip() else system_turn(text)
