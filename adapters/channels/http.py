"""Calling a platform over HTTP, and what its failures mean for a message: may it be sent again, when, and may it have
arrived all the same. No error's text holds an address: on some platforms the token is a part of it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx2

from adapters.errors import DeliveryError

TIMEOUT_SECONDS: Final = 20.0
MAX_ANSWER_BYTES: Final = 1 << 20
# The platform has said no before it did anything: it is busy, or not there for now.
_NOT_DONE: Final = (408, 425, 429, 503)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]  # lower-case names
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """What it says, or None if that is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class PlatformHttp:
    """A client for one platform, called `name` in errors. The connection is made when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._client: httpx2.AsyncClient | None = None

    async def call(
        self,
        method: str,
        url: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        limit: int = MAX_ANSWER_BYTES,
        **what: Any,
    ) -> Reply:
        """One request; `what` is httpx2's (headers, json, content, data, files, params). Raises DeliveryError when
        there was no answer; what an answer means is the driver's to say (`failure`). An answer is cut after `limit`
        bytes."""
        seconds = TIMEOUT_SECONDS if timeout is None else timeout
        if "json" in what:
            # In ASCII: half a surrogate pair, which agents do write, cannot be sent in any other way.
            what["content"] = json.dumps(what.pop("json")).encode()
            what["headers"] = {"content-type": "application/json", **what.get("headers", {})}
        try:
            async with self._http().stream(method, url, timeout=seconds, **what) as response:
                body = await _bounded(response, limit)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise DeliveryError(f"{self._name}: {type(error).__name__}", retryable=True) from error
        except httpx2.HTTPError as error:
            why = f"{self._name}: {type(error).__name__}"
            raise DeliveryError(why, retryable=True, may_have_arrived=True) from error
        return Reply(response.status_code, {key.lower(): value for key, value in response.headers.items()}, body)

    def failure(self, reply: Reply, said: str = "", retry_after: float | None = None) -> DeliveryError:
        """What an answer that is no success means. `said`: the platform's own words, if it has any."""
        words = f"{self._name} answered {reply.status}" + (f": {said[:300]}" if said else "")
        busy = reply.status in _NOT_DONE
        broken = reply.status >= 500 and not busy
        return DeliveryError(
            words,
            retryable=busy or broken or reply.status == 409,
            retry_after=retry_after if retry_after is not None else retry_after_of(reply),
            # It broke while it was at it: nobody knows how far it came.
            may_have_arrived=broken,
        )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            # Redirects would carry keys elsewhere; proxies of the environment are not the operator's word.
            self._client = httpx2.AsyncClient(follow_redirects=False, trust_env=False)
        return self._client


async def _bounded(response: httpx2.Response, limit: int) -> bytes:
    """What it says, so that the connection can be used again; but not for ever."""
    parts, size = [], 0
    async for chunk in response.aiter_bytes():
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(parts)[:limit]


def retry_after_of(reply: Reply) -> float | None:
    """Seconds, given as a number or as a date."""
    said = reply.headers.get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
