"""Where a request comes from: by which name we were called, and from which page. And the headers of every answer.

Who calls by a name that is not ours may be a page whose name was led to this address (DNS rebinding). What changes
something is taken from no page but our own and those in LONGSHORE_ORIGINS. What platforms send comes from no page, by
whatever name their proxy uses, and is signed: it passes."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.problems import problem
from workers.settings import Settings

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SIGNED: Final = "/channels/"
PROBES: Final = "/healthz"
SHARED: Final = ("/v1/", "/web/", "/openapi.json")  # what pages of other origins may read, if they are listed
ADDRESS: Final = "ADDRESS"  # no name: they are in small letters
# On every answer, unless it says something else.
_SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_DRESS: Final = [(name.lower().encode(), value.encode()) for name, value in _SECURITY_HEADERS.items()]

_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Prefer",
    "Access-Control-Max-Age": "600",
}
_EXPOSED: Final = "Location, Retry-After, Preference-Applied"


class Origins:
    """`hosts`: names by which we may be called, besides addresses and localhost. `origins`: pages that may use the
    API. Both in small letters."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts, self._origins = frozenset(hosts), frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        origin, host = headers.get("origin"), headers.get("host", "").lower()
        shared = path.startswith(SHARED) and origin in self._origins
        answer = None
        if not path.startswith(SIGNED):
            answer = self._refusal(scope["method"], path, host, origin)
            if answer is None and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                answer = Response(status_code=204, headers=_PREFLIGHT) if shared else _not_shared()

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                _dress(message, origin if shared else None, path)
            await send(message)

        await (answer or self._app)(scope, receive, dressed)

    def _refusal(self, method: str, path: str, host: str, origin: str | None) -> Response | None:
        if path != PROBES and not self._is_ours(host):
            text = f"this gateway is not known as {host[:100]!r}: name it in LONGSHORE_PUBLIC_URL or LONGSHORE_HOSTS"
            return problem(421, text)
        if method in SAFE_METHODS or origin is None or origin in self._origins:
            return None
        if origin.lower().partition("://")[2] == host:
            return None
        text = f"nothing was done: pages of {origin[:100]!r} may not do this; LONGSHORE_ORIGINS lists those that may"
        return problem(403, text)

    def _is_ours(self, host: str) -> bool:
        name = _name_in(host)
        return name is not None and (name == ADDRESS or name in self._hosts)


@lru_cache(maxsize=256)
def _name_in(host: str) -> str | None:
    """The name in a Host header. Names can be led anywhere by whoever owns them; an address is where it is (ADDRESS),
    and so is localhost. None: it is no host."""
    try:
        split = urlsplit(f"//{host}")
        name = split.hostname or ""
        split.port  # noqa: B018 - ValueError if it is none
    except ValueError:
        return None
    if name == "localhost" or name.endswith(".localhost"):
        return ADDRESS
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name
    return ADDRESS


def our_names(settings: Settings) -> frozenset[str]:
    """By which names the operator says we are called."""
    named = {part.strip().lower() for part in settings.hosts.split(",") if part.strip()}
    public = urlsplit(settings.public_url).hostname
    return frozenset(named | ({public} if public else set()))


def listed_origins(settings: Settings) -> frozenset[str]:
    """Pages that may use the API: those the operator lists, and our own by the name that people know."""
    listed = {part.strip().lower().rstrip("/") for part in settings.origins.split(",") if part.strip()}
    public = urlsplit(settings.public_url.lower())
    return frozenset(listed | ({f"{public.scheme}://{public.netloc}"} if public.netloc else set()))


def _not_shared() -> Response:
    return problem(403, "pages of this origin may not use the API; LONGSHORE_ORIGINS lists those that may")


def _dress(message: Message, shared_with: str | None, path: str) -> None:
    said = {name.lower() for name, _ in message["headers"]}
    message["headers"] = [*message["headers"], *(header for header in _DRESS if header[0] not in said)]
    if not path.startswith(SHARED):
        return
    headers = MutableHeaders(raw=message["headers"])
    headers.add_vary_header("Origin")
    if shared_with is not None:
        headers["Access-Control-Allow-Origin"] = shared_with
        headers["Access-Control-Expose-Headers"] = _EXPOSED
        headers["Cross-Origin-Resource-Policy"] = "cross-origin"
