"""`webhook`: JSON over HTTP, signed both ways, to endpoints the operator has named.

LONGSHORE_WEBHOOKS='{"crm": {"url": "https://…", "secret": "…"}}' names them; a message's platform id is such a name,
never an address, so nobody can make the fleet call where they like."""

import asyncio
import base64
import json
import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx2
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, TypeAdapter, ValidationError

from adapters.channels.signing import HEADER, check_signature, sign
from adapters.contracts import (
    ChannelCapabilities,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundMessage,
    Receipt,
)
from adapters.errors import ChannelError, DeliveryError, MalformedError, SignatureError

VARIABLE: Final = "LONGSHORE_WEBHOOKS"
ENDPOINT_HEADER: Final = "x-longshore-endpoint"
TIMEOUT_SECONDS: Final = 20
MAX_ANSWER_BYTES: Final = 64 * 1024


class Endpoint(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: HttpUrl
    secret: str = Field(min_length=1)


class _InboundBody(BaseModel):
    """What an endpoint posts to us."""

    id: str
    text: str
    thread: str | None = None
    sender: str | None = None
    attachments: list[dict[str, Any]] = Field(default_factory=list)  # name, and url or data (base64)


_ENDPOINTS = TypeAdapter(dict[str, Endpoint])


class WebhookChannel:
    channel_type = "webhook"
    # The receiver is given the key and is asked to drop what it has seen.
    capabilities = ChannelCapabilities(idempotent=True, files=True, max_text=1_000_000)

    def __init__(self, endpoints: Mapping[str, Endpoint] | None = None) -> None:
        self._endpoints = dict(endpoints) if endpoints is not None else _endpoints_from_environment()
        self._client: httpx2.AsyncClient | None = None

    def verify(self, request: InboundRequest) -> None:
        endpoint = self._endpoints.get(request.headers.get(ENDPOINT_HEADER, ""))
        if endpoint is None:
            raise SignatureError(f"the {ENDPOINT_HEADER} header names no endpoint of {VARIABLE}")
        check_signature(endpoint.secret, request.body, request.headers.get(HEADER))

    def receive(self, request: InboundRequest) -> list[InboundMessage]:
        try:
            body = _InboundBody.model_validate_json(request.body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise MalformedError(f"{where}: {first['msg']}") from None
        return [
            InboundMessage(
                platform_id=request.headers[ENDPOINT_HEADER],
                platform_message_id=body.id,
                thread_id=body.thread,
                sender_id=body.sender,
                sender_name=body.sender,
                content={"text": body.text} | ({"attachments": body.attachments} if body.attachments else {}),
            )
        ]

    def accepts(self, message: InboundMessage) -> bool:
        return True

    async def deliver(self, message: OutboundMessage) -> Receipt:
        name = message.destination.platform_id
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise DeliveryError(f"{VARIABLE} has no endpoint {name!r}", retryable=False)
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
        try:
            async with self._http().stream("POST", str(endpoint.url), content=body, headers=headers) as response:
                await _drain(response)
        except httpx2.HTTPError as error:
            raise DeliveryError(f"{name}: {type(error).__name__}", retryable=True, may_have_arrived=True) from error
        if response.is_success:
            return Receipt(details={"status": response.status_code})
        raise DeliveryError(
            f"{name} answered {response.status_code}",
            retryable=response.status_code in (408, 409, 425, 429) or response.status_code >= 500,
            retry_after=_retry_after(response),
        )

    async def edit(self, destination: Destination, platform_message_id: str, content: dict[str, Any]) -> None:
        raise ChannelError("a webhook cannot take a message back")

    async def react(self, destination: Destination, platform_message_id: str, emoji: str) -> None:
        raise ChannelError("a webhook has no reactions")

    async def show_typing(self, destination: Destination, *, on: bool) -> None:
        """Nobody watches."""

    async def open_dm(self, user_id: str) -> str | None:
        return None

    async def find_receipt(self, idempotency_key: str) -> Receipt | None:
        return None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            # Redirects would carry the signature elsewhere; proxies of the environment are not the operator's word.
            self._client = httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, follow_redirects=False, trust_env=False)
        return self._client


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


async def _drain(response: httpx2.Response) -> None:
    """Read what it says, so that the connection can be used again; but not for ever."""
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            return


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds, given as a number or as a date."""
    said = response.headers.get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
