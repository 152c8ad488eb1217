"""Webhook requests whose signature is not what it should be."""

import time

from adapters.channel_port import InboundRequest
from adapters.channels.conformance import Forgery
from adapters.channels.signing import HEADER, sign


def forge_request(secret: str, body: bytes, forgery: Forgery, extra: dict[str, str]) -> InboundRequest:
    headers = {
        "wrong": {HEADER: sign(secret, body + b" ")},
        "missing": {},
        "old": {HEADER: sign(secret, body, int(time.time()) - 3600)},
        "non-ascii": {HEADER: f"t={int(time.time())},v1=ünïcödé"},
        "garbage": {HEADER: "t=yesterday,v2,=,,"},
    }[forgery]
    return InboundRequest(headers=headers | extra, body=body)
