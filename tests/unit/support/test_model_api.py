"""The stand-in model server, asked by the vendors' own SDKs: if they understand it, so does what we build on them."""

import anthropic
import httpx2
import openai
import pytest

from tests.support.model_api import (
    Call,
    ModelApi,
    ModelApiThread,
    Think,
    Usage,
    cut,
    error_event,
    hang,
    refuse,
    reply,
    rule,
    script,
    stall,
)
from tests.support.model_clients import (
    Speaker,
    anthropic_client,
    ask_chat,
    ask_claude,
    ask_responses,
    every_wire,
    openai_client,
)

WEATHER = script(
    rule(
        "weather",
        reply(Think("Which town?"), "Let me look.", Call("forecast", {"town": "{text}"}), Call("clock")),
        "It is {result}.",
    )
)


@every_wire
async def test_without_a_script_the_user_is_echoed(ask: Speaker) -> None:
    async with ModelApi() as api:
        assert await ask(api, "good day, 世界") == "You said: good day, 世界"
        assert api.problems == []
        assert [one.outcome for one in api.requests] == ["answered"]
        assert api.requests[0].key == "fake"


@every_wire
async def test_the_text_is_the_inner_text_of_the_last_message_element(ask: Speaker) -> None:
    given = '<messages>\n<message id="1" sender="a">no</message>\n<message id="2">1 &lt; 2</message>\n</messages>'
    async with ModelApi() as api:
        assert await ask(api, given) == "You said: 1 < 2"


async def test_a_tool_round_with_anthropic() -> None:
    async with ModelApi(WEATHER) as api:
        first = await ask_claude(api, "weather in Oslo")
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert first.stop_reason == "tool_use"
        assert first.content[2].input == {"town": "weather in Oslo"}
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": text}
            for block, text in zip(first.content[2:], ["rain", "noon"], strict=True)
        ]
        history = [
            {"role": "user", "content": "weather in Oslo"},
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]
        second = await ask_claude(api, history)
        again = await ask_claude(api, history)
        assert second.content[0].text == again.content[0].text == "It is noon."
        assert second.stop_reason == "end_turn"
        assert api.problems == []


async def test_a_tool_round_with_responses() -> None:
    async with ModelApi(WEATHER) as api:
        first = await ask_responses(api, "weather in Oslo")
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        outputs = [
            {"type": "function_call_output", "call_id": item.call_id, "output": text}
            for item, text in zip(first.output[2:], ["rain", "noon"], strict=True)
        ]
        items = [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
        second = await ask_responses(api, [{"role": "user", "content": "weather in Oslo"}, *items, *outputs])
        assert second.output_text == "It is noon."
        assert second.status == "completed"
        assert api.problems == []


async def test_a_tool_round_with_chat() -> None:
    async with ModelApi(WEATHER) as api:
        first = (await ask_chat(api, "weather in Oslo")).choices[0]
        assert first.finish_reason == "tool_calls"
        assert [call.function.name for call in first.message.tool_calls] == ["forecast", "clock"]
        assert first.message.tool_calls[0].function.arguments == '{"town": "weather in Oslo"}'
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": text}
            for call, text in zip(first.message.tool_calls, ["rain", "noon"], strict=True)
        ]
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}}
            for c in first.message.tool_calls
        ]
        asked = {"role": "user", "content": "weather in Oslo"}
        second = await ask_chat(api, [asked, {"role": "assistant", "tool_calls": calls}, *results])
        assert second.choices[0].message.content == "It is noon."
        assert second.choices[0].finish_reason == "stop"
        assert api.problems == []


async def test_all_three_without_streaming() -> None:
    async with ModelApi(WEATHER) as api, anthropic_client(api) as a, openai_client(api) as o:
        message = await a.messages.create(
            model="claude-haiku-5-5", max_tokens=10, messages=[{"role": "user", "content": "weather"}]
        )
        assert message.stop_reason == "tool_use"
        response = await o.responses.create(model="gpt-6-luna", input="hello")
        assert response.output_text == "You said: hello"
        chat = await o.chat.completions.create(model="gpt-6-luna", messages=[{"role": "user", "content": "hello"}])
        assert chat.choices[0].message.content == "You said: hello"


