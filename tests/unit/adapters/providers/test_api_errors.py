"""What the SDKs raise, judged: class by class, and with nothing of the key in it."""

import json
import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import aiohttp
import anthropic
import httpx2
import openai
import pytest

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.anthropic.errors import translate as from_anthropic
from adapters.providers.credentials import Credentials
from adapters.providers.openai.errors import translate as from_openai
from adapters.providers.wire import StreamFailedError, allowances, duration, retry_after

pytestmark = pytest.mark.spec("M9")
KEY = "sk-secret-123456"
MINE = Credentials("SOME_API_KEY", "http://127.0.0.1", KEY)
REQUEST = httpx2.Request("POST", "http://127.0.0.1/v1/messages")


def answer(status: int, headers: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers=headers or {}, request=REQUEST)


def anthropic_status(status: int, type_: str, text: str = "no", code: str | None = None) -> anthropic.APIStatusError:
    error: dict[str, Any] = {"type": type_, "message": text, **({"details": {"error_code": code}} if code else {})}
    client = anthropic.AsyncAnthropic(api_key="x", base_url="http://127.0.0.1")
    body = {"type": "error", "error": error}
    return client._make_status_error(json.dumps(body), body=body, response=answer(status))


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (anthropic_status(400, "invalid_request_error"), ErrorClass.INVALID_REQUEST),
        (anthropic_status(400, "invalid_request_error", "prompt is too long: 9 > 8"), ErrorClass.CONTEXT_TOO_LONG),
        (anthropic_status(400, "invalid_request_error", "Your credit balance is too low"), ErrorClass.QUOTA),
        (anthropic_status(401, "authentication_error"), ErrorClass.AUTH),
        (anthropic_status(402, "billing_error"), ErrorClass.QUOTA),
        (anthropic_status(403, "permission_error"), ErrorClass.AUTH),
        (anthropic_status(404, "not_found_error"), ErrorClass.INVALID_REQUEST),
        (anthropic_status(408, "timeout_error"), ErrorClass.TRANSPORT),
        (anthropic_status(409, "conflict_error"), ErrorClass.TRANSPORT),
        (anthropic_status(413, "request_too_large"), ErrorClass.INVALID_REQUEST),
        (anthropic_status(413, "request_too_large", "Prompt is too long"), ErrorClass.CONTEXT_TOO_LONG),
        (anthropic_status(422, "invalid_request_error"), ErrorClass.INVALID_REQUEST),
        (anthropic_status(429, "rate_limit_error"), ErrorClass.RATE_LIMIT),
        (anthropic_status(429, "rate_limit_error", code="enforced_spend_limit_reached"), ErrorClass.QUOTA),
        (anthropic_status(500, "api_error"), ErrorClass.TRANSPORT),
        (anthropic_status(503, "api_error"), ErrorClass.TRANSPORT),
        (anthropic_status(529, "overloaded_error"), ErrorClass.TRANSPORT),
        (anthropic_status(200, "overloaded_error"), ErrorClass.TRANSPORT),
        (anthropic_status(200, "rate_limit_error"), ErrorClass.RATE_LIMIT),
        (anthropic_status(200, "authentication_error"), ErrorClass.AUTH),
        (anthropic_status(200, "billing_error"), ErrorClass.QUOTA),
        (anthropic_status(200, "invalid_request_error", "prompt is too long"), ErrorClass.CONTEXT_TOO_LONG),
        (anthropic.APIConnectionError(request=REQUEST), ErrorClass.TRANSPORT),
        (anthropic.APITimeoutError(REQUEST), ErrorClass.TRANSPORT),
        (anthropic.APIResponseValidationError(answer(200), None), ErrorClass.TRANSPORT),
        (httpx2.ReadError("gone"), ErrorClass.TRANSPORT),
        (httpx2.RemoteProtocolError("gone"), ErrorClass.TRANSPORT),
        (aiohttp.ClientPayloadError("gone"), ErrorClass.TRANSPORT),
        (TimeoutError(), ErrorClass.TRANSPORT),
        (ConnectionResetError(), ErrorClass.TRANSPORT),
        (ZeroDivisionError(f"with {KEY}"), ErrorClass.INTERNAL),
    ],
    ids=repr,
)
def test_anthropic_errors_have_a_class(error: Exception, error_class: ErrorClass) -> None:
    _judge(from_anthropic(error, MINE), error_class)


def openai_status(status: int, code: str | None, type_: str | None = None, text: str = "no") -> openai.APIStatusError:
    client = openai.AsyncOpenAI(api_key="x", base_url="http://127.0.0.1")
    body = {"error": {"message": text, "type": type_, "param": None, "code": code}}
    return client._make_status_error(json.dumps(body), body=body, response=answer(status))


