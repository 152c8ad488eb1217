"""`webhook`: JSON over HTTP, signed both ways, to endpoints the operator has named.

LONGSHORE_WEBHOOKS='{"crm": {"url": "https://…", "secret": "…", "agent": "sales"}}' names them; a message's platform id
is such a name, never an address, so nobody can make the fleet call where they like. One without a `url` is answered
in its own requests (`Prefer: wait=30`); `agent` is who answers where nobody has wired the endpoint."""

import asyncio
import base64
import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, HttpUrl, TypeAdapter, ValidationError

from adapters.channel_port import (
    ChannelCapabilities,
    InboundMessage,
    InboundRequest,
    OutboundMessage,
    Receipt,
    Received,
)
from adapters.channels.base import PlainChannel
from adapters.channels.http import PlatformHttp
from adapters.channels.signing import HEADER, check_signature, sign
from adapters.errors import ChannelError, DeliveryError, MalformedError, SignatureError

VARIABLE: Final = "LONGSHORE_WEBHOOKS"
ENDPOINT_HEADER: Final = "x-longshore-endpoint"


class Endpoint(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: HttpUrl | None = None
    secret: str = Field(min_length=1)
    agent: str | None = Field(None, min_length=1)


class _InboundBody(BaseModel):
    """What an endpoint posts to us."""

    id: str
    text: str
    thread: str | None = None
    sender: str | None = None
    attachments: list[dict[str, Any]] = Field(default_factory=list)  # name, and url or data (base64)


def _is_one_word(name: str) -> str:
    if "/" in name:  # with it, one endpoint's people could be another's: `crm/eu` of `ada`, `crm` of `eu/ada`
        raise ValueError("the name of an endpoint has no /")
    return name


_ENDPOINTS = TypeAdapter(dict[Annotated[str, AfterValidator(_is_one_word)], Endpoint])


class WebhookChannel(PlainChannel):
    channel_type = "webhook"
    # The receiver is given the key and is asked to drop what it has seen.
    capabilities = ChannelCapabilities(idempotent=True, files=True, max_text=1_000_000, explains=True, trusted=True)

    def __init__(self, endpoints: Mapping[str, Endpoint] | None = None) -> None:
        self._endpoints = dict(endpoints) if endpoints is not None else _endpoints_from_environment()
        self._http = PlatformHttp("webhook")

    @property
    def receives(self) -> bool:
        return bool(self._endpoints)

    def verify(self, request: InboundRequest) -> None:
        endpoint = self._endpoints.get(request.headers.get(ENDPOINT_HEADER, ""))
        if endpoint is None:
            raise SignatureError(f"the {ENDPOINT_HEADER} header names no endpoint of {VARIABLE}")
        check_signature(endpoint.secret, request.body, request.headers.get(HEADER))

    def receive(self, request: InboundRequest) -> Received:
        try:
            body = _InboundBody.model_validate_json(request.body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise MalformedError(f"{where}: {first['msg']}") from None
        name = request.headers[ENDPOINT_HEADER]
        message = InboundMessage(
            platform_id=name,
            platform_message_id=body.id,
            thread_id=body.thread,
            sender_id=f"{name}/{body.sender}" if body.sender else None,  # each endpoint vouches for its own people only
            sender_name=body.sender,
            content={"text": body.text} | ({"attachments": body.attachments} if body.attachments else {}),
            is_mention=True,  # whatever is sent here is meant for the agent
        )
        return Received((message,))

    def registers(self, message: InboundMessage, *, known: bool) -> str | None:
        """The endpoint's agent for whatever comes from it: its secret says that it is the operator's own."""
        endpoint = self._endpoints.get(message.platform_id)
        return endpoint.agent if endpoint is not None else None

    async def deliver(self, message: OutboundMessage) -> Receipt:
        name = message.destination.platform_id
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise DeliveryError(f"{VARIABLE} has no endpoint {name!r}", retryable=False)
        if endpoint.url is None:
            return _kept(name, message)
        said: dict[str, Any] = {
            "id": message.idempotency_key,
            "kind": message.kind,
            "thread": message.destination.thread_id,
            "content": message.content,
        }
        body = await asyncio.to_thread(_with_files, said, message) if message.files else json.dumps(said).encode()
        headers = {
            "content-type": "application/json",
            "idempotency-key": message.idempotency_key,
            HEADER: sign(endpoint.secret, body),
        }
        reply = await self._http.call("POST", str(endpoint.url), content=body, headers=headers)
        if reply.ok:
            return Receipt(details={"status": reply.status})
        raise self._http.failure(reply)

    async def close(self) -> None:
        await self._http.close()


def _kept(name: str, message: OutboundMessage) -> Receipt:
    """The row is the delivery: the endpoint gets its text in the answer to its own request."""
    if message.files:
        raise DeliveryError(f"the endpoint {name!r} has no url, and files are only sent to one", retryable=False)
    return Receipt(details={"kept": "for the endpoint's own request"})


def _endpoints_from_environment() -> dict[str, Endpoint]:
    try:
        return _ENDPOINTS.validate_json(os.environ.get(VARIABLE) or "{}")
    except ValidationError as error:
        first = error.errors()[0]
        # Values may be secrets: only the place and the complaint are shown.
        raise ChannelError(f"{VARIABLE} at {'.'.join(map(str, first['loc'])) or 'top'}: {first['msg']}") from None


def _with_files(said: dict[str, Any], message: OutboundMessage) -> bytes:
    files = [
        {
            "name": file.name,
            "media_type": file.media_type,
            "size": file.size,
            "data": base64.b64encode(file.path.read_bytes()).decode(),
        }
        for file in message.files
    ]
    return json.dumps(said | {"files": files}).encode()
