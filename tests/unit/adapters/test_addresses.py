"""What is public, and what a host's name may be."""

import asyncio
import ipaddress
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters import addresses
from adapters.addresses import is_public, normal_host, resolve_public
from adapters.errors import WebError

V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)


def answering(*found: str) -> addresses.Resolver:
    async def resolve(name: str, port: int) -> list[tuple[int, str]]:
        return [(socket.AF_INET6 if ":" in address else socket.AF_INET, address) for address in found]

    return resolve


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "93.184.215.14",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "2001:200::1",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ],
)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.255.255.254", "169.254.1.1"),
        *("168.63.129.16", "172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.0.170", "192.0.2.9", "192.88.99.1"),
        *("192.168.0.0", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1"),
        *("240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::7f00:1", "::8.8.8.8", "::ffff:10.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b::10.0.0.1"),
        *("64:ff9b:1::8.8.8.8", "64:ff9b:1:7f00:0:100::", "100::1", "2001::1", "2001:2::1", "2001:10::1", "2001:20::1"),
        *("2001:db8::1", "2002:a00:1::", "3fff::1", "5f00::1", "fc00::1", "fdff::1", "fe80::1", "febf::1", "fec0::1"),
        *("ff02::1", "ff0e::1", "4000::1", "fe80::1%eth0", "8.8.8.8%eth0", "2606:4700:4700::1111%1"),
        *("", "example.com", "127.1", "1.1.1", "01.1.1.1", "[::1]", "1.1.1.1/32", " 1.1.1.1", "１.1.1.1"),
    ],
)
def test_everything_else_is_not(address: str) -> None:
    assert not is_public(address)


@given(V4 | V6)
def test_what_python_knows_not_to_be_global_is_not_public(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    wraps = ip.version == 6 and any(ip in ipaddress.ip_network(n) for n in ("::ffff:0:0/96", "2001::/32"))
    if not wraps and (not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_link_local):
        assert not is_public(str(ip))


@given(V4)
def test_a_wrapped_address_is_what_is_inside(ip: ipaddress.IPv4Address) -> None:
    number = int(ip)
    for wrapped in (0xFFFF << 32 | number, 0x0064FF9B << 96 | number, 0x2002 << 112 | number << 80):
        assert is_public(str(ipaddress.IPv6Address(wrapped))) == is_public(str(ip))
    # Teredo: the client's address is kept inverted, and the server's has to be public as well.
    teredo = 0x20010000 << 96 | 0x08080808 << 64 | (number ^ 0xFFFFFFFF)
    assert is_public(str(ipaddress.IPv6Address(teredo))) == is_public(str(ip))


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    is_public(text)
    try:
        name = normal_host(text)
    except WebError:
        return
    assert normal_host(name) == name
    assert name.isascii()


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("xn--mnchen-3ya.de", "xn--mnchen-3ya.de"),
        ("_service.example.com", "_service.example.com"),
        ("1.1.1.1", "1.1.1.1"),
        ("[2606:4700::0:1111]", "2606:4700::1111"),
        ("3com.example", "3com.example"),
        ("0x7f.example", "0x7f.example"),
    ],
)
def test_a_host_is_written_in_one_way(written: str, normal: str) -> None:
    assert normal_host(written) == normal


@pytest.mark.parametrize("host", ["", ".", "a..b", "a b", "a/b", "a@b", "a:80", "-a.example", "127.1", "0x7f", "é.de"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(WebError, match="is not the name of a host"):
        normal_host(host)


@pytest.mark.spec("T5", "T8")
async def test_all_addresses_are_given_and_ipv4_comes_first() -> None:
    found = await resolve_public("Example.com.", 443, resolve=answering("2606:4700::1", "1.1.1.1", "2606:4700::2"))
    assert found == [
        (socket.AF_INET, "1.1.1.1"),
        (socket.AF_INET6, "2606:4700::1"),
        (socket.AF_INET6, "2606:4700::2"),
    ]


async def test_an_address_is_not_looked_up() -> None:
    async def never(name: str, port: int) -> list[tuple[int, str]]:
        raise AssertionError

    assert await resolve_public("1.1.1.1", 80, resolve=never) == [(socket.AF_INET, "1.1.1.1")]
    assert await resolve_public("[2606:4700::1]", 80, resolve=never) == [(socket.AF_INET6, "2606:4700::1")]


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize("found", [["10.0.0.1"], ["1.1.1.1", "10.0.0.1"], ["10.0.0.1", "1.1.1.1"]])
async def test_one_private_address_is_enough_to_refuse(found: list[str]) -> None:
    with pytest.raises(WebError, match=r"intra\.example has an address that is not public") as caught:
        await resolve_public("intra.example", 80, resolve=answering(*found))
    assert "10.0.0.1" not in str(caught.value)


async def test_a_private_address_is_named_as_it_was_asked() -> None:
    with pytest.raises(WebError, match=r"10\.0\.0\.1 is not a public address"):
        await resolve_public("10.0.0.1", 80)


@pytest.mark.parametrize("named", ["intra.example", "Intra.Example", "intra.example:8000"])
async def test_a_host_that_the_operator_named_may_be_private(named: str) -> None:
    resolve = answering("10.0.0.1")
    found = await resolve_public("intra.example", 8000, private_hosts=[named], resolve=resolve)
    assert found == [(socket.AF_INET, "10.0.0.1")]


@pytest.mark.parametrize("named", ["example", "intra.example:80", "xintra.example", "10.0.0.1", "*", "*.example"])
async def test_only_that_host_may(named: str) -> None:
    with pytest.raises(WebError, match="not public"):
        await resolve_public("intra.example", 8000, private_hosts=[named], resolve=answering("10.0.0.1"))


async def test_a_named_ipv6_address_is_found_in_brackets() -> None:
    assert await resolve_public("::1", 8000, private_hosts=["[::1]:8000"]) == [(socket.AF_INET6, "::1")]
    with pytest.raises(WebError, match="not a public address"):
        await resolve_public("::1", 8001, private_hosts=["[::1]:8000"])


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")])
async def test_a_name_without_an_address_is_said_to_be_none(error: Exception) -> None:
    async def failing(name: str, port: int) -> list[tuple[int, str]]:
        raise error

    for resolve in (failing, answering()):
        with pytest.raises(WebError, match=r"there is no host nowhere\.example"):
            await resolve_public("nowhere.example", 80, resolve=resolve)


async def test_a_resolver_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging(name: str, port: int) -> list[tuple[int, str]]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(addresses, "RESOLVE_SECONDS", 0.01)
    with pytest.raises(WebError, match=r"slow\.example: no answer"):
        await resolve_public("slow.example", 80, resolve=hanging)


async def test_the_systems_resolver_is_asked_without_another() -> None:
    with pytest.raises(WebError, match="localhost has an address that is not public"):
        await resolve_public("localhost", 80)
    assert (socket.AF_INET, "127.0.0.1") in await resolve_public("localhost", 80, private_hosts=["localhost"])


@pytest.mark.spec("T5")
async def test_a_name_whose_server_is_slow_keeps_nobody_elses_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def slow(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        threads.append(threading.current_thread().name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert await resolve_public("slow.example", 80) == [(socket.AF_INET, "93.184.216.34")]
    assert threads[0].startswith("longshore-dns")
