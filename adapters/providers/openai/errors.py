"""What the openai SDK raises, as a ProviderError of a class. Texts of the vendor are scrubbed and cut; those about the
key are never shown, for they may hold parts of it."""

from typing import Final

import openai

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.credentials import Credentials
from adapters.providers.wire import BY_STATUS, StreamFailedError, is_broken_connection, retry_after

_BY_CODE: Final = {
    "insufficient_quota": ErrorClass.QUOTA,
    "billing_hard_limit_reached": ErrorClass.QUOTA,
    "billing_not_active": ErrorClass.QUOTA,
    "context_length_exceeded": ErrorClass.CONTEXT_TOO_LONG,
    "rate_limit_exceeded": ErrorClass.RATE_LIMIT,
    "invalid_api_key": ErrorClass.AUTH,
}
# In the middle of a stream there is no status; what is not said to be the request's fault may pass.
_FAULTS: Final = ("invalid_", "image_", "unsupported_", "empty_image", "bio_policy", "misalignment_", "data_residency_")
# Compatible servers have no codes, or codes of their own.
_TOO_LONG: Final = ("context length", "context window", "context size", "prompt is too long", "input is too long")


def translate(error: Exception, credentials: Credentials) -> ProviderError:
    match error:
        case ProviderError():
            return error
        case openai.APIStatusError():
            return _told(
                _class_of(error.status_code, error.code, error.type, _text(error)),
                str(error.status_code),
                _text(error),
                credentials,
                retry_after(error.response.headers),
            )
        case openai.APITimeoutError():
            return ProviderError("the server did not answer in time, or the connection was lost", ErrorClass.TRANSPORT)
        case openai.APIConnectionError():
            reason = type(error.__cause__ or error).__name__
            return ProviderError(f"there is no connection to the server ({reason})", ErrorClass.TRANSPORT)
        case openai.APIResponseValidationError():
            return ProviderError("the server's answer does not read", ErrorClass.TRANSPORT)
        case openai.APIError() | StreamFailedError():
            type_ = error.type if isinstance(error, openai.APIError) else None
            error_class = _class_of(None, error.code, type_, _text(error))
            return _told(error_class, error.code or type_ or "an error", _text(error), credentials, None)
        case _ if is_broken_connection(error):
            return ProviderError(f"the connection to the server broke ({type(error).__name__})", ErrorClass.TRANSPORT)
        case _:
            return ProviderError(f"asking the server failed: {type(error).__name__}", ErrorClass.INTERNAL)


def _told(
    error_class: ErrorClass, answered: str, text: str, credentials: Credentials, wait: float | None
) -> ProviderError:
    if error_class is ErrorClass.AUTH:
        return ProviderError(f"the server does not accept the key in {credentials.variable} for this", error_class)
    waits = error_class in (ErrorClass.RATE_LIMIT, ErrorClass.TRANSPORT)
    return ProviderError(
        f"the server answered {credentials.told(answered)}: {credentials.told(text)}",
        error_class,
        wait if waits else None,
    )


def _text(error: openai.APIError | StreamFailedError) -> str:
    body = getattr(error, "body", None)
    text = body.get("message") if isinstance(body, dict) else None
    return str(text or error.message)


def _class_of(status: int | None, code: str | None, type_: str | None, text: str) -> ErrorClass:
    """The vendor's own word first, then the status; the text last, for it may change any day."""
    if status in (401, 403):
        return ErrorClass.AUTH
    for word in (code, type_):
        if word in _BY_CODE:
            return _BY_CODE[word]
    if found := BY_STATUS.get(status or 0):
        return found
    if any(words in text.lower() for words in _TOO_LONG):
        return ErrorClass.CONTEXT_TOO_LONG
    if status is None:
        ours = type_ == "invalid_request_error" or (code or "").startswith(_FAULTS)
        return ErrorClass.INVALID_REQUEST if ours else ErrorClass.TRANSPORT
    return ErrorClass.INVALID_REQUEST if 400 <= status < 500 else ErrorClass.TRANSPORT
