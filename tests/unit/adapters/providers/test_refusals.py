"""Errors of models' servers, as programs behind the key proxy get them: their class, and what is told of them."""

import json

import pytest

from adapters.errors import ErrorClass
from adapters.providers.cli.refusals import refusal
from adapters.providers.credentials import Credentials

KEY = "fake-key-1234567890"
CREDENTIALS = Credentials("SOME_API_KEY", "https://example.org", KEY)


def body(message: str, **more: str) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@pytest.mark.spec("P15", "F9")
@pytest.mark.parametrize(
    ("status", "said", "error_class"),
    [
        (401, body("Incorrect API key provided: fake-key-12****7890"), ErrorClass.AUTH),
        (403, b"", ErrorClass.AUTH),
        (429, body("Slow down", code="rate_limit_exceeded"), ErrorClass.RATE_LIMIT),
        (429, body("You exceeded your current quota", code="insufficient_quota"), ErrorClass.QUOTA),
        (400, body("Your credit balance is too low"), ErrorClass.QUOTA),
        (400, body("prompt is too long: 210000 tokens > 200000 maximum"), ErrorClass.CONTEXT_TOO_LONG),
        (400, body("too long", code="context_length_exceeded"), ErrorClass.CONTEXT_TOO_LONG),
        (400, body("tools.0.name: this is no name"), ErrorClass.INVALID_REQUEST),
        (404, body("there is no such model"), ErrorClass.INVALID_REQUEST),
        (500, body("prompt is too long"), ErrorClass.TRANSPORT),
        (529, b"<html>overloaded", ErrorClass.TRANSPORT),
        (500, b'[{"error": {"message": "a list"}}]', ErrorClass.TRANSPORT),
        (502, b"\xff\xfe", ErrorClass.TRANSPORT),
        (500, b'{"error": 7}', ErrorClass.TRANSPORT),
    ],
)
def test_errors_have_the_class_that_decides_over_trying_again(
    status: int, said: bytes, error_class: ErrorClass
) -> None:
    error = refusal(status, {"retry-after": "7"}, said, CREDENTIALS)
    assert error.error_class is error_class
    assert str(status) in error.message
    passes = error_class in (ErrorClass.RATE_LIMIT, ErrorClass.TRANSPORT)
    assert error.retry_after == (7.0 if passes else None)


@pytest.mark.spec("F9")
def test_nothing_of_a_key_is_told() -> None:
    for status in (400, 401, 403, 500):
        error = refusal(status, {}, body(f"bad key {KEY}, or fake-key-12"), CREDENTIALS)
        assert KEY not in error.message
    assert "fake-key" not in refusal(401, {}, body(f"bad key {KEY}, or fake-key-12"), CREDENTIALS).message
    assert "SOME_API_KEY" in refusal(401, {}, b"", CREDENTIALS).message
