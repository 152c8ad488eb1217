"""Fetching what others put on the web: public addresses only, whatever a name, a redirect or a resolver says.

Every hop is checked anew and connected to an address that was checked, so a name that changes its meaning in between
changes nothing. It uses the transport and not the client of httpx2: cookies, redirects, credentials and proxies of the
environment are things it must never have. Tools and the fetching of attachments call it."""

import asyncio
import re
import ssl
import zlib
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import httpx2

from adapters.addresses import Resolver, is_among, is_named, normal_host, resolve_public
from adapters.errors import WebError

MAX_REDIRECTS: Final = 5
MAX_URL_CHARACTERS: Final = 8_000
PORTS: Final = (80, 443, 8080, 8443)
CONNECT_SECONDS: Final = 10.0  # to one address; a host may have a dead one before a good one
MAX_ADDRESSES: Final = 3  # of a host that are tried

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# Parsers disagree about these, and what one does not see another follows.
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}")


@dataclass(frozen=True)
class Fetched:
    """`url` is where it came from in the end. `cut`: there was more than was asked for."""

    url: str
    status: int
    media_type: str
    body: bytes
    cut: bool = False


@dataclass(frozen=True)
class _Target:
    url: httpx2.URL
    host: str
    port: int


class Web:
    """One per process."""

    def __init__(
        self,
        private_hosts: Collection[str] = (),
        *,
        resolve: Resolver | None = None,
        connect_to: Callable[[str, int], tuple[str, int]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`private_hosts` are names (or host:port) that may be asked although their address is not public; on any
        port, where none is named.

        The rest is for tests, where a server on loopback plays public hosts: `resolve` answers for DNS, `connect_to`
        moves a connection after its address was checked, and `tls` trusts a private authority."""
        self._private_hosts = frozenset(private_hosts)
        self._resolve = resolve
        self._connect_to = connect_to
        self._tls = tls
        self._transport: httpx2.AsyncHTTPTransport | None = None

    async def get(self, url: str, *, max_bytes: int, seconds: float, hosts: Collection[str] = ("*",)) -> Fetched:
        """The body of a GET, at most `max_bytes` of it after decompression. Raises WebError with a reason for the
        agent. `hosts` are those that may be asked, also by a redirect: names, *.names of what is below one, or *."""
        target = self._checked(url, hosts)
        try:
            async with asyncio.timeout(seconds):
                for _ in range(MAX_REDIRECTS + 1):
                    response = await self._ask(target)
                    try:
                        if response.status_code not in _REDIRECTS or "location" not in response.headers:
                            return await _read(response, target, max_bytes)
                    finally:
                        await response.aclose()
                    target = self._redirected(target, response.headers["location"], hosts)
        except TimeoutError:
            raise WebError(f"{target.host} did not answer in full within {seconds:g} seconds") from None
        except httpx2.HTTPError as error:
            raise WebError(f"{target.host} {_complaint(error)}") from error
        raise WebError(f"{url} redirects more than {MAX_REDIRECTS} times")

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    def _checked(self, url: str, hosts: Collection[str]) -> _Target:
        """The address, if it may be asked as far as can be said before its name is looked up."""
        target = _parse(url)
        if not is_among(target.host, hosts):
            raise WebError(f"{target.host} is not one of the hosts this agent may ask")
        if target.port not in PORTS and not is_named(target.host, target.port, self._private_hosts):
            raise WebError(f"port {target.port} may not be asked, only {', '.join(map(str, PORTS))}")
        return target

    def _redirected(self, origin: _Target, location: str, hosts: Collection[str]) -> _Target:
        try:
            target = self._checked(str(origin.url.join(location)), hosts)
            if origin.url.scheme == "https" and target.url.scheme == "http":
                raise WebError("that would be without encryption")
        except (httpx2.InvalidURL, ValueError):
            raise WebError(f"{origin.host} redirects elsewhere, which was not followed: not a web address") from None
        except WebError as error:
            raise WebError(f"{origin.host} redirects elsewhere, which was not followed: {error}") from None
        return target

    async def _ask(self, target: _Target) -> httpx2.Response:
        """The head of the answer, from the first of the host's checked addresses that can be reached."""
        found = await resolve_public(target.host, target.port, private_hosts=self._private_hosts, resolve=self._resolve)
        addresses = [address for _, address in found[:MAX_ADDRESSES]]
        for address in addresses[:-1]:
            try:
                return await self._ask_at(address, target)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._ask_at(addresses[-1], target)

    async def _ask_at(self, address: str, target: _Target) -> httpx2.Response:
        port = target.port
        if self._connect_to is not None:
            address, port = self._connect_to(address, port)
        if self._transport is None:
            # A kept connection belongs to an address: it would serve the next name at that address unverified.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
            self._transport = httpx2.AsyncHTTPTransport(verify=self._tls or True, trust_env=False, limits=limits)
        request = httpx2.Request(
            "GET",
            target.url.copy_with(host=address, port=port),
            headers={
                "Host": _authority(target),
                "User-Agent": "longshore",
                "Accept": "*/*",
                "Accept-Encoding": "identity",
                "Connection": "close",
            },
            # The certificate must be the name's, not the address's. Reading is bounded by the time for the whole.
            extensions={"sni_hostname": target.host, "timeout": {"connect": CONNECT_SECONDS}},
        )
        return await self._transport.handle_async_request(request)


def _parse(url: str) -> _Target:
    shown = url[:200]
    if len(url) > MAX_URL_CHARACTERS:
        raise WebError(f"the address is longer than {MAX_URL_CHARACTERS} characters")
    if _FORBIDDEN.search(url):
        raise WebError(f"{shown!r} is not a web address: it has spaces, backslashes or control characters in it")
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise WebError(f"{shown!r} is not a web address") from None
    if parsed.scheme not in _DEFAULT_PORTS:
        raise WebError(f"{shown!r} is not a web address: it must begin with http:// or https://")
    if parsed.userinfo:
        raise WebError("an address with a user name or password in it is not asked")
    host = normal_host(parsed.raw_host.decode("ascii"))
    port = _DEFAULT_PORTS[parsed.scheme] if parsed.port is None else parsed.port
    return _Target(parsed.copy_with(host=host, fragment=None), host, port)


def _authority(target: _Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == _DEFAULT_PORTS[target.url.scheme] else f"{host}:{target.port}"


async def _read(response: httpx2.Response, target: _Target, max_bytes: int) -> Fetched:
    """Reads no more than `max_bytes` off the wire (give or take a buffer), nor makes more of them."""
    packed = _decompressor(response.headers.get("content-encoding", ""), target.host)
    body = bytearray()
    wire = 0
    cut = False
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            wire += len(chunk)
            try:
                # One more than asked for: that is how more is told from exactly enough.
                body += packed.decompress(chunk, max_bytes + 1 - len(body)) if packed else chunk
            except zlib.error:
                raise WebError(f"{target.host} sent a body that cannot be decompressed") from None
            if cut := max(len(body), wire) > max_bytes:
                break
    if packed and wire and (not packed.eof or packed.unused_data):
        cut = True
    said = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    media_type = said if _MEDIA_TYPE.fullmatch(said) else "application/octet-stream"
    return Fetched(str(target.url), response.status_code, media_type, bytes(body[:max_bytes]), cut)


def _decompressor(encoding: str, host: str) -> "zlib._Decompress | None":
    """For servers that compress although they were asked not to. What it makes of a chunk can be bounded, which is not
    so for the decoders of HTTP clients: a thousandfold is usual for a bomb. It takes a gzip or a zlib header."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise WebError(f"{host} sent the body in an encoding that was not asked for ({encoding[:40]!r})")
    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _complaint(error: httpx2.HTTPError) -> str:
    """What went wrong, in our words: an error's own text may quote what a server sent."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "has no valid certificate for that name"
        if isinstance(cause, ssl.SSLError):
            return "did not agree on an encrypted connection"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.TimeoutException):
        return "cannot be connected to: no answer"
    if isinstance(error, httpx2.ConnectError):
        return "cannot be connected to"
    if isinstance(error, httpx2.ProtocolError):
        return "did not answer in proper HTTP, or broke off within the answer"
    return "broke off the connection"
