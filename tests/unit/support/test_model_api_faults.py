"""How the stand-in model server misbehaves, as the vendors' SDKs see it."""

import json
from collections.abc import AsyncIterable, Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.support.model_api import (
    Fault,
    Limits,
    ModelApi,
    cut,
    drip,
    drop,
    error_event,
    garbage,
    refuse,
    reply,
    rule,
    script,
    stall,
    truncate,
)
from tests.support.model_api.delivery import steps
from tests.support.model_api.limits import duration
from tests.support.model_api.refusals import ErrorName
from tests.support.model_clients import Speaker, ask_chat, ask_claude, ask_responses, every_wire, openai_client


async def until_error(items: AsyncIterable[Any]) -> tuple[list[Any], Exception | None]:
    """What came, and what ended it before its time."""
    came: list[Any] = []
    try:
        async for item in items:
            came.append(item)
    except (httpx2.HTTPError, openai.APIError) as error:
        return came, error
    return came, None


@pytest.mark.parametrize(
    ("name", "error", "status", "kind"),
    [
        ("rate_limited", anthropic.RateLimitError, 429, "rate_limit_error"),
        ("quota", anthropic.RateLimitError, 429, "rate_limit_error"),
        ("too_long", anthropic.BadRequestError, 400, "invalid_request_error"),
        ("invalid", anthropic.BadRequestError, 400, "invalid_request_error"),
        ("unauthenticated", anthropic.AuthenticationError, 401, "authentication_error"),
        ("billing", anthropic.APIStatusError, 402, "billing_error"),
        ("forbidden", anthropic.PermissionDeniedError, 403, "permission_error"),
        ("no_model", anthropic.NotFoundError, 404, "not_found_error"),
        ("too_large", anthropic.APIStatusError, 413, "request_too_large"),
        ("server_error", anthropic.InternalServerError, 500, "api_error"),
        ("unavailable", anthropic.APIStatusError, 503, "api_error"),
        ("timeout", anthropic.APIStatusError, 504, "timeout_error"),
        ("overloaded", anthropic.APIStatusError, 529, "overloaded_error"),
    ],
)
async def test_anthropic_refuses_in_its_own_words(
    name: ErrorName, error: type[anthropic.APIStatusError], status: int, kind: str
) -> None:
    async with ModelApi() as api:
        api.fail(refuse(name))
        with pytest.raises(error) as caught:
            await ask_claude(api, "hello")
        assert (caught.value.status_code, caught.value.type) == (status, kind)
        assert caught.value.request_id == "req_00000001"
        assert [(one.outcome, one.fault, one.status) for one in api.requests] == [("refused", "refuse", status)]


@pytest.mark.parametrize(
    ("name", "error", "status", "code"),
    [
        ("rate_limited", openai.RateLimitError, 429, "rate_limit_exceeded"),
        ("quota", openai.RateLimitError, 429, "insufficient_quota"),
        ("too_long", openai.BadRequestError, 400, "context_length_exceeded"),
        ("invalid", openai.BadRequestError, 400, None),
        ("unauthenticated", openai.AuthenticationError, 401, "invalid_api_key"),
        ("forbidden", openai.PermissionDeniedError, 403, "model_access_denied"),
        ("no_model", openai.NotFoundError, 404, "model_not_found"),
        ("too_large", openai.APIStatusError, 413, "request_too_large"),
        ("server_error", openai.InternalServerError, 500, "server_error"),
        ("overloaded", openai.InternalServerError, 503, "server_is_overloaded"),
    ],
)
async def test_openai_refuses_in_its_own_words(
    name: ErrorName, error: type[openai.APIStatusError], status: int, code: str | None
) -> None:
    async with ModelApi() as api:
        api.fail(refuse(name, times=2))
        for ask in (ask_chat, ask_responses):
            with pytest.raises(error) as caught:
                await ask(api, "hello")
            assert (caught.value.status_code, caught.value.code) == (status, code)


async def test_an_anthropic_quota_is_told_by_its_code_and_a_long_prompt_by_its_words() -> None:
    async with ModelApi() as api:
        api.fail(refuse("quota"), refuse("too_long"))
        with pytest.raises(anthropic.RateLimitError) as caught:
            await ask_claude(api, "hello")
        assert caught.value.error_code == "enforced_spend_limit_reached"
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
            await ask_claude(api, "hello")


@pytest.mark.parametrize("size", [0, 1, 57, 400])
async def test_a_connection_is_cut_after_exactly_so_many_bytes(size: int) -> None:
    async with ModelApi() as api, httpx2.AsyncClient() as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "x" * 500}], "stream": True}
        api.fail(cut(size))
        path, headers = f"{api.openai_url}/chat/completions", {"authorization": "Bearer k"}
        async with client.stream("POST", path, json=body, headers=headers) as response:
            got, error = await until_error(response.aiter_raw())
        assert isinstance(error, httpx2.RemoteProtocolError)
        assert len(b"".join(got)) == size


