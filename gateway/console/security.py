"""What stands between the console and other people's pages: response headers, and where a request came from.

No script, style or frame of anybody else's has a place in a page of ours, and nothing that changes something is taken
from a page that is not ours. The token against forged requests is proved in `visitors.py`, for every form."""

import hashlib
import hmac
from typing import Final
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.sign_ins import BROWSER_SECONDS

COOKIE: Final = "longshore_console"
PATH: Final = "/console"
CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "X-CSRF-Token"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with `no-referrer`, browsers keep to themselves where a form is from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Shield:
    """Puts the headers on every answer of the console, errors included. What says nothing else is kept by nobody."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def shielded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, shielded)


async def from_our_pages(request: Request) -> None:
    """For every route: what changes something comes from a page of this address, or of the one that people know us by.
    Browsers say where a form is from, and pages cannot make them lie."""
    if request.method in SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    public = urlsplit(request.state.house.settings.public_url).netloc
    ours = {request.headers.get("host"), public} - {None, ""}
    if site not in (None, "same-origin") or origin is None or urlsplit(origin).netloc not in ours:
        raise HTTPException(403, "nothing was done: this came from another page; do it from the console itself")


def csrf_token(browser_secret: str) -> str:
    """Belongs to one sign-in: who does not hold its cookie can neither know nor make it."""
    return hmac.new(browser_secret.encode(), b"longshore console csrf", hashlib.sha256).hexdigest()


def keep_signed_in(response: Response, request: Request, browser_secret: str, public_url: str) -> None:
    response.set_cookie(
        COOKIE,
        browser_secret,
        max_age=int(BROWSER_SECONDS),
        path=PATH,
        httponly=True,
        samesite="lax",
        secure=_is_private(request, public_url),
    )


def forget(response: Response) -> None:
    response.delete_cookie(COOKIE, path=PATH, httponly=True, samesite="lax")


def _is_private(request: Request, public_url: str) -> bool:
    """Whether the browser talks TLS, mostly to a proxy before us. Believing it only makes the cookie harder to get."""
    said = (request.url.scheme, urlsplit(request.headers.get("origin", "")).scheme)
    forwarded = request.headers.get("x-forwarded-proto", "")
    at_home = urlsplit(public_url)
    return (
        "https" in said
        or forwarded == "https"
        or (at_home.scheme == "https" and at_home.netloc == request.headers.get("host"))
    )
