"""What the stand-in model server refuses, because the real ones do."""

from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.support.model_api import ModelApi
from tests.support.model_api.anthropic_checks import check
from tests.support.model_api.openai_checks import check_chat, check_responses
from tests.support.model_clients import ask_chat, ask_claude, ask_responses

HELLO = {"role": "user", "content": "hello"}


def use(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": one, "name": "clock", "input": {}} for one in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": "x"} for one in ids]}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "at least one message"),
        ([{"role": "assistant", "content": "hi"}, HELLO], "first message must use"),
        ([HELLO, {"role": "assistant", "content": "hi"}], "prefill"),
        ([{"role": "user", "content": ""}], "non-empty content"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "must be non-empty"),
        ([{"role": "user", "content": [{"type": "text", "text": " \n"}]}], "non-whitespace"),
        ([HELLO, use("a"), HELLO], "without `tool_result` blocks immediately after: a"),
        ([HELLO, use("a", "b"), results("a")], "immediately after: b"),
        ([HELLO, results("a")], "unexpected `tool_use_id`"),
        ([HELLO, use("a"), results("a"), results("a")], "multiple `tool_result`"),
        ([HELLO, use("a", "a"), results("a")], "ids must be unique"),
        ([HELLO, use("a"), results("a"), use("a"), results("a")], "ids must be unique"),
        ([HELLO, use("a.b"), results("a.b")], "match pattern"),
        ([HELLO, use("x" * 65), results("x" * 65)], "match pattern"),
        (
            [HELLO, use("a"), {"role": "user", "content": [{"type": "text", "text": "x"}, *results("a")["content"]]}],
            "must come before other content",
        ),
        (
            [HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}, HELLO],
            "signature: Field required",
        ),
        (
            [HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}]}, HELLO],
            "Invalid `signature`",
        ),
    ],
)
def test_anthropic_refuses_messages(messages: Any, problem: str) -> None:
    assert any(problem in one for one in check({"model": "m", "max_tokens": 1, "messages": messages}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"temperature": 1}, "temperature"),
        ({"top_p": 1}, "top_p"),
        ({"top_k": 1}, "top_k"),
        ({"frequency": 1}, "frequency: Extra inputs are not permitted"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"system": [{"type": "text", "text": ""}]}, "system"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, "unique"),
    ],
)
def test_anthropic_refuses_fields(change: dict[str, Any], problem: str) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [HELLO]}
    assert check(body) == []
    found = check(body | change)
    assert len(found) == 1
    assert problem in found[0]


def test_anthropic_wants_max_tokens() -> None:
    assert check({"model": "m", "messages": [HELLO]}) == ["max_tokens: Field required"]


def calls(*ids: str) -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": "clock", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "tool_calls": made}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "empty array"),
        ([HELLO, {"role": "tool", "tool_call_id": "a", "content": "x"}], "preceeding message with 'tool_calls'"),
        ([HELLO, calls("a"), HELLO], "did not have response messages: a"),
        ([HELLO, calls("a")], "did not have response messages: a"),
        ([HELLO, calls("a", "a")], "Duplicate"),
        ([{"role": "user", "content": None}], "expected a string"),
        ([{"role": "robot", "content": "x"}], "Invalid value: 'robot'"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "b", "arguments": {}}}]}],
            "expected a",
        ),
    ],
)
def test_chat_refuses(messages: Any, problem: str) -> None:
    assert any(problem in one for one in check_chat({"model": "m", "messages": messages}))


CALL = {"type": "function_call", "call_id": "a", "name": "clock", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "noon"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([], "non-empty"),
        ([HELLO, OUTPUT], "No tool call found for function call output with call_id a."),
        ([HELLO, OUTPUT, CALL], "No tool call found"),
        ([HELLO, CALL], "No tool output found for function call a."),
        ([HELLO, CALL, CALL, OUTPUT], "Duplicate"),
        ([HELLO, {**CALL, "arguments": {}}, OUTPUT], "expected a string"),
        ([HELLO, CALL, {**OUTPUT, "output": {"time": 1}}], "Invalid type for 'output'"),
        ([HELLO, REASONING, CALL, OUTPUT], "Items are not persisted"),
        ([HELLO, {**REASONING, "encrypted_content": "x"}, CALL, OUTPUT], "could not be verified"),
        ([HELLO, {**REASONING, "encrypted_content": "x"}], "without its required following item"),
        ([{"role": "user", "content": ""}], "non-empty content"),
    ],
)
def test_responses_refuses(items: Any, problem: str) -> None:
    assert any(problem in one for one in check_responses({"model": "m", "input": items}))


async def test_a_mistake_is_answered_with_400_and_noted() -> None:
    async with ModelApi() as api:
        with pytest.raises(anthropic.BadRequestError, match="without `tool_result`"):
            await ask_claude(api, [HELLO, use("a"), HELLO])
        with pytest.raises(openai.BadRequestError, match="did not have response messages"):
            await ask_chat(api, [HELLO, calls("a"), HELLO])
        with pytest.raises(openai.BadRequestError, match="No tool output found"):
            await ask_responses(api, [HELLO, CALL])
        assert len(api.problems) == 3
        assert [one.outcome for one in api.requests] == ["refused"] * 3


async def test_a_lenient_server_notes_and_answers() -> None:
    async with ModelApi(strict=False) as api:
        assert (await ask_claude(api, [HELLO, use("a"), HELLO])).stop_reason == "end_turn"
        assert len(api.problems) == 1


async def test_a_body_that_is_no_json_and_a_missing_or_wrong_key() -> None:
    async with ModelApi(keys={"good"}) as api, httpx2.AsyncClient(base_url=api.url) as client:
        broken = await client.post("/v1/messages", content=b"{", headers={"x-api-key": "good"})
        assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")
        for headers in ({}, {"x-api-key": "bad"}, {"authorization": "Bearer bad"}):
            refused = await client.post("/v1/responses", json={"model": "m", "input": "x"}, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        taken = await client.post(
            "/v1/responses", json={"model": "m", "input": "x"}, headers={"authorization": "Bearer good"}
        )
        assert taken.status_code == 200
