"""The Gemini wire of the stand-in, in the shapes that Google documents and the gemini CLI takes."""

import json
from typing import Any

import httpx2
import pytest

from tests.support.model_api import Call, ModelApi, Script, Think, cut, error_event, refuse, reply, rule, script
from tests.support.model_api.script import Stop

WEATHER = script(
    rule("weather", reply(Think("Where?"), "I look.", Call("forecast", {"town": "Oslo"})), "It is {result}.")
)
HELLO = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}


async def post(api: ModelApi, body: Any, verb: str = "streamGenerateContent?alt=sse") -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=api.url, headers={"x-goog-api-key": "fake"}) as client:
        return await client.post(f"/v1beta/models/gemini-2.5-flash:{verb}", json=body)


async def stream(api: ModelApi, body: Any) -> list[dict[str, Any]]:
    answer = await post(api, body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]


def parts(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]


async def test_a_tool_is_called_and_its_result_is_answered() -> None:
    asked: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "the weather?"}]}]
    async with ModelApi(WEATHER) as api:
        first = await stream(api, {"contents": asked, "tools": [{"functionDeclarations": [{"name": "forecast"}]}]})
        thought, said, called = parts(first)
        assert (thought, said) == ({"text": "Where?", "thought": True}, {"text": "I look."})
        assert (called["functionCall"]["name"], called["functionCall"]["args"]) == ("forecast", {"town": "Oslo"})
        assert first[-1]["candidates"][0]["finishReason"] == "STOP"
        result = {"name": "forecast", "response": {"output": "sunny"}}
        asked += [{"role": "model", "parts": [called]}, {"role": "user", "parts": [{"functionResponse": result}]}]
        last = (await post(api, {"contents": asked}, "generateContent")).json()
        assert last["candidates"][0]["content"] == {"role": "model", "parts": [{"text": "It is sunny."}]}
        assert last["modelVersion"] == "gemini-2.5-flash"
        usage = last["usageMetadata"]
        assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"] > 0
        assert [one.conversation.rounds for one in api.requests if one.conversation] == [0, 1]
        assert api.problems == []


async def test_tokens_are_counted() -> None:
    async with ModelApi() as api:
        plain = (await post(api, HELLO, "countTokens")).json()
        wrapped = (await post(api, {"generateContentRequest": HELLO}, "countTokens")).json()
        assert plain == wrapped == {"totalTokens": 12}


@pytest.mark.parametrize(
    ("stop", "reason"), [("end", "STOP"), ("length", "MAX_TOKENS"), ("filter", "PROHIBITED_CONTENT")]
)
async def test_how_an_answer_stops(stop: Stop, reason: str) -> None:
    async with ModelApi(script(rule(None, reply("x", stop=stop)))) as api:
        assert (await stream(api, HELLO))[-1]["candidates"][0]["finishReason"] == reason


async def test_errors_have_the_shape_of_google() -> None:
    async with ModelApi() as api:
        api.fail(refuse("rate_limited", retry_after=2), error_event("overloaded", after=1), cut(10))
        refused = await post(api, HELLO)
        retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"}
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["status"]) == (429, 429, "RESOURCE_EXHAUSTED")
        assert error["details"] == [retry]
        assert (await stream(api, HELLO))[-1]["error"]["status"] == "UNAVAILABLE"
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(api, HELLO)


async def test_a_request_without_a_key_is_refused() -> None:
    async with ModelApi() as api, httpx2.AsyncClient() as client:
        answer = await client.post(f"{api.url}/v1beta/models/m:generateContent", json=HELLO)
        assert (answer.status_code, answer.json()["error"]["status"]) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"contents": []}, "contents is not specified"),
        ({**HELLO, "max_tokens": 5}, 'Unknown name "max_tokens"'),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "valid role"),
        ({"contents": [{"role": "user", "parts": []}]}, "must not be empty"),
        ({"contents": [{"role": "model", "parts": [{"functionCall": {"name": "a"}}]}]}, "function response parts"),
    ],
)
async def test_mistakes_are_refused_or_noted(body: Any, problem: str) -> None:
    async with ModelApi() as api:
        answer = await post(api, body)
        assert (answer.status_code, problem in answer.json()["error"]["message"]) == (400, True)
    async with ModelApi(strict=False) as api:
        assert (await post(api, body)).status_code == 200
        assert problem in api.problems[0]


async def test_json_that_a_program_wants_for_itself_fits_its_schema_and_follows_no_rule() -> None:
    kind = {"type": "STRING", "enum": ["user", "model"]}
    schema = {"type": "OBJECT", "properties": {"reasoning": {"type": "STRING"}, "next_speaker": kind}}
    wanted = {**HELLO, "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}}
    async with ModelApi(script(rule(None, "by the script", faults=[refuse("overloaded")]))) as api:
        side = (await post(api, wanted, "generateContent")).json()
        told = json.loads(side["candidates"][0]["content"]["parts"][0]["text"])
        assert told == {"reasoning": "stand-in", "next_speaker": "user"}
        assert api.requests[0].side
        assert (await post(api, HELLO)).status_code == 503


async def test_a_canned_answer_is_streamed_too() -> None:
    async with ModelApi(Script(), deltas=3) as api:
        assert parts(await stream(api, HELLO)) == [{"text": "word "}] * 3
