"""The way of a CLI agent to its model: a server on this machine that adds the key, so that no program ever has it.

A program is given a token in the key's place, good for one attempt. Only what an agent needs of the vendor's API can
be asked for: with the key behind it, the rest of the API (files, batches, administration) would be open as well. What
the vendor said last is remembered: programs retell errors in words of their own."""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from starlette.types import Receive, Scope, Send

from adapters.errors import ErrorClass, ProviderError
from adapters.local_server import LocalServer
from adapters.providers.cli.errands import RefusedError, model_asked
from adapters.providers.cli.refusals import refusal
from adapters.providers.cli.usage_seen import Answer, Wire, settle
from adapters.providers.credentials import CONNECT_SECONDS, READ_SECONDS, Credentials

MAX_BODY: Final = 32 << 20  # more than vendors take
AT_ONCE: Final = 8  # requests of one program
BODY_SECONDS: Final = 60.0
FINAL: Final = "the model did not answer, and whoever asked has been told why"
_OPEN: Final[dict[Wire, re.Pattern[str]]] = {
    "anthropic": re.compile(r"POST /v1/messages(/count_tokens)?|GET /v1/models(/\w[\w.:-]*)?"),
    "openai": re.compile(r"POST /v1/(responses(/compact)?|chat/completions)|GET /v1/models(/\w[\w.:-]*)?"),
    "gemini": re.compile(
        r"POST /v1(beta)?/models/\w[\w.-]*:(generateContent|streamGenerateContent|countTokens|embedContent)"
        r"|GET /v1(beta)?/models(/\w[\w.-]*)?"
    ),
}
_WAITS: Final = (b"retry-after", b"retry-after-ms", b"x-should-retry")
_KEY_HEADERS: Final = (b"x-api-key", b"authorization", b"x-goog-api-key")
# Of one connection only, or set anew for the other.
_HOP: Final = (
    *(b"host", b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"content-length"),
    *(b"proxy-authorization", b"proxy-authenticate", b"accept-encoding", b"cookie"),
)


@dataclass
class Pass:
    """One attempt's right to ask the model. `trouble` is the last answer that was none, if no good one came after.
    `answers` are the good ones, as far as they are of use (`usage_seen.py`), `under_way` how many are awaited."""

    socket: Path
    token: str = field(repr=False)
    under_way: int = 0
    closed: str = ""  # why the model may not be asked now
    trouble: ProviderError | None = None
    answers: list[Answer] = field(default_factory=list, repr=False)


