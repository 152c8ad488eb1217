"""What the anthropic SDK raises, as a ProviderError of a class. Texts of the vendor are scrubbed and cut; those about
the key are never shown, for they may hold parts of it."""

from typing import Final

import anthropic

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.credentials import Credentials
from adapters.providers.wire import BY_STATUS, is_broken_connection, retry_after

# By the vendor's own word; a status of 200 (an error in the middle of a stream) has nothing else.
_BY_TYPE: Final = {
    "authentication_error": ErrorClass.AUTH,
    "permission_error": ErrorClass.AUTH,
    "billing_error": ErrorClass.QUOTA,
    "rate_limit_error": ErrorClass.RATE_LIMIT,
    "invalid_request_error": ErrorClass.INVALID_REQUEST,
    "request_too_large": ErrorClass.INVALID_REQUEST,
    "not_found_error": ErrorClass.INVALID_REQUEST,
}
_QUOTA_CODES: Final = frozenset({"enforced_spend_limit_reached"})
_TOO_LONG: Final = ("prompt is too long", "context window", "context limit", "context length")
_NO_CREDIT: Final = "credit balance is too low"


def translate(error: Exception, credentials: Credentials) -> ProviderError:
    match error:
        case ProviderError():
            return error
        case anthropic.APIStatusError():
            return _status(error, credentials)
        case anthropic.APITimeoutError():
            return ProviderError("anthropic did not answer in time, or the connection was lost", ErrorClass.TRANSPORT)
        case anthropic.APIConnectionError():
            reason = type(error.__cause__ or error).__name__
            return ProviderError(f"there is no connection to anthropic ({reason})", ErrorClass.TRANSPORT)
        case anthropic.APIError():
            return ProviderError(f"anthropic's answer does not read ({type(error).__name__})", ErrorClass.TRANSPORT)
        case _ if is_broken_connection(error):
            return ProviderError(f"the connection to anthropic broke ({type(error).__name__})", ErrorClass.TRANSPORT)
        case _:
            return ProviderError(f"asking anthropic failed: {type(error).__name__}", ErrorClass.INTERNAL)


def _status(error: anthropic.APIStatusError, credentials: Credentials) -> ProviderError:
    error_class = _class_of(error)
    if error_class is ErrorClass.AUTH:
        return ProviderError(
            f"anthropic does not accept the key in {credentials.variable} for this ({error.type or error.status_code})",
            error_class,
        )
    answered = error.type or "an error" if error.status_code == 200 else str(error.status_code)
    text = credentials.told(str(error.api_message or error.message))
    waits = error_class in (ErrorClass.RATE_LIMIT, ErrorClass.TRANSPORT)
    return ProviderError(
        f"anthropic answered {answered}: {text}", error_class, retry_after(error.response.headers) if waits else None
    )


def _class_of(error: anthropic.APIStatusError) -> ErrorClass:
    text = str(error.api_message or error.message).lower()
    status, type_ = error.status_code, error.type or ""
    if status in (401, 403):
        return ErrorClass.AUTH
    if error.error_code in _QUOTA_CODES or type_ == "billing_error":
        return ErrorClass.QUOTA
    found = BY_STATUS.get(status) or (_BY_TYPE.get(type_) if status < 500 else None)
    if found is None:
        found = ErrorClass.INVALID_REQUEST if 400 <= status < 500 else ErrorClass.TRANSPORT
    if found is ErrorClass.INVALID_REQUEST:
        if any(words in text for words in _TOO_LONG):
            return ErrorClass.CONTEXT_TOO_LONG
        if _NO_CREDIT in text:
            return ErrorClass.QUOTA
    return found
