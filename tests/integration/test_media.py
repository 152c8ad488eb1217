"""What people attach: fetched, kept, shown to models that can see, and told in words where they cannot."""

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.channel_port import Channel
from adapters.channels.fake import FakeChannel
from adapters.channels.telegram import TelegramChannel
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from models import TranscriptItem
from models.inbox import MessageIn
from tests.support.fleet import Fleet, MakeFleet
from tests.support.model_api import ModelApi, refuse, reply, rule, script
from tests.support.static_web import StaticWeb
from tests.support.telegram_api import PERSON, TOKEN, TelegramApi
from workers import media
from workers.media import _name
from workers.refusals import RefusedError


def png(width: int = 2, height: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


PDF = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n%%EOF\n"
FILES = {
    "/cat.png": ("image/png", png()),
    "/lying.png": ("image/png", b"<html>not a picture</html>"),
    "/nameless": ("application/octet-stream", png()),
    "/huge.png": ("image/png", png(60_000, 60_000)),
    "/terms.pdf": ("application/pdf", PDF),
    "/data.xlsx": ("application/vnd.ms-excel", b"PK\x03\x04rows"),
}


@pytest.fixture
async def web() -> AsyncIterator[StaticWeb]:
    async with StaticWeb(FILES) as server:
        yield server


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelApi]:
    async with ModelApi(script(rule(None, reply("I see.")))) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "fake-key-anthropic")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "fake-key-openai")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        yield server
        assert server.problems == []


@pytest.fixture
async def fleet(make_fleet: MakeFleet, web: StaticWeb) -> Fleet:
    return await make_fleet(private_hosts=f"127.0.0.1:{web.port}")


async def show(fleet: Fleet, *attachments: dict[str, Any], provider: str = "anthropic", **group: Any) -> None:
    await fleet.add_group(provider=provider, **group)
    await fleet.send(None, content={"text": "look", "attachments": list(attachments)})  # type: ignore[arg-type]
    assert await fleet.answer_wakes() == ["completed"]


def sent(api: ModelApi) -> str:
    return json.dumps(api.bodies[-1])


PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


@PROVIDERS
@pytest.mark.spec("T8", "P3")
async def test_a_picture_and_a_pdf_are_shown(fleet: Fleet, api: ModelApi, web: StaticWeb, provider: str) -> None:
    await show(
        fleet,
        {"type": "image", "name": "cat.png", "url": web.url("/cat.png")},
        {"type": "file", "name": "terms.pdf", "url": web.url("/terms.pdf")},
        provider=provider,
    )
    assert base64.b64encode(png()).decode() in sent(api)
    # A server that only speaks Chat Completions cannot be shown a PDF; where it lies is told in any case.
    assert (base64.b64encode(PDF).decode() in sent(api)) == (provider == "anthropic")
    assert "2-terms.pdf" in sent(api)
    [message] = await fleet.rows(MessageIn)
    folder = (await fleet.runtime.workspace("demo")).root / "downloads" / message.id
    assert (folder / "1-cat.png").read_bytes() == png()
    assert f"/workspace/downloads/{message.id}/1-cat.png" in sent(api)
    items = await fleet.rows(TranscriptItem, TranscriptItem.position)
    assert [item.type for item in items if item.role == "user"][-1] == "text"
    assert {item.type for item in items} == {"media", "text"}
    assert base64.b64encode(png()).decode() not in json.dumps([item.content for item in items])


@PROVIDERS
@pytest.mark.spec("T8", "P17")
async def test_it_is_still_seen_in_the_next_turn_unless_it_is_gone(
    fleet: Fleet, api: ModelApi, web: StaticWeb, provider: str
) -> None:
    await show(fleet, {"name": "cat.png", "url": web.url("/cat.png")}, provider=provider)
    await fleet.send("and now?")
    assert await fleet.answer_wakes() == ["completed"]
    assert base64.b64encode(png()).decode() in sent(api)
    [saved] = (await fleet.runtime.workspace("demo")).root.glob("downloads/*/1-cat.png")
    saved.write_bytes(b"something else altogether")
    await fleet.send("and now?")
    assert await fleet.answer_wakes() == ["completed"]
    assert base64.b64encode(png()).decode() not in sent(api)
    assert "[image: cat.png]" in sent(api)


