"""Omnara's HTTP API, as much of it as a relay needs, and what its failures mean. Written from the description that
Omnara publishes (openapi.yaml 0.1.0, in its public repository); under /orgs/{org}/projects/{project}/agents it uses

POST ""                     launch an agent               GET  /{id}/events          the newest event's number
POST /{id}/inputs           say something to it           GET  /{id}/events/stream   what happens, as it happens
POST /{id}/cancel           stop what it does             GET  /{id}/interactions    what it waits for people for

The Python SDK of before (`omnara` 1.x on PyPI, agent.omnara.com) spoke another API, which is gone."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import httpx2

from adapters.errors import ErrorClass, ProviderError
from adapters.providers.credentials import CONNECT_SECONDS, Credentials
from adapters.providers.omnara.settings import Place, is_id
from adapters.providers.wire import BY_STATUS, retry_after

REQUEST_SECONDS: Final = 30.0
MAX_LINE: Final = 16 * 2**20
MAX_ERROR: Final = 64 * 1024
Frame = dict[str, Any]


class OmnaraApi:
    """For one query. Everything it raises is a ProviderError."""

    def __init__(self, credentials: Credentials, place: Place, stall_seconds: float) -> None:
        credentials.require()
        self._credentials = credentials
        self._place = place
        self._stall_seconds = stall_seconds
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {credentials.key}", "User-Agent": "longshore"},
            timeout=httpx2.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
        )

    async def launch(self, message: str) -> tuple[str, str, str | None]:
        """A new agent: its id, that of its first input, and its model."""
        answer = await self._ask("POST", "", {"config": self._place.config, "message": message})
        agent, model = _object(answer, "agent"), None
        if isinstance(agent.get("model"), dict):
            model = str(agent["model"].get("name") or "") or None
        return _id(agent, "agt_"), _id(_object(answer, "agent_input"), "ain_"), model

    async def send(self, agent: str, text: str, *, steering: bool = False) -> str:
        """The id of the input."""
        body: dict[str, Any] = {"content_blocks": [{"type": "text", "text": text}]}
        if steering:
            body["delivery_mode"] = "steering"
        return _id(_object(await self._ask("POST", f"/{agent}/inputs", body), "agent_input"), "ain_")

    async def newest(self, agent: str) -> int | None:
        """The number of the last event so far; None: there is no such agent (any more)."""
        answer = await self._ask("GET", f"/{agent}/events?before_sequence=0&limit=1", may_be_absent=True)
        if answer is None:
            return None
        return max((sequence_of(event) for event in _list(answer)), default=0)

    async def interactions(self, agent: str) -> list[Frame]:
        return _list(await self._ask("GET", f"/{agent}/interactions?state=open"))

    async def cancel(self, agent: str) -> None:
        await self._ask("POST", f"/{agent}/cancel", {})

    async def follow(self, agent: str, after: int) -> AsyncGenerator[Frame | None, None]:
        """What happens after an event, as it happens. None is a sign of life."""
        url = self._url(f"/{agent}/events/stream?stream_deltas=true&after_sequence={after}")
        timeout = httpx2.Timeout(self._stall_seconds, connect=CONNECT_SECONDS)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        try:
            async with self._http.stream("GET", url, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    raise await self._refusal(response)
                async for frame in _frames(response):
                    if frame is not None and frame.keys() >= {"error", "code"}:
                        raise self._error(f"Omnara ended the stream: {frame['error']}", _class_of_code(frame["code"]))
                    yield frame
        except httpx2.ReadTimeout:
            raise ProviderError("omnara said nothing for too long", ErrorClass.PROVIDER_HANG) from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise _broken(error) from None
        raise ProviderError("omnara's stream ended early", ErrorClass.TRANSPORT)

    async def close(self) -> None:
        await self._http.aclose()

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, may_be_absent: bool = False
    ) -> Any:
        try:
            async with self._http.stream(method, self._url(path), json=body) as response:
                if response.status_code == 404 and may_be_absent:
                    return None
                if response.status_code >= 300 or response.status_code < 200:
                    raise await self._refusal(response)
                return json.loads(await _read(response, MAX_LINE))
        except ValueError:
            raise ProviderError("omnara's answer does not read", ErrorClass.TRANSPORT) from None
        except httpx2.TimeoutException:
            raise ProviderError("omnara did not answer in time", ErrorClass.TRANSPORT) from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise _broken(error) from None

    def _url(self, path: str) -> str:
        place = self._place
        return f"{self._credentials.base_url}/orgs/{place.org}/projects/{place.project}/agents{path}"

    async def _refusal(self, response: httpx2.Response) -> ProviderError:
        status = response.status_code
        error_class = BY_STATUS.get(status) or (
            ErrorClass.TRANSPORT if status >= 500 or status < 400 else ErrorClass.INVALID_REQUEST
        )
        if error_class is ErrorClass.AUTH:
            return ProviderError(
                f"omnara does not accept the key in {self._credentials.variable} for this ({status})", error_class
            )
        try:
            told = json.loads(await _read(response, MAX_ERROR))
            words = f"{told['code']}: {told['error']}"
        except (ValueError, TypeError, LookupError, httpx2.HTTPError, ProviderError):
            words = "without a reason that reads"
        waits = retry_after(response.headers) if error_class.can_pass else None
        return self._error(f"omnara answered {status}, {words}", error_class, waits)

    def _error(self, text: str, error_class: ErrorClass, waits: float | None = None) -> ProviderError:
        return ProviderError(self._credentials.told(text), error_class, waits)


def sequence_of(event: Frame) -> int:
    """0 for what has no place in the timeline."""
    number = event.get("sequence")
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


async def _frames(response: httpx2.Response) -> AsyncIterator[Frame | None]:
    """Server-sent events. Their names are not needed: each kind has a field of its own."""
    data: list[bytes] = []
    async for line in _lines(response):
        if line.startswith(b":"):
            yield None
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            try:
                frame = json.loads(b"\n".join(data))
            except ValueError:
                raise ProviderError("omnara's stream does not read", ErrorClass.TRANSPORT) from None
            if not isinstance(frame, dict):
                raise ProviderError("omnara's stream holds something else than events", ErrorClass.TRANSPORT)
            data = []
            yield frame


async def _lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in response.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
        if len(rest) > MAX_LINE:
            raise ProviderError("omnara's stream has a line without an end", ErrorClass.TRANSPORT)


async def _read(response: httpx2.Response, limit: int) -> bytes:
    content = b""
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > limit:
            raise ProviderError("omnara's answer has no end", ErrorClass.TRANSPORT)
    return content


def _class_of_code(code: object) -> ErrorClass:
    known = {"unauthorized": ErrorClass.AUTH, "forbidden": ErrorClass.AUTH, "service_unavailable": ErrorClass.TRANSPORT}
    return known.get(str(code), ErrorClass.INTERNAL)


def _broken(error: Exception) -> ProviderError:
    return ProviderError(f"the connection to omnara broke ({type(error).__name__})", ErrorClass.TRANSPORT)


def _object(answer: Any, name: str) -> Frame:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, dict):
        raise ProviderError(f"omnara's answer has no {name}", ErrorClass.TRANSPORT)
    return found


def _list(answer: Any) -> list[Frame]:
    found = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise ProviderError("omnara's answer has no data", ErrorClass.TRANSPORT)
    return [item for item in found if isinstance(item, dict)]


def _id(found: Frame, start: str) -> str:
    if not is_id(found.get("id"), start):
        raise ProviderError(f"omnara's answer has an id that is none ({start}…)", ErrorClass.TRANSPORT)
    return str(found["id"])
