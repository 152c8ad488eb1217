"""What OpenAI refuses with 400, on both of its wires."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_api.conversation import Body, dicts
from tests.support.model_api.responses_wire import encrypted


def check_chat(body: Body) -> list[str]:
    return [*_required(body, "model", "messages"), *_chat_messages(dicts(body.get("messages")))]


def check_responses(body: Body) -> list[str]:
    given = body.get("input")
    items = dicts(given)
    return [*_required(body, "model", "input"), *_empty(given), *_function_calls(items), *_reasoning(items)]


def _required(body: Body, *names: str) -> Iterator[str]:
    for name in names:
        if name not in body:
            yield f"Missing required parameter: '{name}'."
    if body.get("messages") == []:
        yield "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array."
    options = body.get("stream_options")
    if options is not None and not body.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."


def _chat_messages(messages: list[dict[str, Any]]) -> Iterator[str]:
    open_calls: list[str] = []
    for n, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            call = message.get("tool_call_id")
            if call in open_calls:
                open_calls.remove(call)
            else:
                yield (
                    f"Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls'. (messages.[{n}])"
                )
            continue
        yield from _unanswered(open_calls)
        calls = dicts(message.get("tool_calls"))
        open_calls = [str(call.get("id")) for call in calls]
        if len(open_calls) != len(set(open_calls)):
            yield f"Duplicate value for 'tool_call_id' in messages[{n}]."
        if role not in ("system", "developer", "user", "assistant"):
            yield f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'tool', 'developer'."
        if message.get("content") in (None, []) and not calls and not message.get("refusal"):
            yield f"Invalid value for 'content': expected a string, got null. (messages.[{n}].content)"
        yield from (problem for call in calls for problem in _arguments(call.get("function") or {}))
    yield from _unanswered(open_calls)


def _unanswered(calls: list[str]) -> Iterator[str]:
    if calls:
        yield (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(calls)}"
        )


def _arguments(function: dict[str, Any]) -> Iterator[str]:
    """The arguments are a string of JSON; an object in their place is the usual mistake."""
    if not function.get("name"):
        yield "Missing required parameter: 'name' of a function call."
    if not isinstance(function.get("arguments"), str):
        yield "Invalid type for the 'arguments' of a function call: expected a string."


def _empty(given: Any) -> Iterator[str]:
    if given in ("", []):
        yield "Invalid 'input': expected a non-empty string or list."
    for n, item in enumerate(dicts(given)):
        if item.get("type", "message") == "message" and item.get("content") in (None, "", []):
            yield f"Invalid value for 'input[{n}].content': expected non-empty content."


def _function_calls(items: list[dict[str, Any]]) -> Iterator[str]:
    calls = [str(item.get("call_id")) for item in items if item.get("type") == "function_call"]
    outputs = [str(item.get("call_id")) for item in items if item.get("type") == "function_call_output"]
    if len(calls) != len(set(calls)):
        yield "Duplicate function call ids in the input."
    for call in calls:
        if call not in outputs:
            yield f"No tool output found for function call {call}."
    seen: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            seen.add(str(item.get("call_id")))
            yield from _arguments(item)
        elif item.get("type") == "function_call_output":
            if str(item.get("call_id")) not in seen:
                yield f"No tool call found for function call output with call_id {item.get('call_id')}."
            if not isinstance(item.get("output"), str | list):
                yield f"Invalid type for 'output' of {item.get('call_id')}: {json.dumps(item.get('output'))}"


def _reasoning(items: list[dict[str, Any]]) -> Iterator[str]:
    for n, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        name = str(item.get("id"))
        following = items[n + 1] if n + 1 < len(items) else {}
        said = following.get("type") in ("function_call", "reasoning") or following.get("role") == "assistant"
        if not item.get("encrypted_content"):
            yield (
                f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. Try again "
                "with `store` set to true, or remove this item from your input."
            )
        elif "id" in item and item["encrypted_content"] != encrypted(name):
            yield f"The encrypted content for item {name} could not be verified."
        if not isinstance(item.get("summary"), list):
            yield f"Missing required parameter: 'input[{n}].summary'."
        if not said:
            yield f"Item '{name}' of type 'reasoning' was provided without its required following item."
