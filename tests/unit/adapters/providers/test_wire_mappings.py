"""Properties of all three wire mappings: vendors' rules are kept, old bytes stay, and what was said is read back."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from adapters.model_port import ModelRequest
from adapters.providers import catalog
from adapters.providers.anthropic import reply as anthropic_reply
from adapters.providers.anthropic import request as anthropic_request
from adapters.providers.openai import chat, responses
from adapters.transcript import Called, Item, ReplyItem, Said, Shown, Thought, from_record, to_record
from tests.support.model_api import anthropic_checks, openai_checks
from tests.support.transcripts import arguments, conversations, damaged, names, thoughts, words

pytestmark = pytest.mark.spec("P3", "P4")
REQUEST = ModelRequest(model="some-model", system="", items=())


@dataclass(frozen=True)
class Wire:
    name: str
    messages: Callable[[tuple[Item, ...]], list[Any]]
    problems: Callable[[list[Any]], list[str]]


WIRES = [
    Wire(
        "anthropic",
        lambda items: list(anthropic_request.messages(items)),
        lambda sent: anthropic_checks.check({"model": "m", "max_tokens": 1, "messages": sent}),
    ),
    Wire(
        "responses",
        lambda items: list(responses.inputs(items)),
        lambda sent: openai_checks.check_responses({"model": "m", "input": sent}),
    ),
    Wire(
        "chat",
        lambda items: list(chat.messages("", items)),
        lambda sent: openai_checks.check_chat({"model": "m", "messages": sent}),
    ),
]
each_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


def flat(steps: Iterable[Sequence[Item]]) -> tuple[Item, ...]:
    return tuple(item for step in steps for item in step)


@each_wire
@given(conversations())
def test_a_sound_conversation_keeps_the_vendors_rules(wire: Wire, steps: list[list[Item]]) -> None:
    sent = wire.messages((*flat(steps), Said("user", "go on")))
    json.dumps(sent, ensure_ascii=False).encode()
    assert wire.problems(sent) == []


@each_wire
@given(damaged)
def test_a_damaged_one_keeps_them_too(wire: Wire, items: list[Item]) -> None:
    sent = wire.messages(tuple(items))
    json.dumps(sent, ensure_ascii=False).encode()
    assert wire.problems(sent) == []
    assert "and now?" in json.dumps(sent[-1])


@each_wire
@given(conversations())
def test_what_was_sent_once_stays_as_it_was(wire: Wire, steps: list[list[Item]]) -> None:
    whole = json.dumps(wire.messages(flat(steps)))
    for k in range(1, len(steps)):
        assert whole.startswith(json.dumps(wire.messages(flat(steps[:k])))[:-1])


@each_wire
@given(conversations())
def test_a_stored_conversation_gives_the_same_bytes(wire: Wire, steps: list[list[Item]]) -> None:
    items = [replace(item, data="") if isinstance(item, Shown) else item for item in flat(steps)]
    shuffled = [
        json.loads(json.dumps(to_record(item)), object_pairs_hook=lambda pairs: dict(pairs[::-1])) for item in items
    ]
    stored = tuple(from_record(record) for record in shuffled)
    assert json.dumps(wire.messages(stored)) == json.dumps(wire.messages(tuple(items)))


# --- There and back ----------------------------------------------------------------------------------------------

ANTHROPIC_EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
RESPONSES_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
SIGNED = thoughts().filter(
    lambda thought: (
        thought.provider == "anthropic" and bool(thought.opaque.get("signature") or thought.opaque.get("data"))
    )
)
ENCRYPTED = thoughts().filter(lambda thought: "encrypted_content" in thought.opaque)


@st.composite
def said(draw: st.DrawFn, thought: st.SearchStrategy[Thought]) -> tuple[ReplyItem, ...]:
    """What an assistant may say in one message, with nothing that mapping leaves out."""
    calls = [Called(f"call_{n}", draw(names), draw(arguments)) for n in range(draw(st.integers(0, 3)))]
    spoken: list[ReplyItem] = [*draw(st.lists(thought | st.builds(Said, st.just("assistant"), words), max_size=3))]
    return (*spoken, *calls) if calls else (*spoken, Said("assistant", draw(words)))


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def anthropic_events(blocks: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    yield {"type": "message_start", "message": start}
    for n, block in enumerate(blocks):
        match block["type"]:
            case "text":
                begin = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": part} for part in halves(block["text"])]
            case "thinking":
                begin = {**block, "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": part} for part in halves(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use":
                begin = {**block, "input": {}}
                written = halves(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": part} for part in written]
            case _:
                begin, deltas = block, []
        yield {"type": "content_block_start", "index": n, "content_block": begin}
        yield from ({"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": n}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


@given(said(SIGNED))
def test_anthropic_reads_back_what_it_was_sent(items: tuple[ReplyItem, ...]) -> None:
    sent: Any = anthropic_request.messages((Said("user", "go"), *items))[1]
    reader = anthropic_reply.Reader(REQUEST)
    for event in anthropic_events(sent["content"]):
        reader.take(ANTHROPIC_EVENT.validate_python(event))
    reply = reader.reply({})
    assert reply.items == items
    assert reply.stop == ("tools" if any(isinstance(item, Called) for item in items) else "end")
    assert reply.usage.output_tokens == 7


@given(said(ENCRYPTED), st.booleans())
def test_responses_reads_back_what_it_was_sent(items: tuple[ReplyItem, ...], repeated: bool) -> None:
    output: list[dict[str, Any]] = []
    for one in json.loads(json.dumps(responses.inputs((Said("user", "go"), *items))))[1:]:
        if one["type"] == "message":
            part = {"type": "output_text", "text": one["content"], "annotations": []}
            one = {**one, "id": "msg", "status": "completed", "content": [part]}
        if one["type"] == "function_call_output":
            continue
        output.append(one)
    reader = responses.Reader(REQUEST, catalog.OPENAI)
    for n, one in enumerate(output):
        event = {"type": "response.output_item.done", "output_index": n, "item": one, "sequence_number": n}
        reader.take(RESPONSES_EVENT.validate_python(event))
    response = {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "status": "completed",
        "tools": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "output": output if repeated else [],
    }
    event = {"type": "response.completed", "response": response, "sequence_number": 99}
    reader.take(RESPONSES_EVENT.validate_python(event))
    reply = reader.reply(())
    assert reply.items == items
    assert reply.stop == ("tools" if any(isinstance(item, Called) for item in items) else "end")


@given(words, st.lists(st.tuples(names, arguments), max_size=3))
def test_chat_reads_back_what_it_was_sent(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    items: tuple[ReplyItem, ...] = (
        Said("assistant", text),
        *(Called(f"call_{n}", name, given) for n, (name, given) in enumerate(calls)),
    )
    sent: Any = chat.messages("", (Said("user", "go"), *items))[1]
    deltas: list[dict[str, Any]] = [{"content": part} for part in halves(sent["content"])]
    for n, call in enumerate(sent.get("tool_calls", [])):
        first, second = halves(call["function"]["arguments"])
        begin = {**call, "index": n, "function": {"name": call["function"]["name"], "arguments": first}}
        deltas += [{"tool_calls": [begin]}, {"tool_calls": [{"index": n, "function": {"arguments": second}}]}]
    reader = chat.Reader(REQUEST, catalog.COMPATIBLE)
    for delta in deltas:
        reader.take(chunk(delta))
    reader.take(chunk({}, finish="stop"))
    reply = reader.reply(())
    assert reply.items == items
    assert reply.stop == ("tools" if calls else "end")


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    made = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice], **more}
    # As the SDK does it: what a server sends is not validated.
    return ChatCompletionChunk.construct(**made)


def test_calls_of_servers_that_number_them_all_alike_or_not_at_all() -> None:
    for index in (0, None):
        reader = chat.Reader(REQUEST, catalog.COMPATIBLE)
        for n in range(2):
            call = {"id": f"id{n}", "type": "function", "function": {"name": "clock", "arguments": '{"n":'}}
            rest = {"function": {"arguments": f"{n}}}"}}
            for one in (call, rest):
                reader.take(chunk({"tool_calls": [one if index is None else {**one, "index": index}]}))
        reader.take(chunk({}, finish="tool_calls"))
        assert reader.reply(()).items == (Called("id0", "clock", {"n": 0}), Called("id1", "clock", {"n": 1}))


def test_reasoning_of_compatible_servers_is_shown_and_kept_under_both_names() -> None:
    for name in ("reasoning_content", "reasoning"):
        reader = chat.Reader(REQUEST, catalog.COMPATIBLE)
        reader.take(chunk({name: "hm"}))
        reader.take(chunk({"content": "yes"}, finish="stop"))
        assert reader.reply(()).items == (Thought("openai", "hm"), Said("assistant", "yes"))


def test_a_call_that_was_cut_before_its_arguments_is_not_one_without_any() -> None:
    reader = anthropic_reply.Reader(REQUEST)
    *events, delta, _ = anthropic_events([{"type": "tool_use", "id": "c1", "name": "erase", "input": {}}])
    for event in events[:2]:
        reader.take(ANTHROPIC_EVENT.validate_python(event))
    reader.take(ANTHROPIC_EVENT.validate_python({**delta, "delta": {"stop_reason": "max_tokens"}}))
    assert reader.reply({}).items == (Called("c1", "erase", broken="(cut off)"),)
    by_chat = chat.Reader(REQUEST, catalog.COMPATIBLE)
    by_chat.take(chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "erase"}}]}, finish="length"))
    assert by_chat.reply(()).items == (Called("c1", "erase", broken="(cut off)"),)