async def test_a_truncated_stream_ends_in_good_order_without_its_end() -> None:
    async with ModelApi() as api:
        api.fail(truncate(700, wire="anthropic"), truncate(600, wire="chat"), truncate(wire="responses"))
        assert (await ask_claude(api, "hello")).stop_reason is None
        with pytest.raises(RuntimeError, match=r"response.completed"):
            await ask_responses(api, "hello")
        async with openai_client(api) as client:
            chunks = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hello"}], stream=True
            )
            assert [c.choices[0].finish_reason async for c in chunks if c.choices][-1] is None


@every_wire
async def test_a_connection_dropped_without_a_word(ask: Speaker) -> None:
    async with ModelApi() as api:
        api.fail(drop())
        with pytest.raises((anthropic.APIConnectionError, openai.APIConnectionError)):
            await ask(api, "hello")
        assert await ask(api, "hello") == "You said: hello"


@every_wire
async def test_broken_json_in_a_stream(ask: Speaker) -> None:
    async with ModelApi() as api:
        api.fail(garbage("json"))
        with pytest.raises(json.JSONDecodeError):
            await ask(api, "hello")


async def test_a_page_of_a_proxy_in_place_of_a_stream() -> None:
    async with ModelApi() as api, httpx2.AsyncClient() as client:
        api.fail(garbage("html"))
        body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "stream": True}
        page = await client.post(f"{api.url}/v1/messages", json=body, headers={"x-api-key": "k"})
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html")
        assert page.text.startswith("<html>")


@every_wire
async def test_a_drip_of_torn_bytes_is_the_same_answer(ask: Speaker) -> None:
    async with ModelApi() as api:
        api.fail(drip(pause=0, size=7))
        assert await ask(api, "schön, 世界") == "You said: schön, 世界"


@pytest.mark.parametrize("form", ["nested", "flat", "failed"])
async def test_the_three_forms_of_an_error_in_a_responses_stream(form: Any) -> None:
    async with ModelApi() as api, openai_client(api) as client:
        api.fail(error_event("rate_limited", after=4, form=form))
        stream = await client.responses.create(model="m", input="hello", stream=True)
        seen, error = await until_error(stream)
        told: dict[str, Any] = {"nested": error, "flat": seen[-1], "failed": getattr(seen[-1], "response", None)}
        assert isinstance(error, openai.APIError) == (form == "nested")
        assert len(seen) == (4 if form == "nested" else 5)
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
        failure = told[form].error if form == "failed" else told[form]
        assert failure.code == "rate_limit_exceeded"


async def test_a_fault_can_be_for_one_wire_one_text_or_a_predicate() -> None:
    async with ModelApi() as api:
        api.fail(refuse("overloaded", wire="chat", times=None), refuse("server_error", when="^bad"))
        api.fail(refuse("no_model"), predicate=lambda asked: asked.model == "gpt-6-luna")
        assert (await ask_claude(api, "good")).stop_reason == "end_turn"
        refused: list[tuple[int, Callable[[ModelApi, str], Any], str]] = [
            (503, ask_chat, "good"),
            (500, ask_responses, "bad"),
            (404, ask_responses, "good"),
        ]
        for status, ask, text in refused:
            with pytest.raises(openai.APIStatusError) as caught:
                await ask(api, text)
            assert caught.value.status_code == status
        assert (await ask_responses(api, "good")).status == "completed"


async def test_scripted_faults_befall_the_first_uses_of_a_reply() -> None:
    told = script(
        rule("twice", reply("done", faults=(refuse("overloaded"), refuse("server_error")))),
        rule(None, "well", faults=[refuse("overloaded", each=True)]),
    )
    async with ModelApi(told) as api:
        for text, status in [("twice", 529), ("twice", 500), ("a", 529), ("b", 529)]:
            with pytest.raises(anthropic.APIStatusError) as caught:
                await ask_claude(api, text)
            assert caught.value.status_code == status
        said = [(await ask_claude(api, text)).content[0].text for text in ("twice", "a", "b")]
        assert said == ["done", "well", "well"]


async def test_rate_limit_headers() -> None:
    limits = Limits(requests=50, requests_left=0, reset=360)
    async with ModelApi(limits=limits) as api:
        api.fail(refuse("rate_limited", times=2))
        with pytest.raises(anthropic.RateLimitError) as one:
            await ask_claude(api, "hello")
        assert one.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert one.value.response.headers["anthropic-ratelimit-tokens-reset"].endswith("Z")
        with pytest.raises(openai.RateLimitError) as other:
            await ask_chat(api, "hello")
        assert other.value.response.headers["x-ratelimit-limit-requests"] == "50"
        assert other.value.response.headers["x-ratelimit-reset-requests"] == "6m0s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.02, "20ms"), (1.5, "1.5s"), (60, "1m0s"), (360, "6m0s"), (3600, "1h0m0s")]
)
def test_durations_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("fault", [None, stall(5), drip(size=3)])
def test_no_byte_is_lost_or_doubled_by_what_only_delays(fault: Fault | None) -> None:
    written = [step for step in steps([b"one", b"two", b"three"], fault, 0.5) if isinstance(step, bytes)]
    assert b"".join(written) == b"onetwothree"
