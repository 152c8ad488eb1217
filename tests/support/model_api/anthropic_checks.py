"""What Anthropic refuses with 400: every entry is a mistake of the client that a lenient fake would hide."""

import re
from collections.abc import Iterator
from typing import Any

from tests.support.model_api.anthropic_wire import signature
from tests.support.model_api.conversation import Body, dicts

_ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
_GONE = ("temperature", "top_p", "top_k")
_KNOWN = {
    *("model", "max_tokens", "messages", "stream", "system", "tools", "tool_choice", "thinking", "metadata"),
    *("cache_control", "container", "context_management", "diagnostics", "inference_geo", "mcp_servers"),
    *("output_config", "service_tier", "speed", "stop_sequences", "compaction", "fallbacks", "thread"),
    *("fallback_credit_token", "user_profile_id"),
}
_THINKING = ("thinking", "redacted_thinking")


def check(body: Body) -> list[str]:
    return [*_top_level(body), *_messages(body.get("messages"))]


def _top_level(body: Body) -> Iterator[str]:
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            yield f"{name}: Field required"
    for name in body:
        if name in _GONE:
            yield f"{name}: this parameter is not supported"
        elif name not in _KNOWN:
            yield f"{name}: Extra inputs are not permitted"
    limit = body.get("max_tokens", 1)
    if not isinstance(limit, int) or limit < 0:
        yield "max_tokens: Input should be a valid non-negative integer"
    if body.get("system") == "":
        yield "system: text content blocks must be non-empty"
    yield from _empty_texts(body.get("system"), "system")
    names = [tool.get("name") for tool in dicts(body.get("tools"))]
    if len(names) != len(set(names)):
        yield "tools: Tool names must be unique."


def _messages(given: Any) -> Iterator[str]:
    if not isinstance(given, list) or not given:
        if given is not None:
            yield "messages: at least one message is required"
        return
    messages = dicts(given)
    if messages and messages[0].get("role") != "user":
        yield 'messages: first message must use the "user" role'
    for n, message in enumerate(messages):
        yield from _message(message, f"messages.{n}")
    turns = _merged(messages)
    if turns and turns[-1][0] == "assistant" and not any(b.get("type") == "server_tool_use" for b in turns[-1][1]):
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    ids = [block.get("id") for _, blocks in turns for block in blocks if block.get("type") == "tool_use"]
    if len(ids) != len(set(ids)):
        yield "messages: `tool_use` ids must be unique"
    for n, (role, blocks) in enumerate(turns):
        before = turns[n - 1][1] if n else []
        after = turns[n + 1][1] if n + 1 < len(turns) else []
        yield from _uses(blocks, after, n) if role == "assistant" else _results(blocks, before, n)


def _message(message: dict[str, Any], place: str) -> Iterator[str]:
    if message.get("role") not in ("user", "assistant", "system"):
        yield f"{place}.role: Input should be 'user' or 'assistant'"
    content = message.get("content")
    if content is None or content in ("", []):
        yield f"{place}: all messages must have non-empty content except for the optional final assistant message"
    yield from _empty_texts(content, f"{place}.content")
    for m, block in enumerate(dicts(content)):
        here = f"{place}.content.{m}"
        match block.get("type"):
            case "thinking":
                yield from _thinking(block, here)
            case "tool_result":
                yield from _empty_texts(block.get("content"), f"{here}.content")
            case "tool_use" if not isinstance(block.get("input"), dict):
                yield f"{here}.tool_use.input: Input should be a valid dictionary"
            case None:
                yield f"{here}.type: Field required"
    if message.get("role") == "assistant":
        kinds = [block.get("type") for block in dicts(content)]
        if kinds and kinds[-1] in _THINKING:
            yield f"{place}: The final block in an assistant message cannot be `thinking`."


def _thinking(block: dict[str, Any], place: str) -> Iterator[str]:
    if not block.get("signature"):
        yield f"{place}.thinking.signature: Field required"
    elif block["signature"] != signature(str(block.get("thinking", ""))):
        yield f"{place}: Invalid `signature` in `thinking` block"


def _uses(blocks: list[dict[str, Any]], after: list[dict[str, Any]], place: int) -> Iterator[str]:
    ids = [str(block.get("id", "")) for block in blocks if block.get("type") == "tool_use"]
    for one in ids:
        if not _ID.match(one):
            yield f"messages.{place}.content.tool_use.id: String should match pattern '{_ID.pattern}'"
    answered = {block.get("tool_use_id") for block in after if block.get("type") == "tool_result"}
    if missing := [one for one in ids if one not in answered]:
        yield (
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )


def _results(blocks: list[dict[str, Any]], before: list[dict[str, Any]], place: int) -> Iterator[str]:
    asked = {block.get("id") for block in before if block.get("type") == "tool_use"}
    ids = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    for one in ids:
        if one not in asked:
            yield f"messages.{place}: unexpected `tool_use_id` found in `tool_result` blocks: {one}."
    if len(ids) != len(set(ids)):
        yield f"messages.{place}: each tool_use must have a single result. Found multiple `tool_result` blocks."
    kinds = [block.get("type") == "tool_result" for block in blocks]
    if kinds != sorted(kinds, reverse=True):
        yield f"messages.{place}: `tool_result` blocks must come before other content in the message after `tool_use`."


def _empty_texts(content: Any, place: str) -> Iterator[str]:
    for block in dicts(content):
        if block.get("type") == "text" and not block.get("text"):
            yield f"{place}: text content blocks must be non-empty"
        elif block.get("type") == "text" and not str(block["text"]).strip():
            yield f"{place}: text content blocks must contain non-whitespace text"


def _merged(messages: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Turns in a row of one role are one turn to the API."""
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages:
        role, content = str(message.get("role")), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else dicts(content)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, list(blocks)))
    return turns