@pytest.mark.spec("T8")
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/data.xlsx", "[file: data.xlsx - file available at: /workspace/downloads/"),
        ("/lying.png", "[file: lying.png - file available at"),  # it says it is a picture; it is not
        ("/huge.png", "[file: huge.png - file available at"),  # 3.6 billion pixels: no model's business
        ("/nameless", "[image: nameless - file available at"),  # it does not say, but it is
        ("/missing.png", "[file: missing.png - not available: the server answered 404]"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # it is about files
async def test_what_it_is_counts_and_not_what_it_is_called(
    fleet: Fleet, api: ModelApi, web: StaticWeb, path: str, told: str
) -> None:
    await show(fleet, {"type": "image", "name": path[1:], "url": web.url(path)})
    assert told in sent(api)
    assert ('"type": "image"' in sent(api)) == (path == "/nameless")


@pytest.mark.spec("T8")
async def test_a_provider_that_cannot_see_is_told_where_it_lies(fleet: Fleet, web: StaticWeb) -> None:
    assert not ScriptedProvider().manifest.capabilities.images
    await show(
        fleet,
        {"name": "cat.png", "url": web.url("/cat.png")},
        provider="scripted",
        config={
            "provider_options": {
                "script": "- play: [{tool: list_files, with: {path: downloads, recursive: true}}, {answer: '{result}'}]"
            }
        },
    )
    [row] = await fleet.outbox()
    assert "1-cat.png" in row.content["text"]


@pytest.mark.spec("T8")
@pytest.mark.parametrize(
    ("attachment", "problem"),
    [
        ({"url": "http://169.254.169.254/latest/meta-data"}, "not available"),
        ({"url": "http://localhost:1/x"}, "not available"),
        ({"url": "file:///etc/passwd"}, "not available"),
        ({"url": 7}, "neither an address nor data"),
        ({"data": "not base64!"}, "its data is not base64"),
        ({}, "neither an address nor data"),
        ({"note": "too large"}, "too large"),
    ],
)
@pytest.mark.parametrize("database_kind", ["sqlite"])  # it is about files
async def test_what_cannot_be_had_is_told_and_the_turn_goes_on(
    fleet: Fleet, api: ModelApi, attachment: dict[str, Any], problem: str
) -> None:
    await show(fleet, {"name": "x", **attachment})
    assert problem in sent(api)
    # Those who look on see it too.
    assert any(problem in row.payload["text"] for row in await fleet.events() if row.type == "progress")


@pytest.mark.spec("T8")
async def test_data_that_comes_with_the_message(fleet: Fleet, api: ModelApi) -> None:
    data = base64.b64encode(png()).decode()
    await show(fleet, {"name": "inline.png", "data": data})
    assert data in sent(api)


@pytest.mark.spec("T8", "M7")
async def test_a_second_attempt_fetches_nothing_again(fleet: Fleet, api: ModelApi, web: StaticWeb) -> None:
    api.fail(refuse("server_error"))
    await fleet.add_group(provider="anthropic")
    content = {"text": "look", "attachments": [{"name": "cat.png", "url": web.url("/cat.png")}]}
    await fleet.send(None, content=content)  # type: ignore[arg-type]
    assert await fleet.answer_wakes() == ["waiting"]
    while not (outcome := await fleet.answer_wakes()):
        await fleet.sweep()
    assert outcome == ["completed"]
    assert web.asked == ["/cat.png"]


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramApi]:
    stand_in = TelegramApi()
    yield stand_in
    stand_in.close()


class CrashingChannel(FakeChannel):
    async def fetch(self, reference: str, limit: int) -> bytes:
        raise RuntimeError("https://files.example/secret-key")


class SilentChannel(FakeChannel):
    async def fetch(self, reference: str, limit: int) -> bytes:
        return await asyncio.Future()


class GenerousChannel(FakeChannel):
    async def fetch(self, reference: str, limit: int) -> bytes:
        return b"x" * (limit + 1)


async def kept_by(make_fleet: MakeFleet, channel: Channel, *references: str) -> Fleet:
    """A fleet that was sent what a platform keeps, and has answered."""
    channels = Drivers[Channel]("channel", {channel.channel_type: channel})
    fleet = await make_fleet(Registry(channels=channels))
    await fleet.add_group(provider="anthropic")
    attachments = [{"name": reference, "reference": reference} for reference in references]
    content = {"text": "look", "attachments": attachments}
    await fleet.send(None, content=content, channel_type=channel.channel_type, platform_id=str(PERSON))  # type: ignore[arg-type]
    assert await fleet.answer_wakes() == ["completed"]
    return fleet


@pytest.mark.spec("T8", "C2")
@pytest.mark.parametrize("database_kind", ["sqlite"])  # it is about files
async def test_what_a_platform_keeps_is_fetched_by_its_channel(
    make_fleet: MakeFleet, api: ModelApi, telegram: TelegramApi
) -> None:
    """Where it lies is known to nobody else: that address holds the bot's token."""
    telegram.files["cat"] = ("photos/file_1.jpg", png())
    fleet = await kept_by(make_fleet, TelegramChannel(TOKEN, "", api=telegram.url), "cat", "gone")
    assert base64.b64encode(png()).decode() in sent(api)
    assert "[image: cat - file available at: /workspace/downloads/" in sent(api)
    assert "[file: gone - not available: Telegram answered 400: Bad Request: wrong file_id" in sent(api)
    [row] = await fleet.inbox()
    assert row.content["attachments"] == [{"name": one, "reference": one} for one in ("cat", "gone")]
    assert TOKEN not in sent(api) + json.dumps([event.payload for event in await fleet.events()])


@pytest.mark.spec("T8")
@pytest.mark.parametrize("database_kind", ["sqlite"])  # it is about files
@pytest.mark.parametrize(
    ("channel", "problem"),
    [
        (FakeChannel(), "the fake channel keeps no attachments"),
        (CrashingChannel(), "the fake channel crashed (RuntimeError)"),
        (SilentChannel(), "fake did not send it within 0.2 s"),
        (GenerousChannel(), "it is larger than 20 MB"),
    ],
)
async def test_a_channel_that_cannot_fetch_costs_the_file_and_not_the_turn(
    make_fleet: MakeFleet, api: ModelApi, channel: FakeChannel, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "SECONDS", 0.2)
    fleet = await kept_by(make_fleet, channel, "cat")
    assert f"[file: cat - not available: {problem}]" in sent(api)
    assert "secret-key" not in sent(api) + json.dumps([event.payload for event in await fleet.events()])


@pytest.mark.parametrize(
    ("claimed", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("..", "attachment1"),
        ("C:\\temp\\a.png", "a.png"),
        (".bashrc", "bashrc"),
        ("a\x00b\nc.txt", "a_b_c.txt"),
        ("x" * 300 + ".png", "x" * 76 + ".png"),
        ("", "attachment1"),
        ("日本.pdf", "日本.pdf"),
    ],
)
def test_names(claimed: str, kept: str) -> None:
    assert _name({"name": claimed}, 1) == kept


@pytest.mark.spec("T8", "M1")
@pytest.mark.parametrize("attachments", ["cat.png", [7], {"name": "x"}])
async def test_what_is_no_list_of_attachments_is_refused_at_the_door(fleet: Fleet, attachments: Any) -> None:
    await fleet.add_group()
    with pytest.raises(RefusedError, match="attachments must be a list of objects"):
        await fleet.send(None, content={"text": "look", "attachments": attachments})  # type: ignore[arg-type]