async def test_both_vendors_list_their_models() -> None:
    async with ModelApi() as api, anthropic_client(api) as a, openai_client(api) as o:
        assert "claude-haiku-5-5" in [model.id async for model in a.models.list()]
        assert "gpt-6-luna" in [model.id async for model in o.models.list()]


@every_wire
async def test_a_429_says_how_long_to_wait_and_lasts_as_long_as_told(ask: Speaker) -> None:
    async with ModelApi() as api:
        api.fail(refuse("rate_limited", retry_after=7, times=2))
        for _ in range(2):
            with pytest.raises((anthropic.RateLimitError, openai.RateLimitError)) as caught:
                await ask(api, "hello")
            assert isinstance(caught.value, anthropic.APIStatusError | openai.APIStatusError)
            assert caught.value.response.headers["retry-after"] == "7"
        assert await ask(api, "hello") == "You said: hello"


@every_wire
async def test_a_500(ask: Speaker) -> None:
    async with ModelApi() as api:
        api.fail(refuse("server_error", times=None))
        for _ in range(3):
            with pytest.raises((anthropic.InternalServerError, openai.InternalServerError)):
                await ask(api, "hello")
        api.heal()
        assert await ask(api, "hello") == "You said: hello"


@every_wire
@pytest.mark.parametrize("after", [0, 1, 300, None])
async def test_a_cut_connection(ask: Speaker, after: int | None) -> None:
    async with ModelApi() as api:
        api.fail(cut(after))
        with pytest.raises(Exception, match=r"(?i)connection|peer closed|incomplete"):
            await ask(api, "hello")
        assert [one.outcome for one in api.requests] == ["cut"]
        assert await ask(api, "hello") == "You said: hello"


async def test_a_client_that_gives_up_on_a_hanging_answer_is_noticed() -> None:
    async with ModelApi() as api, anthropic_client(api, timeout=0.2) as client:
        api.fail(hang(), stall(200))
        for n in (1, 2):
            with pytest.raises((anthropic.APITimeoutError, httpx2.ReadTimeout)):
                async with client.messages.stream(
                    model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}]
                ) as stream:
                    await stream.get_final_message()
            await api.arrived(n, "left")


def test_in_a_thread_a_hanging_answer_goes_on_when_released() -> None:
    with ModelApiThread() as api, openai.OpenAI(base_url=api.openai_url, api_key="fake", max_retries=0) as client:
        api.fail(stall(100))
        stream = client.responses.create(model="gpt-6-luna", input="hello", stream=True)
        api.wait(1, "hanging")
        api.release()
        assert [event.type for event in stream][-1] == "response.completed"


async def test_an_error_in_the_middle_of_a_stream() -> None:
    async with ModelApi() as api:
        api.fail(error_event("overloaded"))
        with pytest.raises(anthropic.APIStatusError) as caught:
            await ask_claude(api, "hello")
        assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")
        api.fail(error_event("server_error", wire="chat"))
        with pytest.raises(openai.APIError, match="had an error"):
            await ask_chat(api, "hello")


async def test_usage_as_scripted() -> None:
    told = script(rule(None, reply("hi", usage=Usage(input=7, output=5, cache_read=3, cache_write=2))))
    async with ModelApi(told) as api:
        usage = (await ask_claude(api, "hello")).usage
        assert (usage.input_tokens, usage.output_tokens) == (7, 5)
        assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (3, 2)
        used = (await ask_responses(api, "hello")).usage
        assert (used.input_tokens, used.input_tokens_details.cached_tokens, used.output_tokens) == (12, 3, 5)
        counted = (await ask_chat(api, "hello")).usage
        assert (counted.prompt_tokens, counted.prompt_tokens_details.cached_tokens) == (12, 3)