class KeyProxy:
    """One per provider and process. `credentials` are read when they are needed. `final`: what the vendor could not do
    is told as a fault of the request (400), to programs that would else try it again for minutes and cannot be told
    not to: the fleet retries."""

    def __init__(self, wire: Wire, credentials: Callable[[], Credentials], *, final: bool = False) -> None:
        self._wire = wire
        self._final = final
        self._credentials = credentials
        self._passes: dict[str, Pass] = {}
        self._server = LocalServer(self._answer)
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[Pass]:
        """Raises ProviderError if there is no key. The token is worth nothing after this is closed."""
        self._credentials().require()
        await self._server.open()
        admitted = Pass(self._server.socket_path, f"sk-longshore-{secrets.token_urlsafe(32)}")
        self._passes[admitted.token] = admitted
        try:
            yield admitted
        finally:
            del self._passes[admitted.token]

    async def close(self) -> None:
        await self._server.close()
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        admitted = self._whose(scope["headers"])
        asked = f"{scope['method']} {scope['path']}"
        if scope["method"] == "HEAD":  # is anybody there?
            await _say(send, 200, b"")
        elif admitted is None:
            await _refuse(send, 401, "the key is not one of an agent that runs now")
        elif admitted.closed:
            admitted.trouble = ProviderError(admitted.closed, ErrorClass.INVALID_REQUEST)
            await _refuse(send, 403, admitted.closed)
        elif not _OPEN[self._wire].fullmatch(asked):
            await _refuse(send, 403, f"agents may not ask for {asked}")
        else:
            await self._pass_on(admitted, scope, receive, send)

    def _whose(self, headers: Iterable[tuple[bytes, bytes]]) -> Pass | None:
        for name, value in headers:
            if name in _KEY_HEADERS:
                token = value.decode("latin-1").removeprefix("Bearer ").strip()
                if token in self._passes:
                    return self._passes[token]
        return None

    async def _pass_on(self, admitted: Pass, scope: Scope, receive: Receive, send: Send) -> None:
        if admitted.under_way >= AT_ONCE:
            await _refuse(send, 429, f"a program may have {AT_ONCE} requests at once")
            return
        admitted.under_way += 1
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(receive)
            model = await model_asked(self._wire, scope["path"], body)
            await _unless_gone(receive, self._ask(admitted, scope, body, model, send))
        except TimeoutError:
            await _refuse(send, 408, f"the request was not complete within {BODY_SECONDS:g} s")
        except _GoneError:
            return
        except _TooLargeError:
            await _refuse(send, 413, f"a request may have {MAX_BODY >> 20} MB")
        except RefusedError as refused:
            await _refuse(send, refused.status, str(refused))
        except httpx2.InvalidURL:
            await _refuse(send, 400, "this is no address")
        except ProviderError as error:
            admitted.trouble = error
            await _refuse(send, 401, str(error))
        except httpx2.HTTPError as error:
            # Only its type: the text may hold an address with a password in it.
            admitted.trouble = ProviderError(
                f"the model's server could not be reached ({type(error).__name__})", ErrorClass.TRANSPORT
            )
            await (_refuse(send, 400, FINAL) if self._final else _refuse(send, 502, str(admitted.trouble)))
        finally:
            admitted.under_way -= 1

    async def _ask(self, admitted: Pass, scope: Scope, body: bytes, model: str, send: Send) -> None:
        credentials = self._credentials()
        credentials.require()
        async with self._http().stream(
            scope["method"], self._address(scope, credentials), content=body,
            headers=self._headers(scope["headers"], credentials),
        ) as response:  # fmt: skip
            await self._carry(admitted, response, model, send)

    async def _carry(self, admitted: Pass, response: httpx2.Response, model: str, send: Send) -> None:
        """The vendor's answer, as it comes."""
        if response.status_code >= 400:
            await self._tell_refusal(admitted, response, send)
            return
        headers = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in _HOP]
        headers = [(name, value) for name, value in headers if name not in (b"content-encoding", b"set-cookie")]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        answer = Answer(model=model)
        admitted.answers.append(answer)
        try:
            async for chunk in response.aiter_bytes():
                answer.add(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except httpx2.HTTPError as error:
            admitted.trouble = ProviderError(
                f"the model's server broke off in the middle of its answer ({type(error).__name__})",
                ErrorClass.TRANSPORT,
            )
            return  # which closes the connection: the program sees it break as well
        finally:
            settle(self._wire, admitted.answers, answer)
        admitted.trouble = None
        await send({"type": "http.response.body", "body": b""})

    async def _tell_refusal(self, admitted: Pass, response: httpx2.Response, send: Send) -> None:
        """In the vendor's words, without the key they may repeat; to a program that would find in them a reason to try
        again, in ours."""
        credentials, answer = self._credentials(), Answer()
        async for chunk in response.aiter_bytes():
            answer.add(chunk)
        admitted.trouble = refusal(response.status_code, response.headers, answer.first, credentials)
        if self._final:
            await _refuse(send, 400, FINAL)
        elif admitted.trouble.error_class is ErrorClass.AUTH:
            await _refuse(send, response.status_code, str(admitted.trouble))
        else:
            said = credentials.scrub(answer.first.decode("utf-8", "replace")).encode()
            waits = [(name.lower(), value) for name, value in response.headers.raw if name.lower() in _WAITS]
            await _say(send, response.status_code, said, waits)

    def _address(self, scope: Scope, credentials: Credentials) -> str:
        path = scope["path"]
        if self._wire == "openai":  # whose base addresses end in the version
            path = path.removeprefix("/v1")
        query = scope["query_string"].decode("latin-1")
        # Gemini's key may stand in the address.
        query = "&".join(part for part in query.split("&") if part and not part.startswith("key="))
        return f"{credentials.base_url}{path}" + (f"?{query}" if query else "")

    def _headers(self, given: Iterable[tuple[bytes, bytes]], credentials: Credentials) -> list[tuple[bytes, bytes]]:
        key = credentials.key.encode("ascii")
        own = {
            "anthropic": (b"x-api-key", key),
            "openai": (b"authorization", b"Bearer " + key),
            "gemini": (b"x-goog-api-key", key),
        }
        return [(name, value) for name, value in given if name not in (*_KEY_HEADERS, *_HOP)] + [own[self._wire]]

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
                limits=httpx2.Limits(max_connections=1000),
                follow_redirects=False,
            )
        return self._client


class _GoneError(Exception):
    """Whoever asked has gone."""


class _TooLargeError(Exception):
    """A request is larger than any that makes sense."""


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """The vendor is not asked on for somebody who does not listen any more."""
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _GoneError
        await working
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            raise _TooLargeError
        more = message.get("more_body", False)
    return b"".join(parts)


async def _refuse(send: Send, status: int, reason: str) -> None:
    kind = "authentication_error" if status == 401 else "permission_error" if status == 403 else "api_error"
    body = {"type": "error", "error": {"type": kind, "message": f"longshore: {reason}", "code": status}}
    await _say(send, status, json.dumps(body).encode())


async def _say(send: Send, status: int, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *more]})
    await send({"type": "http.response.body", "body": body})
