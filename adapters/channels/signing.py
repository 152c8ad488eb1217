"""Signatures over raw bytes with a time: what the `webhook` channel sends, and checks on what it gets.

`t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>">`. An old time is refused, so a caught request cannot be replayed
for long; within that time its message id makes it one message."""

import hashlib
import hmac
import time
from typing import Final

from adapters.errors import SignatureError

HEADER: Final = "x-longshore-signature"
TOLERANCE_SECONDS: Final = 300
MAX_TIME_DIGITS: Final = 15


def sign(secret: str, body: bytes, at: int | None = None) -> str:
    at = int(time.time()) if at is None else at
    return f"t={at},v1={_digest(secret, at, body)}"


def check_signature(secret: str, body: bytes, header: str | None) -> None:
    if not header:
        raise SignatureError(f"the request has no {HEADER} header")
    fields = dict(part.split("=", 1) for part in header.split(",") if "=" in part)
    try:
        if len(fields["t"]) > MAX_TIME_DIGITS:
            raise ValueError
        at = int(fields["t"])
        given = fields["v1"]
    except (KeyError, ValueError):
        raise SignatureError(f"the {HEADER} header is not of the form t=<seconds>,v1=<hex>") from None
    if abs(time.time() - at) > TOLERANCE_SECONDS:
        raise SignatureError("the signature is too old or from the future: check the sender's clock")
    if not same(given, _digest(secret, at, body)):
        raise SignatureError("the signature does not fit the body")


def same(given: str, expected: str) -> bool:
    """In constant time: how long it takes says nothing of how much was right."""
    # As bytes: compare_digest refuses text that is not ASCII, and a hostile header may hold anything.
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _digest(secret: str, at: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
