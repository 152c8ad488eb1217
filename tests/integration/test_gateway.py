"""What platforms send over HTTP: verified on the raw body, stored once, and answered so that nothing is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from adapters.channel_port import Answer, InboundMessage, InboundRequest, Received
from adapters.channels import fake
from adapters.channels.conformance import FORGERIES
from adapters.channels.signing import HEADER, sign
from adapters.channels.telegram.channel import TelegramChannel
from adapters.registry import Drivers, Registry
from gateway.http import limits, serving
from gateway.http.waiting import asked_to_wait
from models import MessagingGroup, Rejected, Wiring
from models.base import new_id
from models.database import Database
from models.errors import DatabaseDownError
from tests.support.fleet import HeldBells, MakeFleet
from tests.support.forged_requests import forge_request
from tests.support.open_gateway import Gateway, Platform, answering, gateway_to, registry_with, wire
from tests.support.scripts import QUESTION_SCRIPT
from tests.support.webhook_server import WebhookServer
from workers.intake.doors import MAX_FAILURES, finish_telling, take_in
from workers.settings import Settings

NOT_FOUND = "Not Found"
# For what has nothing to do with the kind of database.
ONE_DATABASE = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path) -> AsyncIterator[Gateway]:
    fleet = await make_fleet(registry_with(tmp_path))
    agent = await fleet.add_group(script="You said: {texts}")
    for channel, chat in (("platform", "plaza"), ("webhook", "crm")):
        await wire(fleet, agent, channel, chat)
    async with gateway_to(fleet) as opened:
        yield opened


@pytest.mark.spec("C8", "M1")
async def test_a_platform_s_message_becomes_one_row_however_often_it_is_sent(gateway: Gateway) -> None:
    answers = [await gateway.platform() for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    accepted = [answer.json()["accepted"][0] for answer in answers]
    assert [one["duplicate"] for one in accepted] == [False, True, True]
    [row] = await gateway.fleet.inbox()
    assert {one["id"] for one in accepted} == {row.id}
    assert (row.channel_type, row.platform_id, row.sender_id, row.platform_message_id) == (
        "platform",
        "plaza",
        "ada",
        "m1",
    )
    assert len(gateway.fleet.bells.wakes) == 1


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_a_channel_without_a_secret_has_no_route(gateway: Gateway) -> None:
    body = b'{"id": 1, "chat": "plaza", "text": "hi"}'
    for channel in ("nobody", "local", "fake", "web"):
        answer = await gateway.send(channel, InboundRequest({HEADER: sign(fake.SECRET, body)}, body))
        assert (answer.status_code, answer.json()["detail"]) == (404, NOT_FOUND)
    unknown = await gateway.client.post("/somewhere/else", content=body)
    assert (unknown.status_code, unknown.json()["detail"]) == (404, NOT_FOUND)


@pytest.mark.spec("C8")
async def test_what_is_not_signed_is_refused_without_a_row_and_without_a_hint(gateway: Gateway) -> None:
    for forgery in FORGERIES:
        request = forge_request(fake.SECRET, b'{"id": 1, "chat": "plaza", "text": "hi"}', forgery, {})
        answer = await gateway.send("platform", request)
        assert answer.status_code == 401
        assert answer.json()["detail"] == "the request is not signed as this channel wants it"
    for unreadable in (b"not json", b"\xff", b"[" * 5000):
        answer = await gateway.send("platform", InboundRequest({HEADER: "sha256=00"}, unreadable))
        assert answer.status_code == 401, "nothing of it was read"
    assert await gateway.fleet.inbox() == []
    assert await gateway.fleet.rows(Rejected) == []


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_what_is_signed_and_unreadable_is_told_so(gateway: Gateway) -> None:
    for body in (b"", b"not json", b"\xff", b"[]", b"null", b'{"id": 1}', b'[{"id": [[]]}]'):
        answer = await gateway.send("platform", InboundRequest({HEADER: sign(fake.SECRET, body)}, body))
        assert answer.status_code == 400
        assert "needs id, chat and text" in answer.json()["detail"]
    assert await gateway.fleet.rows(Rejected) == []


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_a_body_that_is_too_long_is_refused_said_beforehand_or_not(gateway: Gateway) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b"x" * (limits.MAX_BODY_BYTES // 8)

    whole = b"x" * (limits.MAX_BODY_BYTES + 1)
    for content in (whole, chunks()):
        answer = await gateway.client.post("/channels/platform", content=content)
        assert answer.status_code == 413
        assert answer.json()["detail"].startswith("the body is too long")


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_who_sends_slowly_keeps_nobody_out(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.05)
    head = b"POST /channels/platform HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
    for begun, answer in ((head + b"\r\n{", b"HTTP/1.1 408 "), (head, b""), (b"", b"")):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(begun)
        async with asyncio.timeout(20):
            told = await reader.read()  # to the end: the connection is closed
        assert told.startswith(answer)
        assert bool(told) == bool(answer)
        writer.close()


@pytest.mark.spec("C8", "C2")
@ONE_DATABASE
async def test_telegram_s_webhook_comes_in_with_its_secret_and_not_without(make_fleet: MakeFleet) -> None:
    telegram = TelegramChannel("4711:AAbbccddee", "of-the-webhook", username="fleet_bot")
    fleet = await make_fleet(Registry(channels=Drivers("channel", {"telegram": telegram, "web": Platform()})))
    await wire(fleet, await fleet.add_group(), "telegram", "7")
    person = {"id": 7, "is_bot": False, "first_name": "Ada"}
    message = {"message_id": 5, "date": 1, "chat": {"id": 7, "type": "private"}, "from": person, "text": "hello"}
    body = json.dumps({"update_id": 1, "message": message}).encode()
    async with gateway_to(fleet) as gateway:
        for secret, status in (("of-another", 401), ("of-the-webhook", 200)):
            headers = {"x-telegram-bot-api-secret-token": secret}
            assert (await gateway.send("telegram", InboundRequest(headers, body))).status_code == status
    [row] = await fleet.inbox()
    assert (row.channel_type, row.platform_id, row.sender_id, row.content["text"]) == ("telegram", "7", "7", "hello")


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_the_longest_body_is_read(gateway: Gateway) -> None:
    start, end = b'{"id": 1, "chat": "plaza", "text": "hi", "more": "', b'"}'
    body = start + b"x" * (limits.MAX_BODY_BYTES - len(start) - len(end)) + end
    answer = await gateway.send("platform", InboundRequest({HEADER: sign(fake.SECRET, body)}, body))
    assert answer.status_code == 200


@pytest.mark.spec("C8", "M2")
async def test_what_nobody_listens_to_is_no_error_to_a_platform_and_is_kept_without_its_text(
    gateway: Gateway,
) -> None:
    for _ in range(2):
        answer = await gateway.platform(chat="elsewhere", text="between us")
        assert (answer.status_code, answer.json()) == (200, {"accepted": [], "ignored": 1})
    [kept] = await gateway.fleet.rows(Rejected)
    assert kept.source == "platform"
    assert kept.payload["platform_id"] == "elsewhere"
    assert "between us" not in str(kept.payload)


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_what_a_channel_filters_is_ignored_and_not_kept(gateway: Gateway) -> None:
    answer = await gateway.platform(sender="bot")
    assert (answer.status_code, answer.json()) == (200, {"accepted": [], "ignored": 1})
    assert await gateway.fleet.inbox() == []
    assert await gateway.fleet.rows(Rejected) == []


@pytest.mark.spec("C8")
async def test_no_display_name_keeps_a_message_out(gateway: Gateway) -> None:
    names = ("a" * 5000, "two\nlines", "\x00", "zero\u200bwidth", "half a pair \ud800", "")
    messages = tuple(
        InboundMessage("plaza", f"m{number}", {"text": "hello"}, sender_id=f"ada{number}", sender_name=name)
        for number, name in enumerate(names)
    )
    channel = gateway.fleet.runtime.registry.channels.get("platform")
    taken = await take_in(gateway.fleet.runtime, channel, Received(messages))
    assert [outcome.word for outcome in taken.outcomes] == ["accepted"] * len(names)


@pytest.mark.spec("M1")
async def test_one_bad_message_does_not_stop_its_neighbours(gateway: Gateway) -> None:
    fleet = gateway.fleet
    channel = fleet.runtime.registry.channels.get("platform")
    bad: list[dict[str, Any]] = [
        {"platform_message_id": "x" * 300},
        {"content": {"text": "x" * 300_000}},
        {"content": {"attachments": 5}},
        {"platform_id": "\ud800"},
        {"kind": "poem"},
    ]
    given: dict[str, Any] = {"platform_id": "plaza", "content": {"text": "hi"}, "sender_id": "ada"}
    messages = [InboundMessage(**(given | {"platform_message_id": str(n)} | odd)) for n, odd in enumerate(bad)]
    messages += [InboundMessage(**given, platform_message_id="good")]
    taken = await take_in(fleet.runtime, channel, Received(tuple(messages)))
    assert [outcome.word for outcome in taken.outcomes] == ["refused"] * len(bad) + ["accepted"]
    assert all(outcome.reason for outcome in taken.refused)
    assert [row.platform_message_id for row in await fleet.inbox()] == ["good"]
    assert len(await fleet.rows(Rejected)) == 2, "one a day for each sender in each place"


class Crashing(Platform):
    """A driver with a bug that only some messages find."""

    def accepts(self, message: InboundMessage) -> bool:
        if message.content["text"] == "boom":
            raise KeyError("boom")
        return True


@pytest.mark.spec("M1")
@ONE_DATABASE
async def test_a_driver_that_crashes_on_one_message_is_still_asked_about_the_next(gateway: Gateway) -> None:
    texts = ("boom", "hello")
    messages = tuple(InboundMessage("plaza", f"m-{text}", {"text": text}, sender_id="ada") for text in texts)
    for _ in range(MAX_FAILURES - 1):  # the platform is to send it again: it may be mended by then
        with pytest.raises(KeyError):
            await take_in(gateway.fleet.runtime, Crashing(), Received(messages))
    assert [row.content["text"] for row in await gateway.fleet.inbox()] == ["hello"]
    assert await gateway.fleet.rows(Rejected) == []
    taken = await take_in(gateway.fleet.runtime, Crashing(), Received(messages))  # but it does not stop us for ever
    assert [outcome.word for outcome in taken.outcomes] == ["refused", "duplicate"]
    [kept] = await gateway.fleet.rows(Rejected)
    assert (kept.reason, kept.payload["content"]) == ("it could not be stored (KeyError)", {"text": "boom"})


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_strangers_and_small_talk_do_not_fill_the_list_of_what_was_refused(gateway: Gateway) -> None:
    fleet, channel = gateway.fleet, gateway.fleet.runtime.registry.channels.get("platform")
    await fleet.execute(update(MessagingGroup).values(unknown_sender_policy="strict"))
    for number in range(3):
        said = InboundMessage("plaza", f"a{number}", {"text": "x"}, sender_id="eve")
        await take_in(fleet.runtime, channel, Received((said,)))
    assert len(await fleet.rows(Rejected)) == 1
    await fleet.execute(update(Wiring).values(trigger_rules={"mentionOnly": True}))
    talk = InboundMessage("plaza", "b", {"text": "x"}, sender_id="bob")
    taken = await take_in(fleet.runtime, channel, Received((talk,)))
    assert [outcome.word for outcome in taken.outcomes] == ["refused"]
    assert len(await fleet.rows(Rejected)) == 1


@pytest.mark.spec("C7", "C8")
async def test_a_press_is_heard_and_whoever_pressed_is_told(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path))
    await wire(fleet, await fleet.add_group(script=QUESTION_SCRIPT), "platform", "plaza")
    platform = fleet.runtime.registry.channels.get("platform")
    assert isinstance(platform, Platform)
    async with gateway_to(fleet) as gateway:
        await gateway.platform()
        await fleet.settle_down()
        later = platform.shown[-1].buttons[1]
        assert later.label == "Later"
        for pressed in (later.token, later.token, f"{new_id()}:1"):
            answer = await gateway.send("platform", platform.request(press=pressed, chat="plaza", sender="ada"))
            assert (answer.status_code, answer.json()) == (200, {"accepted": []})
        await fleet.settle_down()
        await finish_telling()
    told = [text for sender, text in platform.told if sender == "ada"]
    assert len(told) == 3
    assert "Later" in told[0]
    assert "too late" in told[1]
    assert told[2] == "This button does nothing here."
    assert platform.shown[-1].content["text"] == "So: Later"


class Polite(Platform):
    """Platforms that want to hear something of their own at once."""

    def receive(self, request: InboundRequest) -> Received:
        return Received(super().receive(request).messages, answer=Answer(b"<ok/>", "text/xml"))


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_a_platform_hears_at_once_what_its_driver_says(make_fleet: MakeFleet) -> None:
    fleet = await make_fleet(
        Registry(channels=Drivers("channel", {"platform": Polite(receives=True), "web": Polite()}))
    )
    await wire(fleet, await fleet.add_group(), "platform", "plaza")
    async with gateway_to(fleet) as gateway:
        answer = await gateway.platform()
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (
        200,
        "<ok/>",
        "text/xml; charset=utf-8",
    )
    assert len(await fleet.inbox()) == 1


class AwayDatabase(Database):
    away = True

    async def transact(self, work: Any, *, patience: float = 15.0) -> Any:
        if self.away:
            raise DatabaseDownError("the database does not answer (a password in an address)")
        return await super().transact(work, patience=patience)

    async def read(self, work: Any, *, patience: float = 15.0) -> Any:
        if self.away:
            raise DatabaseDownError("the database does not answer (a password in an address)")
        return await super().read(work, patience=patience)


@dataclass(frozen=True)
class ShakyHouse:
    db: AwayDatabase
    registry: Registry
    settings: Settings
    bells: HeldBells


@pytest.mark.spec("C8", "M1")
@ONE_DATABASE
async def test_while_the_database_is_away_the_platform_is_to_send_it_again(gateway: Gateway) -> None:
    fleet = gateway.fleet
    db = AwayDatabase(fleet.runtime.settings.database_url, pool_size=2)
    house = ShakyHouse(db, fleet.runtime.registry, fleet.runtime.settings, fleet.bells)
    async with gateway_to(fleet, house) as shaky:
        answer = await shaky.platform()
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["detail"] == "the database does not answer, and nothing was stored: send it again"
        assert (await shaky.client.get("/healthz")).status_code == 503
        assert await fleet.inbox() == []
        db.away = False
        assert (await shaky.platform()).status_code == 200
        assert (await shaky.client.get("/healthz")).json() == {"ok": True, "redis": True}
    assert len(await fleet.inbox()) == 1
    await db.close()


@pytest.mark.spec("C8")
@ONE_DATABASE
async def test_nothing_else_is_open(gateway: Gateway) -> None:
    for path in ("/docs", "/redoc", "/channels", "/channels/", "/web", "/v1", "/v1/"):
        answer = await gateway.client.get(path)
        assert (answer.status_code, answer.json()["detail"]) == (404, NOT_FOUND)
    got = await gateway.client.get("/channels/platform")
    assert (got.status_code, got.json()["detail"]) == (405, "Method Not Allowed")
    assert "server" not in got.headers


# --- The webhook channel, whose senders read our answers ---------------------------------------------------------


@pytest.mark.spec("C2")
async def test_a_webhook_is_told_the_ids_of_its_message(gateway: Gateway) -> None:
    first, again = await gateway.webhook(), await gateway.webhook()
    [row] = await gateway.fleet.inbox()
    told = {"id": row.id, "duplicate": False, "session": row.session_id, "seq": 1, "answered_turn": None}
    assert (first.status_code, first.json()) == (202, told)
    assert (again.status_code, again.json()) == (202, first.json() | {"duplicate": True})


@pytest.mark.spec("C2", "C4")
async def test_an_endpoint_has_the_agent_its_operator_named(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path, agent="demo"))
    await fleet.add_group(script="You said: {texts}")
    asked = [("m1", None, "anybody"), ("m2", None, None), ("m3", "t1", None)]
    async with gateway_to(fleet) as gateway, answering(fleet):
        for name, thread, sender in asked:
            answer = await gateway.webhook("wait=30", id=name, thread=thread, sender=sender)
            assert answer.status_code == 200, answer.text
            assert answer.json()["messages"][0]["text"] == "You said: hello"
    assert sorted(session.thread_id for session in await fleet.sessions()) == ["", "t1"]


@pytest.mark.spec("C2")
@ONE_DATABASE
async def test_a_webhook_is_told_why_it_was_refused(gateway: Gateway) -> None:
    answer = await gateway.webhook(text="  ", thread="\n")
    assert answer.status_code == 422
    assert "thread_id" in answer.json()["detail"]
    assert (await gateway.webhook(text=5)).status_code == 400


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0),
        ("wait=30", 30),
        ("respond-async, wait=10", 10),
        ('Wait="5"', 5),
        ("wait=3600", 60),
        ("wait=-1", 0),
        ("await=5", 0),
        ("wait=soon", 0),
        ("wait", 0),
        ("", 0),
    ],
)
def test_how_long_to_wait_is_read_from_the_header(header: str | None, seconds: int) -> None:
    assert asked_to_wait(header) == seconds


@pytest.fixture
def crm() -> Any:
    server = WebhookServer("a secret of the CRM")
    yield server
    server.close()


@pytest.mark.spec("C2", "M12")
async def test_the_answer_comes_with_the_request_and_is_pushed_under_the_same_id(
    make_fleet: MakeFleet, tmp_path: Path, crm: WebhookServer
) -> None:
    fleet = await make_fleet(registry_with(tmp_path, webhook_url=crm.url))
    await wire(fleet, await fleet.add_group(script="You said: {texts}"), "webhook", "crm")
    async with gateway_to(fleet) as gateway, answering(fleet):
        answer = await gateway.webhook("wait=30")
        [row] = await fleet.inbox()
        assert answer.status_code == 200
        [said] = answer.json()["messages"]
        assert said["text"] == "You said: hello"
        assert (answer.json()["id"], answer.json()["session"]) == (row.id, row.session_id)
        assert (answer.json()["messages"], answer.json()["status"]) == ([said], "completed")
        async with asyncio.timeout(20):
            while said["id"] not in crm.shown:
                await asyncio.sleep(0.01)
        assert crm.shown[said["id"]]["content"]["text"] == "You said: hello"


@pytest.mark.spec("C2")
async def test_an_answer_that_takes_longer_is_fetched_by_the_same_request(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    fleet = await make_fleet(registry_with(tmp_path))  # an endpoint without an address
    await wire(fleet, await fleet.add_group(script="You said: {texts}"), "webhook", "crm")
    async with gateway_to(fleet) as gateway:
        early = await gateway.webhook("wait=1")
        assert early.status_code == 202
        assert early.json()["messages"] == []
        await fleet.settle_down()
        late = await gateway.webhook("wait=30")
    assert late.status_code == 200
    assert [said["text"] for said in late.json()["messages"]] == ["You said: hello"]
    assert late.json()["duplicate"]
    [said] = await fleet.outbox()
    assert said.status == "delivered"
    assert late.json()["messages"][0]["id"] == said.idempotency_key


@pytest.mark.spec("C2", "C7")
async def test_whoever_waits_hears_the_question_and_then_the_answer(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path))
    await wire(fleet, await fleet.add_group(script=QUESTION_SCRIPT), "webhook", "crm")
    async with gateway_to(fleet) as gateway, answering(fleet):
        asked = await gateway.webhook("wait=30")
        assert (asked.status_code, asked.json()["status"]) == (202, "parked")
        assert "Now or later?" in asked.json()["messages"][0]["text"]
        answered = await gateway.webhook("wait=30", id="m2", text="Later")
        assert (answered.status_code, answered.json()["status"]) == (200, "completed")
        [said] = answered.json()["messages"]
    assert "Later" in said["text"]


@pytest.mark.spec("C2")
@ONE_DATABASE
async def test_a_turn_that_fails_for_good_says_so_to_whoever_waits(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = await make_fleet(registry_with(tmp_path), max_tries=1)
    await wire(fleet, await fleet.add_group(script="- play:\n  - fail: {class: auth}"), "webhook", "crm")
    async with gateway_to(fleet) as gateway, answering(fleet):
        answer = await gateway.webhook("wait=30")
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")
    assert answer.json()["messages"] == []
