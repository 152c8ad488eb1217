"""No address, name, redirect or answer makes the fleet ask its own network, or swallow more than it asked for.

In these tests every address but one leads to a victim with a secret: what is not refused is seen."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from adapters.errors import WebError
from adapters.web import PORTS, Fetched, Web
from tests.support.hostile_web import (
    PUBLIC,
    Answer,
    Internet,
    bomb,
    huge_head,
    internet,
    page,
    raw,
    redirect,
    slow_head,
)

KILOBYTE = 1024
SECONDS = 60.0  # longer than any of this takes, unless the test is about time

PRIVATE_HOSTS = [
    "127.0.0.1",
    "localhost",
    "LOCALHOST.",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "127.0.0.1.",
    "127.0.0.01",
    "0",
    "0.0.0.0",
    "[::]",
    "[::1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:7f00:1::]",
    "[2001:0:5db8:d70e::80ff:fffe]",  # Teredo: a public server, and 127.0.0.1 as the client
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fe80::1%lo]",
    "[fec0::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "[2001:db8::1]",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "１２７.０.０.１",
    "１２７。０。０。１",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "%31%32%37.0.0.1",
    "ⓛocalhost",
]

OTHER_ADDRESSES = [
    ("http://public.example@127.0.0.1/", "user name"),
    ("http://public.example:80@127.0.0.1/", "user name"),
    ("http://127.0.0.1#@public.example/", "not a public address"),
    ("http://127.0.0.1?@public.example/", "not a public address"),
    ("http://127.0.0.1;@public.example/", "user name"),
    ("http://user:word@public.example/", "user name"),
    ("http://public.example\\@127.0.0.1/", "backslashes"),
    ("http:\\\\127.0.0.1\\", "backslashes"),
    ("http://127.0.0.1\\.public.example/", "backslashes"),
    ("http://public.example/\r\nHost: 127.0.0.1\r\n\r\n", "control characters"),
    ("http://public.example/ HTTP/1.1\r\nX: y", "control characters"),
    ("http://public.example\t/", "control characters"),
    ("http://public.example\x00/", "control characters"),
    ("http://public.example\u2028.127.0.0.1/", "not a web address|not the name"),
    ("http://public.example%00.127.0.0.1/", "escape|not the name"),
    ("http://public.example%2f@127.0.0.1/", "user name"),
    ("http:///127.0.0.1/", "not the name of a host"),
    ("http://", "not the name of a host"),
    ("http:127.0.0.1", "not the name of a host|not a web address"),
    ("//127.0.0.1/", "must begin with http"),
    ("127.0.0.1", "must begin with http"),
    ("", "must begin with http"),
    ("file:///etc/passwd", "must begin with http"),
    ("file://public.example/etc/passwd", "must begin with http"),
    ("ftp://public.example/", "must begin with http"),
    ("gopher://public.example:70/_x", "must begin with http"),
    ("data:text/plain,hello", "must begin with http"),
    ("unix:///run/docker.sock", "must begin with http"),
    ("http+unix://%2Frun%2Fdocker.sock/", "must begin with http"),
    ("ws://public.example/", "must begin with http"),
    ("javascript:alert(1)", "must begin with http"),
    ("http://[::1/", "not a web address|not the name"),
    ("http://[public.example]/", "not a web address|not the name"),
    ("http://public.example:22/", "port 22 may not be asked"),
    ("http://public.example:6379/", "port 6379 may not be asked"),
    ("http://public.example:0/", "port 0 may not be asked"),
    ("http://public.example:65616/", "port 65616 may not be asked"),
    ("http://public.example:-80/", "not a web address|may not be asked"),
    ("http://public.example:80:80/", "not a web address|not the name"),
    ("http://public.example/" + "a" * 9000, "longer than"),
    ("http://" + "a" * 64 + ".example/", "not the name of a host"),
    ("http://\ud800.example/", "control characters|not a web address"),
    ("http://no-such-host.example/", "there is no host"),
]


@pytest.fixture
async def world() -> AsyncIterator[Internet]:
    async with internet() as world:
        yield world
        assert world.victim.seen == [], "the victim was asked"


@pytest.fixture
async def web(world: Internet) -> AsyncIterator[Web]:
    web = world.web()
    yield web
    await web.close()


async def get(web: Web, url: str, *hosts: str, seconds: float = SECONDS) -> Fetched:
    return await web.get(url, max_bytes=KILOBYTE, seconds=seconds, hosts=hosts or ("*",))


@pytest.mark.spec("T5", "T8")
async def test_the_public_site_can_be_asked(world: Internet, web: Web) -> None:
    world.site.answers["/"] = page(b"hello")
    assert (await get(web, "http://public.example/")).body == b"hello"
    assert world.dialled == [(PUBLIC, 80)]


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", PRIVATE_HOSTS)
async def test_private_addresses_are_refused_however_they_are_written(
    world: Internet, web: Web, scheme: str, host: str
) -> None:
    with pytest.raises(WebError, match=r"not public|not a public|not the name of a host|not a web address|zone"):
        await get(web, f"{scheme}://{host}/latest/meta-data/")
    assert world.dialled == []


@pytest.mark.spec("T5")
@pytest.mark.parametrize(("url", "reason"), OTHER_ADDRESSES)
async def test_tricks_of_writing_are_refused(world: Internet, web: Web, url: str, reason: str) -> None:
    with pytest.raises(WebError, match=reason):
        await get(web, url)
    assert world.dialled == []


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize(
    "answer",
    [
        ["169.254.169.254"],
        ["fd00:ec2::254"],
        ["fe80::1%eth0"],
        ["::ffff:169.254.169.254"],
        [PUBLIC, "10.0.0.1"],
        ["10.0.0.1", PUBLIC],
        [PUBLIC, "::1"],
        ["garbage"],
    ],
)
async def test_names_with_a_private_address_are_refused(world: Internet, web: Web, answer: list[str]) -> None:
    world.names["metadata.google.internal"] = [answer]
    with pytest.raises(WebError, match=r"metadata.google.internal has an address that is not public") as caught:
        await get(web, "http://metadata.google.internal/")
    assert not any(address in str(caught.value) for address in answer), "internal DNS is not repeated"
    assert world.dialled == []


@pytest.mark.spec("T5", "T8")
async def test_a_name_that_changes_its_meaning_is_asked_where_it_was_checked(world: Internet, web: Web) -> None:
    world.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    world.site.answers["/"] = page(b"hello")
    assert (await get(web, "http://rebind.example/")).body == b"hello"
    assert (world.resolved, world.dialled) == (["rebind.example"], [(PUBLIC, 80)])


@pytest.mark.spec("T5", "T8")
async def test_a_redirect_to_the_same_name_is_checked_again(world: Internet, web: Web) -> None:
    world.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    world.site.answers["/"] = redirect("/again")
    with pytest.raises(WebError, match="not public"):
        await get(web, "http://rebind.example/")
    assert world.dialled == [(PUBLIC, 80)]


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "//127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://2130706433/",
        "http://localhost/",
        "http://metadata.internal/",
        "http://public.example@127.0.0.1/",
        "http://public.example:22/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_FLUSHALL",
        "data:text/plain,hello",
        "http:\\\\127.0.0.1/",
        "/\\127.0.0.1/",
        "http://[",
        "http://\xe9\xff/",
        "http://１２７。０。０。１/".encode().decode("latin-1"),
    ],
)
async def test_redirects_are_checked_like_the_first_address(
    world: Internet, web: Web, location: str, status: str
) -> None:
    world.names["metadata.internal"] = [["169.254.169.254"]]
    world.site.answers["/"] = redirect(location, status)
    with pytest.raises(WebError):
        await get(web, "http://public.example/")
    assert world.dialled == [(PUBLIC, 80)]


@pytest.mark.spec("T5")
async def test_redirects_end(world: Internet, web: Web) -> None:
    world.site.answers["/"] = redirect("/")
    with pytest.raises(WebError, match="more than 5 times"):
        await get(web, "http://public.example/")
    assert len(world.site.seen) == 6


@pytest.mark.spec("T5")
@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("http://public.example/", []),
        ("http://public.example/", ["other.example"]),
        ("http://public.example/", ["*.public.example"]),
        ("http://evilpublic.example/", ["*.public.example", "public.example"]),
        ("http://public.example.evil.example/", ["public.example", "*.public.example"]),
        ("http://evil.example/?public.example", ["public.example"]),
        ("http://93.184.215.14/", ["public.example"]),
    ],
)
async def test_only_hosts_of_the_policy_are_asked(world: Internet, web: Web, url: str, hosts: list[str]) -> None:
    with pytest.raises(WebError, match="is not one of the hosts this agent may ask"):
        await web.get(url, max_bytes=KILOBYTE, seconds=SECONDS, hosts=hosts)
    assert (world.resolved, world.dialled) == ([], [])


@pytest.mark.spec("T5")
async def test_a_redirect_does_not_lead_out_of_the_policy(world: Internet, web: Web) -> None:
    world.site.answers["/"] = redirect("http://other.public.example/")
    with pytest.raises(WebError, match=r"redirects elsewhere.*other.public.example is not one of the hosts"):
        await get(web, "http://public.example/", "public.example")
    assert len(world.site.seen) == 1


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compression_bomb_does_not_go_off(world: Internet, web: Web, encoding: str) -> None:
    world.site.answers["/"] = bomb(encoding)
    tracemalloc.start()
    try:
        fetched = await get(web, "http://public.example/")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (fetched.body, fetched.cut) == (bytes(KILOBYTE), True)
    assert peak < 8 * KILOBYTE * KILOBYTE


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "identity, gzip", "x"])
async def test_other_encodings_are_refused(world: Internet, web: Web, encoding: str) -> None:
    world.site.answers["/"] = page(b"x" * 100, f"Content-Encoding: {encoding}")
    with pytest.raises(WebError, match="encoding that was not asked for"):
        await get(web, "http://public.example/")


@pytest.mark.spec("T5", "T8")
@pytest.mark.parametrize(
    ("head", "chunk"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX: y\r\n\r\n", b"x" * 65536),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n", b"x" * 65536),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        # Empty gzip members: nothing ever comes out of what is read.
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", b"\x1f\x8b\x08" + bytes(7) + b"\x03\x00" + bytes(8)),
    ],
)
async def test_an_endless_body_is_left(world: Internet, web: Web, head: bytes, chunk: bytes) -> None:
    world.site.answers["/"] = world.site.endless(head, chunk)
    fetched = await get(web, "http://public.example/")
    assert len(fetched.body) <= KILOBYTE
    assert fetched.cut or fetched.body == b"x" * 10


@pytest.mark.spec("T5")
async def test_a_server_that_never_finishes_is_left(world: Internet, web: Web) -> None:
    world.site.answers |= {"/head": slow_head(), "/silence": _silence, "/body": _drip}
    for path in world.site.answers:
        with pytest.raises(WebError, match=r"public.example did not answer in full within 0.3 seconds"):
            await get(web, f"http://public.example{path}", seconds=0.3)


@pytest.mark.spec("T5")
async def test_time_is_counted_over_all_redirects(world: Internet, web: Web) -> None:
    async def slowly(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        await redirect("/")(writer)

    world.site.answers["/"] = slowly
    with pytest.raises(WebError, match="did not answer in full"):
        await get(web, "http://public.example/", seconds=0.5)


@pytest.mark.spec("T5")
@pytest.mark.parametrize(
    "answer",
    [
        huge_head(),
        raw(b""),
        raw(b"\x00\xff garbage \r\n\r\n"),
        raw(b"SSH-2.0-OpenSSH_9.0\r\n"),
        raw(b"+OK\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nshort"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nshort!"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nshort"),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nshort"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nnot gzip"),
        raw(b"HTTP/1.1 99999 OK\r\n\r\n"),
    ],
)
async def test_garbage_is_an_error_that_does_not_quote_it(world: Internet, web: Web, answer: Answer) -> None:
    world.site.answers["/"] = answer
    with pytest.raises(WebError, match=r"did not answer in proper HTTP|broke off|cannot be decompressed") as caught:
        await get(web, "http://public.example/")
    assert not any(word in str(caught.value) for word in ("SSH", "OK", "garbage", "short"))


@pytest.mark.spec("T5")
async def test_nothing_is_remembered_between_fetches(world: Internet, web: Web) -> None:
    world.site.answers["/"] = page(b"hello", "Set-Cookie: session=1; Path=/", "Connection: keep-alive")
    for _ in range(2):
        await get(web, "http://public.example/")
    assert all("cookie" not in head.lower() for head in world.site.seen)
    assert all("connection: close" in head.lower() for head in world.site.seen)


@pytest.mark.spec("T5")
async def test_proxies_of_the_environment_are_not_used(
    world: Internet, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{world.victim.port}")
    world.site.answers["/"] = page(b"hello")
    assert (await get(web, "http://public.example/")).body == b"hello"


@pytest.mark.spec("T5")
async def test_the_system_resolver_is_checked_as_well(world: Internet) -> None:
    web = Web()
    with pytest.raises(WebError, match="localhost has an address that is not public"):
        await get(web, f"http://localhost:{PORTS[2]}/")
    await web.close()


async def _silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _drip(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)
