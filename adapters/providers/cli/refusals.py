"""What a model's server meant when it answered with an error, going by its status and its own words. What it says about
a key is never shown, for it may hold parts of it."""

import json
import re
from collections.abc import Mapping
from typing import Final

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.credentials import Credentials
from adapters.providers.wire import BY_STATUS, retry_after

# A status is shared by what passes and what does not: vendors tell them apart by words.
_BY_WORDS: Final = {
    ErrorClass.QUOTA: re.compile(
        r"insufficient_quota|billing_hard_limit_reached|billing_not_active|billing_error|credit balance is too low"
        r"|enforced_spend_limit_reached",
        re.IGNORECASE,
    ),
    ErrorClass.CONTEXT_TOO_LONG: re.compile(
        r"context_length_exceeded|(prompt|input) is too long|context (length|window|limit|size)"
        r"|input token count .{0,40}exceeds",
        re.IGNORECASE,
    ),
}
_AMBIGUOUS: Final = {
    400: (ErrorClass.QUOTA, ErrorClass.CONTEXT_TOO_LONG),
    413: (ErrorClass.CONTEXT_TOO_LONG,),
    429: (ErrorClass.QUOTA,),
}


def refusal(status: int, headers: Mapping[str, str], body: bytes, credentials: Credentials) -> ProviderError:
    error_class = _class_of(status, body)
    if error_class is ErrorClass.AUTH:
        return ProviderError(
            f"the model's server does not accept the key in {credentials.variable} for this ({status})", error_class
        )
    waits = error_class in (ErrorClass.RATE_LIMIT, ErrorClass.TRANSPORT)
    return ProviderError(
        f"the model's server answered {status}: {credentials.told(_message(body) or 'no reason given')}",
        error_class,
        retry_after(headers) if waits else None,
    )


def _class_of(status: int, body: bytes) -> ErrorClass:
    text = body.decode("utf-8", "replace")
    for error_class in _AMBIGUOUS.get(status, ()):
        if _BY_WORDS[error_class].search(text):
            return error_class
    return BY_STATUS.get(status, ErrorClass.INVALID_REQUEST if status < 500 else ErrorClass.TRANSPORT)


def _message(body: bytes) -> str:
    """What the vendor says is wrong; each puts it at the same place."""
    try:
        said = json.loads(body)
        error = said[0]["error"] if isinstance(said, list) else said["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace").strip()
