"""Which addresses are the public internet, and what a name means there.

Agents name hosts; so do the pages they read. Whatever connects for them (the web port, the sandbox's proxy) asks here
first and connects to an address from the answer, never to the name: a name can mean something else a moment later."""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from adapters.errors import WebError

# (family, address) of each address of a name. Raises OSError when it has none.
Resolver = Callable[[str, int], Awaitable[list[tuple[int, str]]]]

RESOLVE_SECONDS: Final = 10.0

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*", re.DOTALL)
# What inet_aton would take for (a part of) an address: 127.1, 0x7f000001, 2130706433.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

# Kept here and not left to `ipaddress.is_global`, which has changed its mind between patch releases of Python.
_NOT_PUBLIC_V4: Final = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; a cloud's metadata service is in it
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host agent: looks public, answers only to the machines on it
        "169.254.0.0/16",  # link-local; most clouds' metadata service
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; another cloud's metadata service
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, given up
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
# Everything else (loopback, link-local, site-local, unique local, multicast, IPv4-compatible, local NAT64) is outside.
_UNICAST_V6: Final = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6: Final = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, benchmarking and ORCHID among them; Teredo is looked into before
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
]
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether it is a globally routable unicast address. One that wraps an IPv4 address is what that address is.

    Text that is no address, or has a zone, is not public."""
    if "%" in address:
        return False
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return _is_public_v4(ip)
    if wrapped := _wrapped(ip):
        return all(map(_is_public_v4, wrapped))
    return ip in _UNICAST_V6 and not any(ip in network for network in _NOT_PUBLIC_V6)


def _is_public_v4(ip: ipaddress.IPv4Address) -> bool:
    return not any(ip in network for network in _NOT_PUBLIC_V4)


def _wrapped(ip: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that packets to it end up at. IPv4-compatible addresses and the local NAT64 prefix have some
    as well, but are never public."""
    if ip.ipv4_mapped is not None:
        return [ip.ipv4_mapped]
    if ip.sixtofour is not None:
        return [ip.sixtofour]
    if ip.teredo is not None:
        return list(ip.teredo)
    if ip in _NAT64:
        return [ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)]
    return []


def normal_host(host: str) -> str:
    """The one way to write a host: lower case, no final dot, an address without brackets. It is ASCII: names in other
    scripts come IDNA-encoded, as a URL parser or a client's CONNECT gives them.

    WebError for what is neither a name nor a plainly written address: resolvers read 127.1 or 0x7f000001 as addresses,
    and allow lists do not."""
    shown = host[:100]
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if "%" in bare:
        raise WebError(f"{shown!r}: a host with a zone or an escape in it is not asked")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        name = bare.lower().removesuffix(".")
    if not bare.isascii() or not _NAME.fullmatch(name):
        raise WebError(f"{shown!r} is not the name of a host")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        raise WebError(f"{shown!r} is not the name of a host; an address is written as four decimal numbers")
    return name


def is_among(host: str, patterns: Collection[str]) -> bool:
    """Whether a host is one of those: by its own name, as a part of a domain (`*.example.com`), or because all are
    (`*`)."""
    for pattern in (pattern.lower().removesuffix(".") for pattern in patterns):
        if pattern in ("*", host) or (pattern.startswith("*.") and host.endswith(pattern[1:])):
            return True
    return False


def is_named(host: str, port: int, private_hosts: Collection[str]) -> bool:
    """Whether an operator has named this host, or this port of it."""
    written = f"[{host}]" if ":" in host else host
    named = {entry.lower() for entry in private_hosts}
    return not named.isdisjoint({host, written, f"{written}:{port}"})


async def resolve_public(
    host: str, port: int, *, private_hosts: Collection[str] = (), resolve: Resolver | None = None
) -> list[tuple[int, str]]:
    """(family, address) of each of the host's addresses, IPv4 first: connect to one of these, not to the name.

    WebError when there is none, or when one is not public, even if others are: such an answer is a mistake or an
    attack. Hosts in `private_hosts` (a host, or host:port) may be anywhere. The text does not repeat what internal
    DNS answered. `resolve` replaces the system's resolver."""
    name = normal_host(host)
    try:
        literal = ipaddress.ip_address(name)
    except ValueError:
        found = await _look_up(name, port, resolve or _system_resolver)
    else:
        found = [(socket.AF_INET if literal.version == 4 else socket.AF_INET6, name)]
    if not is_named(name, port, private_hosts) and not all(is_public(address) for _, address in found):
        reason = "is not a public address" if found[0][1] == name else "has an address that is not public"
        raise WebError(f"{name} {reason}; only the public internet may be asked")
    return sorted(found, key=lambda item: item[0] != socket.AF_INET)


# A name whose server does not answer keeps its thread, also after we have given up on it: threads of their own, so that
# nothing but other names waits for it.
_RESOLVERS: Final = ThreadPoolExecutor(8, thread_name_prefix="longshore-dns")


async def _look_up(name: str, port: int, resolve: Resolver) -> list[tuple[int, str]]:
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await resolve(name, port)
    except TimeoutError:
        raise WebError(f"{name}: no answer to who that is within {RESOLVE_SECONDS:g} seconds") from None
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise WebError(f"there is no host {name}")
    return found


async def _system_resolver(name: str, port: int) -> list[tuple[int, str]]:
    ask = partial(socket.getaddrinfo, name, port, type=socket.SOCK_STREAM)
    answers = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, ask)
    return list(dict.fromkeys((int(family), str(sockaddr[0])) for family, _, _, _, sockaddr in answers))