def in_stream(code: str | None, type_: str | None = None, text: str = "no") -> openai.APIError:
    return openai.APIError(text, REQUEST, body={"message": text, "type": type_, "code": code})


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (openai_status(400, None), ErrorClass.INVALID_REQUEST),
        (openai_status(400, "context_length_exceeded"), ErrorClass.CONTEXT_TOO_LONG),
        (openai_status(400, None, text="This model's maximum context length is 8"), ErrorClass.CONTEXT_TOO_LONG),
        (openai_status(401, "invalid_api_key"), ErrorClass.AUTH),
        (openai_status(402, None), ErrorClass.QUOTA),
        (openai_status(403, None), ErrorClass.AUTH),
        (openai_status(404, "model_not_found"), ErrorClass.INVALID_REQUEST),
        (openai_status(408, None), ErrorClass.TRANSPORT),
        (openai_status(409, None), ErrorClass.TRANSPORT),
        (openai_status(413, None), ErrorClass.INVALID_REQUEST),
        (openai_status(422, None), ErrorClass.INVALID_REQUEST),
        (openai_status(429, "rate_limit_exceeded", "requests"), ErrorClass.RATE_LIMIT),
        (openai_status(429, None), ErrorClass.RATE_LIMIT),
        (openai_status(429, "insufficient_quota"), ErrorClass.QUOTA),
        (openai_status(429, None, "insufficient_quota"), ErrorClass.QUOTA),
        (openai_status(500, "server_error"), ErrorClass.TRANSPORT),
        (openai_status(503, None), ErrorClass.TRANSPORT),
        (in_stream("server_error"), ErrorClass.TRANSPORT),
        (in_stream(None), ErrorClass.TRANSPORT),
        (in_stream("rate_limit_exceeded"), ErrorClass.RATE_LIMIT),
        (in_stream("insufficient_quota"), ErrorClass.QUOTA),
        (in_stream("context_length_exceeded"), ErrorClass.CONTEXT_TOO_LONG),
        (in_stream(None, "invalid_request_error"), ErrorClass.INVALID_REQUEST),
        (StreamFailedError("no", "server_is_overloaded"), ErrorClass.TRANSPORT),
        (StreamFailedError("no", "invalid_image"), ErrorClass.INVALID_REQUEST),
        (StreamFailedError("no"), ErrorClass.TRANSPORT),
        (openai.APIConnectionError(request=REQUEST), ErrorClass.TRANSPORT),
        (openai.APITimeoutError(REQUEST), ErrorClass.TRANSPORT),
        (openai.APIResponseValidationError(answer(200), None), ErrorClass.TRANSPORT),
        (httpx2.ReadError("gone"), ErrorClass.TRANSPORT),
        (aiohttp.ClientPayloadError("gone"), ErrorClass.TRANSPORT),
        (ZeroDivisionError(f"with {KEY}"), ErrorClass.INTERNAL),
    ],
    ids=repr,
)
def test_openai_errors_have_a_class(error: Exception, error_class: ErrorClass) -> None:
    _judge(from_openai(error, MINE), error_class)


def _judge(made: ProviderError, error_class: ErrorClass) -> None:
    assert made.error_class is error_class
    assert KEY not in str(made)
    again = pickle.loads(pickle.dumps(made))
    assert (str(again), again.error_class) == (str(made), error_class)


def test_texts_of_vendors_are_scrubbed_before_they_are_cut() -> None:
    padding = "x" * 290
    for made in (
        from_anthropic(anthropic_status(400, "invalid_request_error", f"{padding} {KEY} and more"), MINE),
        from_openai(openai_status(400, None, text=f"{padding} {KEY} and more"), MINE),
    ):
        assert KEY[:6] not in str(made)
        assert len(str(made)) < 350


def test_what_is_said_of_keys_is_our_own_text() -> None:
    for made in (
        from_anthropic(anthropic_status(401, "authentication_error", "sk-sec*** is wrong"), MINE),
        from_openai(openai_status(401, "invalid_api_key", text="sk-sec*** is wrong"), MINE),
    ):
        assert "sk-" not in str(made)
        assert "SOME_API_KEY" in str(made)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "x", "retry-after": "7"}, 7.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_date_to_come_back() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert retry_after({"retry-after": date}) == pytest.approx(100, abs=5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360),
        ("1h2m3.5s", 3723.5),
        ("20ms", 0.02),
        ("1s", 1),
        ("12", 12),
        ("", None),
        ("soon", None),
        ("1s?", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_half_an_allowance_is_none() -> None:
    assert allowances({"x-ratelimit-limit-requests": "5", "x-ratelimit-remaining-requests": "x"}) == ()
