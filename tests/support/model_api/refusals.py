"""The vendors' own words for what they refuse: status, headers and JSON body of each kind of error."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.model_api.conversation import WireName

ErrorName = Literal[
    "rate_limited",  # wait, and try again
    "quota",  # no money left: trying again does not help
    "too_long",  # the prompt does not fit the context
    "invalid",
    "unauthenticated",
    "billing",
    "forbidden",
    "no_model",
    "too_large",  # the body, in bytes
    "server_error",
    "unavailable",
    "timeout",
    "overloaded",
]
# How a Responses stream tells of an error: as OpenAI does, as it documents, or by a response that has failed.
Form = Literal["nested", "flat", "failed"]


@dataclass(frozen=True)
class Refusal:
    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return json.dumps(self.body).encode()


_ANTHROPIC: dict[ErrorName, tuple[int, str, str]] = {
    "rate_limited": (
        429,
        "rate_limit_error",
        "This request would exceed the rate limit for your organization of 50 requests per minute.",
    ),
    "quota": (429, "rate_limit_error", "Your organization has reached its monthly API usage threshold."),
    "too_long": (400, "invalid_request_error", "prompt is too long: 1000123 tokens > 1000000 maximum"),
    "invalid": (400, "invalid_request_error", "messages: Field required"),
    "unauthenticated": (401, "authentication_error", "invalid x-api-key"),
    "billing": (402, "billing_error", "Your credit balance is too low to access the Anthropic API."),
    "forbidden": (403, "permission_error", "Your API key does not have permission to use the specified resource."),
    "no_model": (404, "not_found_error", "model: no-such-model"),
    "too_large": (413, "request_too_large", "Request exceeds the maximum size"),
    "server_error": (500, "api_error", "Internal server error"),
    "unavailable": (503, "api_error", "Service unavailable"),
    "timeout": (504, "timeout_error", "Request timed out"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
}

_INVALID = "invalid_request_error"
_OPENAI: dict[ErrorName, tuple[int, str, str | None, str]] = {
    "rate_limited": (
        429,
        "requests",
        "rate_limit_exceeded",
        "Rate limit reached for the model on requests per min (RPM): Limit 3, Used 3, Requested 1.",
    ),
    "quota": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "too_long": (
        400,
        _INVALID,
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    "invalid": (400, _INVALID, None, "Invalid request."),
    "unauthenticated": (401, _INVALID, "invalid_api_key", "Incorrect API key provided: fake."),
    "billing": (429, "insufficient_quota", "billing_hard_limit_reached", "Billing hard limit has been reached."),
    "forbidden": (403, _INVALID, "model_access_denied", "Project does not have access to the model."),
    "no_model": (404, _INVALID, "model_not_found", "The model does not exist or you do not have access to it."),
    "too_large": (413, _INVALID, "request_too_large", "The request body is too large."),
    "server_error": (
        500,
        "server_error",
        "server_error",
        "The server had an error while processing your request. Sorry about that!",
    ),
    "unavailable": (503, "server_error", None, "The server is temporarily unable to handle the request."),
    "timeout": (504, "server_error", None, "The request timed out."),
    "overloaded": (
        503,
        "service_unavailable_error",
        "server_is_overloaded",
        "Our servers are currently overloaded. Please try again later.",
    ),
}
# Google tells a wrong key with 400 on this API, and 401 of other credentials; programs handle both as refused.
_GEMINI: dict[ErrorName, tuple[int, str, str]] = {
    "rate_limited": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "quota": (
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "too_long": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "invalid": (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
    "unauthenticated": (401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
    "billing": (403, "PERMISSION_DENIED", "This API method requires billing to be enabled."),
    "forbidden": (403, "PERMISSION_DENIED", "The caller does not have permission"),
    "no_model": (404, "NOT_FOUND", "models/no-such-model is not found for API version v1beta."),
    "too_large": (413, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."),
    "server_error": (500, "INTERNAL", "An internal error has occurred. Please retry."),
    "unavailable": (503, "UNAVAILABLE", "The service is currently unavailable."),
    "timeout": (504, "DEADLINE_EXCEEDED", "The request timed out. Please try again."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
}
_RPC = "type.googleapis.com/google.rpc"
_OPENAI_PARAM: dict[WireName, str] = {"responses": "input", "chat": "messages"}


def refusal(
    wire: WireName,
    name: ErrorName,
    *,
    message: str | None = None,
    status: int | None = None,
    retry_after: float | None = None,
    headers: dict[str, str] | None = None,
) -> Refusal:
    extra = dict(headers or {})
    if retry_after is not None:
        extra.setdefault("retry-after", f"{retry_after:g}")
    if wire == "gemini":
        usual, body = _gemini(name, message, status, retry_after)
    else:
        usual, body = _anthropic(name, message) if wire == "anthropic" else _openai(wire, name, message)
    return Refusal(status or usual, body, extra)


def error_object(wire: WireName, name: ErrorName) -> dict[str, Any]:
    """Only the inner object, as it stands in events of a stream."""
    found: dict[str, Any] = refusal(wire, name).body["error"]
    return found


def _anthropic(name: ErrorName, message: str | None) -> tuple[int, dict[str, Any]]:
    status, kind, usual = _ANTHROPIC[name]
    error: dict[str, Any] = {"type": kind, "message": message or usual}
    if name == "quota":
        error["details"] = {"error_code": "enforced_spend_limit_reached"}
    return status, {"type": "error", "error": error, "request_id": "req_011CStandIn"}


def _openai(wire: WireName, name: ErrorName, message: str | None) -> tuple[int, dict[str, Any]]:
    status, kind, code, usual = _OPENAI[name]
    param = _OPENAI_PARAM[wire] if name == "too_long" else None
    return status, {"error": {"message": message or usual, "type": kind, "param": param, "code": code}}


def _gemini(
    name: ErrorName, message: str | None, status: int | None, retry_after: float | None
) -> tuple[int, dict[str, Any]]:
    """The number stands in the body too, and so does how long to wait."""
    usual, kind, text = _GEMINI[name]
    details: list[dict[str, Any]] = []
    if name == "quota":
        day = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel", "quotaMetric": "generate_requests"}
        details.append({"@type": f"{_RPC}.QuotaFailure", "violations": [day]})
    if retry_after is not None:
        details.append({"@type": f"{_RPC}.RetryInfo", "retryDelay": f"{retry_after:g}s"})
    error: dict[str, Any] = {"code": status or usual, "message": message or text, "status": kind}
    return usual, {"error": error | ({"details": details} if details else {})}
