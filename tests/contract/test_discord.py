"""The `discord` channel over its real wire: the contract, and what only Discord has."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.channel_port import (
    Button,
    ButtonPress,
    Channel,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundFile,
    OutboundMessage,
)
from adapters.channels import http
from adapters.channels.conformance import CHECKS, FAULTS, FORGERIES, Check, Fault, Forgery, run_check
from adapters.channels.discord import DiscordChannel
from adapters.channels.discord.interactions import read_interaction
from adapters.errors import ChannelError, DeliveryError, MalformedError, SignatureError
from tests.support.channel_settings import complaint_about
from tests.support.discord_api import APPLICATION, CHANNEL, THREAD, TOKEN, DiscordApi
from tests.support.rest_stand_in import Said

ADA = "1090000000000000042"
EXCUSED = {"refuses_every_request", "finds_what_arrived"}
NAMES = {"message-1": "1090000000000000101", "thread-9": THREAD, "ada": ADA}
IN_THREAD = {"channel_id": THREAD, "channel": {"id": THREAD, "type": 11, "parent_id": CHANNEL}}


class DiscordHarness:
    destination = Destination(CHANNEL)
    receives = True
    forgeries: Sequence[Forgery] = FORGERIES
    threads: Sequence[str | None] = (None, "thread-9")
    faults: Sequence[Fault] = FAULTS
    knows_its_keys = False

    def __init__(self, api: DiscordApi) -> None:
        self.api = api
        self.channel: Channel = DiscordChannel(
            token=TOKEN, public_key=api.public_key, api=api.url, application=APPLICATION, agent="helper"
        )

    def named(self, ours: str) -> str:
        return NAMES[ours]

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        more = {"id": NAMES[message_id]} | (IN_THREAD if thread else {})
        return self.signed(self.api.interaction(2, NAMES[sender], asking(text), **more))

    def press(self, label: str, sender: str) -> InboundRequest:
        return self.signed(self.api.pressed(label, NAMES[sender]))

    def forged(self, forgery: Forgery) -> InboundRequest:
        body = b'{"type": 1, "id": "1", "application_id": "1"}'
        signed = self.api.signed(body)
        headers = {
            "wrong": self.api.signed(body + b" "),
            "missing": {},
            "old": self.api.signed(body, int(time.time()) - 3600),
            "non-ascii": signed | {"x-signature-ed25519": "ü" * 128},
            "garbage": signed | {"x-signature-timestamp": "-1e9"},
        }[forgery]
        return InboundRequest(headers=headers, body=body)

    def unreadable(self) -> Sequence[InboundRequest]:
        whole = self.api.interaction(2, ADA, asking("hi"))
        changes: list[dict[str, Any]] = [
            {"id": 5}, {"id": "12a"}, {"id": "1" * 21}, {"type": "2"}, {"type": 99}, {"type": None}, {"type": 10**30},
            {"member": None}, {"member": {"user": None}}, {"member": {"user": {"id": "../@me"}}}, {"channel_id": None},
            {"channel_id": "1/../2"}, {"data": []}, {"data": {"options": "x"}}, {"data": {"options": [{"value": "x"}]}},
            {"data": {}}, {"token": 5}, {"type": 3}, {"type": 3, "data": {"custom_id": "t" * 101}},
            {"type": 3, "data": {"custom_id": "t"}, "token": ""}, {"context": "dm"}, {"channel": []},
            {"data": asking("\ud800")}, {"data": {"resolved": {"attachments": {"1": {"url": "x"}}}}},
        ]  # fmt: skip
        bodies = (
            b"",
            b"not json",
            b"\xff\xfe",
            b"[]",
            b"5",
            b"null",
            b"{}",
            b'{"type": 1}',
            b"[" * 5000,
            b'{"a":' * 5000,
        )
        return [*(self.signed(whole | change) for change in changes), *(self.raw(body) for body in bodies)]

    def unwanted(self) -> InboundMessage | None:
        return InboundMessage(CHANNEL, "1", {"text": "beep"}, sender_id=APPLICATION)

    def shown(self) -> list[str]:
        assert self.api.problems == []
        return [shown.said["content"] for shown in self.api.messages.values()]

    def buttons(self) -> list[str]:
        return [button["label"] for shown in self.api.messages.values() for button in shown.buttons]

    def fail_next(self, fault: Fault) -> None:
        if fault == "away":
            self.api.close()
        else:
            self.api.fail_next(fault)

    def signed(self, interaction: dict[str, Any]) -> InboundRequest:
        return self.raw(json.dumps(interaction).encode())

    def raw(self, body: bytes) -> InboundRequest:
        return InboundRequest(headers=self.api.signed(body), body=body)


def asking(text: str) -> dict[str, Any]:
    return {"id": "1", "type": 1, "name": "ask", "options": [{"name": "text", "type": 3, "value": text}]}


@pytest.fixture
def api() -> Iterator[DiscordApi]:
    stand_in = DiscordApi()
    yield stand_in
    stand_in.close()


@pytest.fixture
async def discord(api: DiscordApi) -> AsyncIterator[DiscordHarness]:
    harness = DiscordHarness(api)
    yield harness
    await harness.channel.close()


def message(text: str = "x", key: str = "key-1", **more: Any) -> OutboundMessage:
    return OutboundMessage(Destination(CHANNEL), {"text": text}, key, **more)


def heard(discord: DiscordHarness, **more: Any) -> InboundMessage:
    data = more.pop("data", asking("hi"))
    [found] = discord.channel.receive(discord.signed(discord.api.interaction(2, ADA, data, **more))).messages
    return found


@pytest.mark.spec("C1", "C2", "C8")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_discord_keeps_the_contract_over_http(check: Check, discord: DiscordHarness) -> None:
    outcome = await run_check(check, discord)
    assert (outcome is None) == (check.name not in EXCUSED)


# --- In ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "C8")
def test_a_ping_is_answered_with_a_pong(discord: DiscordHarness) -> None:
    ping = discord.signed({"type": 1, "id": "1", "application_id": APPLICATION, "token": "t", "version": 1})
    discord.channel.verify(ping)
    received = discord.channel.receive(ping)
    assert received.answer is not None
    assert json.loads(received.answer.body) == {"type": 1}
    assert (received.messages, received.presses) == ((), ())


@pytest.mark.spec("C8")
@pytest.mark.parametrize(("seconds", "refused"), [(-301, True), (-290, False), (290, False), (310, True)])
def test_a_request_is_taken_only_within_five_minutes_of_its_time(
    seconds: int, refused: bool, discord: DiscordHarness
) -> None:
    body = b"{}"
    request = InboundRequest(headers=discord.api.signed(body, int(time.time()) + seconds), body=body)
    if refused:
        with pytest.raises(SignatureError, match="too old or from the future"):
            discord.channel.verify(request)
    else:
        discord.channel.verify(request)


@pytest.mark.spec("C8")
def test_a_body_that_was_written_anew_is_refused(discord: DiscordHarness) -> None:
    whole = discord.api.interaction(2, ADA, asking("hi"))
    request = InboundRequest(
        headers=discord.api.signed(json.dumps(whole).encode()), body=json.dumps(whole, separators=(",", ":")).encode()
    )
    with pytest.raises(SignatureError, match="does not fit the body"):
        discord.channel.verify(request)


@pytest.mark.spec("C2")
def test_whoever_asks_is_told_at_once_and_alone_that_it_was_passed_on(discord: DiscordHarness) -> None:
    received = discord.channel.receive(discord.request(message_id="message-1", text="hi", thread=None, sender="ada"))
    assert received.answer is not None
    answer = json.loads(received.answer.body)
    assert (answer["type"], answer["data"]["flags"]) == (4, 64)
    assert answer["data"]["allowed_mentions"] == {"parse": []}
    assert received.messages[0].is_mention


@pytest.mark.spec("C2", "C4")
@pytest.mark.parametrize(
    ("where", "direct"),
    [
        ({}, False),
        ({"context": 1, "guild_id": None}, True),
        ({"context": None, "guild_id": None}, True),
        ({"context": None}, False),
    ],
)
def test_a_command_without_a_server_is_a_direct_message(
    where: dict[str, Any], direct: bool, discord: DiscordHarness
) -> None:
    assert heard(discord, **where).is_direct == direct


@pytest.mark.spec("C2")
def test_in_a_chat_of_other_people_where_it_cannot_write_it_says_so(discord: DiscordHarness) -> None:
    interaction = discord.api.interaction(2, ADA, asking("hi"), context=2, guild_id=None)
    received = discord.channel.receive(discord.signed(interaction))
    assert received.messages == ()
    assert received.answer is not None
    assert b"cannot write in this chat" in received.answer.body


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"name": "x", "options": [{"type": 3, "value": "a"}, {"type": 4, "value": 5}, {"type": 3, "value": "b"}]},
         "a b"),
        ({"name": "ask", "options": [{"type": 1, "options": [{"type": 3, "value": "deep"}]}]}, "deep"),
        ({"name": "clear"}, "/clear"),
        ({"name": "ask", "options": [{"type": 3, "value": "  "}]}, "/ask"),
    ],
)  # fmt: skip
def test_a_command_says_what_was_typed_or_else_its_name(
    data: dict[str, Any], text: str, discord: DiscordHarness
) -> None:
    assert heard(discord, data=data).content == {"text": text}


@pytest.mark.spec("C2", "T8")
def test_a_file_of_a_command_is_an_attachment(discord: DiscordHarness) -> None:
    file = {"id": "7", "filename": "plan.pdf", "url": "https://cdn.example/plan.pdf", "size": 5}
    data = asking("read this") | {"resolved": {"attachments": {"7": file}}}
    attachments = heard(discord, data=data).content["attachments"]
    assert attachments == [{"name": "plan.pdf", "url": "https://cdn.example/plan.pdf"}]


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("nick", "global_name", "username", "shown"),
    [
        ("The Countess", "Ada", "ada", "The Countess"),
        (None, "Ada", "ada", "Ada"),
        ("\x07\u202e ", None, "ada", "ada"),
        (None, None, "", None),
        ("n" * 500, None, "ada", "n" * 200),
    ],
)
def test_people_are_shown_by_the_name_they_have_there(
    nick: str | None, global_name: str | None, username: str, shown: str | None, discord: DiscordHarness
) -> None:
    user = {"id": ADA, "username": username, "global_name": global_name}
    found = heard(discord, member={"user": user, "nick": nick})
    assert (found.sender_id, found.sender_name) == (ADA, shown)


@pytest.mark.spec("C2")
def test_a_direct_message_names_its_sender_without_a_member(discord: DiscordHarness) -> None:
    whole = discord.api.interaction(2, ADA, asking("hi"), member=None, guild_id=None, context=1)
    [found] = discord.channel.receive(discord.signed(whole | {"user": {"id": ADA, "username": "ada"}})).messages
    assert (found.sender_id, found.sender_name) == (ADA, "ada")


@pytest.mark.spec("C2")
def test_other_bots_are_not_heard(discord: DiscordHarness) -> None:
    bot = {"user": {"id": "5", "username": "beep", "bot": True}}
    received = discord.channel.receive(discord.signed(discord.api.interaction(2, ADA, asking("hi"), member=bot)))
    assert received.messages == ()


@pytest.mark.spec("C2", "C7")
async def test_a_press_in_a_thread_is_answered_at_once_and_told_to_whoever_pressed(discord: DiscordHarness) -> None:
    in_thread = OutboundMessage(
        Destination(CHANNEL, THREAD), {"text": "?"}, "key-1", buttons=(Button("Yes", "card:1"),)
    )
    receipt = await discord.channel.deliver(in_thread)
    interaction = discord.api.pressed("Yes", ADA) | {"channel": IN_THREAD["channel"]}
    received = discord.channel.receive(discord.signed(interaction))
    assert received.answer is not None
    assert json.loads(received.answer.body) == {"type": 6}
    [press] = received.presses
    assert (press.platform_id, press.thread_id) == (CHANNEL, THREAD)
    assert press.platform_message_id == receipt.platform_message_id
    await discord.channel.tell(press, "**done**")
    assert discord.api.told == [(ADA, "**done**")]
    assert discord.api.problems == []


@pytest.mark.spec("C2", "C7")
@pytest.mark.parametrize("handle", ["", "x", "1/", "../5/secret", f"{APPLICATION}/gone-by-now"])
async def test_a_press_that_can_no_longer_be_answered_is_an_error_without_its_token(
    handle: str, discord: DiscordHarness
) -> None:
    with pytest.raises(ChannelError) as caught:
        await discord.channel.tell(ButtonPress("t", CHANNEL, ADA, handle=handle), "late")
    assert "gone-by-now" not in str(caught.value)
    assert "secret" not in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = (
    "id",
    "application_id",
    "type",
    "token",
    "data",
    "guild_id",
    "channel_id",
    "channel",
    "member",
    "user",
    "context",
)


@pytest.mark.spec("C2", "C8")
@given(field=st.sampled_from(_FIELDS), value=_JSON, kind=st.sampled_from([2, 3]))
def test_a_field_of_any_shape_is_read_or_refused_as_malformed(field: str, value: Any, kind: int) -> None:
    whole: dict[str, Any] = {
        "id": "1", "application_id": "2", "type": kind, "token": "t", "data": asking("x") | {"custom_id": "c"},
        "guild_id": "3", "channel_id": "4", "channel": {"id": "4", "type": 0}, "user": {"id": "5"}, "context": 0,
    }  # fmt: skip
    with suppress(MalformedError):
        received = read_interaction(json.dumps(whole | {field: value}).encode())
        places = [found.platform_id for found in received.messages] + [found.platform_id for found in received.presses]
        assert all(place.isdigit() for place in places)


# --- Out ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "C3")
async def test_a_message_to_a_thread_goes_to_the_thread_s_own_channel(discord: DiscordHarness) -> None:
    await discord.channel.deliver(OutboundMessage(Destination(CHANNEL, THREAD), {"text": "x"}, "key-1"))
    [shown] = discord.api.messages.values()
    assert shown.channel == THREAD


@pytest.mark.spec("C2")
async def test_nobody_is_pinged_by_what_an_agent_writes_or_edits(discord: DiscordHarness) -> None:
    receipt = await discord.channel.deliver(message("@everyone <@&1>"))
    assert receipt.platform_message_id is not None
    await discord.channel.edit(discord.destination, receipt.platform_message_id, {"text": "@here"})
    # The stand-in refuses what would ping.
    assert [json.loads(asked.body)["allowed_mentions"] for asked in discord.api.asked] == [{"parse": []}] * 2
    assert discord.api.problems == []


@pytest.mark.spec("C2", "C3")
async def test_buttons_stand_in_rows_of_five_with_their_styles(discord: DiscordHarness) -> None:
    buttons = (
        Button("Allow", "card:1", "good"),
        Button("Deny", "card:2", "bad"),
        Button("l" * 100, "card:3"),
        Button("Docs", url="https://docs.example"),
        *(Button(f"B{number}", f"card:{number}") for number in range(5, 8)),
    )
    await discord.channel.deliver(message(buttons=buttons))
    assert discord.api.problems == []
    [shown] = discord.api.messages.values()
    assert [len(row["components"]) for row in shown.said["components"]] == [5, 2]
    assert [button["style"] for button in shown.buttons] == [3, 4, 1, 5, 1, 1, 1]
    assert shown.buttons[2]["label"] == "l" * 79 + "…"
    assert shown.buttons[3] == {"type": 2, "style": 5, "label": "Docs", "url": "https://docs.example"}


@pytest.mark.spec("C2", "C3")
async def test_more_buttons_than_discord_shows_are_refused_and_not_dropped(discord: DiscordHarness) -> None:
    with pytest.raises(DeliveryError, match="at most 25 buttons, not 26") as caught:
        await discord.channel.deliver(message(buttons=tuple(Button("b", str(number)) for number in range(26))))
    assert not caught.value.retryable


@pytest.mark.spec("C2")
async def test_files_go_with_their_message_once_per_key(discord: DiscordHarness, tmp_path: Path) -> None:
    paths = [tmp_path / "plan.txt", tmp_path / "no-text.bin"]
    for path in paths:
        path.write_bytes(path.name.encode() + b"\r\n\x00--\xff")
    files = tuple(OutboundFile(path.name, path, "application/octet-stream", path.stat().st_size) for path in paths)
    receipts = [await discord.channel.deliver(message("two files", files=files)) for _ in range(2)]
    assert receipts[0] == receipts[1]
    assert discord.api.problems == []
    [shown] = discord.api.messages.values()
    assert shown.files == {path.name: path.read_bytes() for path in paths}
    assert shown.said["content"] == "two files"


@pytest.mark.spec("C2")
async def test_a_file_whose_name_is_not_text_is_sent_all_the_same(discord: DiscordHarness, tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_bytes(b"x")
    await discord.channel.deliver(message("", files=(OutboundFile("pl\udcffan.txt", path, "text/plain", 1),)))
    assert discord.api.problems == []
    assert len(discord.api.messages) == 1


@pytest.mark.spec("C2", "C3")
@pytest.mark.parametrize(
    ("emoji", "sent"),
    [
        ("👍🏽", "👍🏽"),
        ("thumbs_up", "👍"),
        (":heart:", "❤️"),
        ("❤", "❤️"),
        ("Ship:109000000000", "Ship:109000000000"),
    ],
)
async def test_a_reaction_is_an_emoji_its_name_or_one_of_the_server(
    emoji: str, sent: str, discord: DiscordHarness
) -> None:
    receipt = await discord.channel.deliver(message())
    assert receipt.platform_message_id is not None
    await discord.channel.react(discord.destination, receipt.platform_message_id, emoji)
    assert discord.api.messages[receipt.platform_message_id].reactions == [sent]


@pytest.mark.spec("C2", "C3")
@pytest.mark.parametrize("emoji", ["", "..", "no_such_emoji", "a/b", "x?y=z"])
async def test_what_is_no_emoji_never_becomes_a_part_of_an_address(emoji: str, discord: DiscordHarness) -> None:
    with pytest.raises(ChannelError, match="Discord has no emoji"):
        await discord.channel.react(discord.destination, "1", emoji)
    assert discord.api.asked == []


@pytest.mark.spec("C2", "C8")
@pytest.mark.parametrize("place", ["", "general", "1/../2", "٣", "1\n", "https://evil.example"])
async def test_what_is_no_id_never_becomes_a_part_of_an_address(place: str, discord: DiscordHarness) -> None:
    destination = Destination(place)
    acts = [
        discord.channel.deliver(OutboundMessage(destination, {"text": "x"}, "key-1")),
        discord.channel.edit(destination, "1", {"text": "x"}),
        discord.channel.edit(discord.destination, place, {"text": "x"}),
        discord.channel.react(discord.destination, place, "👍"),
    ]
    for act in acts:
        with pytest.raises(DeliveryError, match="an id is a row of digits") as caught:
            await act
        assert not caught.value.retryable
    await discord.channel.show_typing(destination, on=True)
    assert await discord.channel.open_dm(place) is None
    assert discord.api.asked == []


@pytest.mark.spec("M13")
async def test_typing_is_shown_where_the_message_will_come(discord: DiscordHarness) -> None:
    await discord.channel.show_typing(Destination(CHANNEL, THREAD), on=True, doing="reading")
    await discord.channel.show_typing(Destination(CHANNEL, THREAD), on=False)
    discord.api.fail_next("refused")
    await discord.channel.show_typing(discord.destination, on=True)
    assert discord.api.typing == [THREAD]


@pytest.mark.spec("C2", "C6")
async def test_somebody_nobody_can_write_to_has_no_direct_chat(discord: DiscordHarness) -> None:
    discord.api.no_direct.add(ADA)
    assert await discord.channel.open_dm(ADA) is None
    discord.api.fail_next("broken")
    with pytest.raises(DeliveryError, match="discord answered 503"):
        await discord.channel.open_dm(ADA)


@pytest.mark.spec("M12")
@pytest.mark.parametrize(
    ("said", "wait"),
    [
        (Said(429, {"retry_after": 0.35}, {"retry-after": "1"}), 0.35),
        (Said(429, b"<html>", {"retry-after": "9"}), 9.0),
        (Said(429, {"retry_after": "soon"}, {"retry-after": "9"}), 9.0),
        (Said(429, {"retry_after": -1}, {"retry-after": "9"}), 9.0),
        (Said(429, b'{"retry_after": NaN}', {"retry-after": "9"}), 9.0),
        (Said(429, {"retry_after": 10**400}), None),
        (Said(429, ["busy"]), None),
    ],
)
async def test_the_wait_is_what_discord_says_in_the_body_or_else_in_the_header(
    said: Said, wait: float | None, discord: DiscordHarness
) -> None:
    discord.api.scripted.append(said)
    with pytest.raises(DeliveryError) as caught:
        await discord.channel.deliver(message())
    assert (caught.value.retryable, caught.value.retry_after) == (True, wait)
    assert not caught.value.may_have_arrived


@pytest.mark.spec("M12")
async def test_an_answer_without_an_id_is_a_doubt_that_the_key_settles(discord: DiscordHarness) -> None:
    discord.api.fail_next("garbled")
    with pytest.raises(DeliveryError, match="not with the id of a message") as caught:
        await discord.channel.deliver(message())
    assert (caught.value.retryable, caught.value.may_have_arrived) == (True, True)
    receipt = await discord.channel.deliver(message())
    assert list(discord.api.messages) == [receipt.platform_message_id]


@pytest.mark.spec("M12")
async def test_discord_that_does_not_answer_in_time_is_in_doubt(
    discord: DiscordHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.5)  # enough to connect on a busy machine
    discord.api.fail_next("slow")
    with pytest.raises(DeliveryError, match="discord: ReadTimeout") as caught:
        await discord.channel.deliver(message())
    assert (caught.value.retryable, caught.value.may_have_arrived) == (True, True)


@pytest.mark.spec("C2")
async def test_one_slow_sending_does_not_hold_up_another(discord: DiscordHarness) -> None:
    discord.api.fail_next("slow")
    slow = asyncio.create_task(discord.channel.deliver(message("slow")))
    assert await asyncio.to_thread(discord.api.waiting.wait, 10)
    await discord.channel.deliver(message("quick", "key-2"))
    assert discord.shown() == ["quick"]
    discord.api.close()
    with pytest.raises(DeliveryError):
        await slow


@pytest.mark.spec("C2", "C3")
def test_the_length_is_never_less_than_discord_counts(discord: DiscordHarness) -> None:
    assert discord.channel.length("plain words") == 11
    assert discord.channel.length("🫖" * 1000) == 2000


@pytest.mark.spec("F9", "C2")
async def test_no_error_shows_the_token_even_if_discord_repeats_it(discord: DiscordHarness) -> None:
    discord.api.scripted.append(Said(401, {"message": f"no such token: {TOKEN}"}))
    with pytest.raises(DeliveryError, match="discord answered 401: no such token") as caught:
        await discord.channel.deliver(message())
    assert TOKEN not in repr(caught.value)
    assert not caught.value.retryable


# --- Settings ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("F9", "C2")
@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TOKEN", "hunter2 hunter2", "is not a key"),
        ("TOKEN", "hunter2\n", "is not a key"),
        ("PUBLIC_KEY", "hunter2", "is not 64 hexadecimal digits"),
        ("PUBLIC_KEY", "g" * 64, "is not 64 hexadecimal digits"),
        ("API", "hunter2", "is not an address"),
        ("API", "https://user:hunter2@discord.example", "is not an address"),
        ("APPLICATION", "hunter2", "is not an id"),
        ("AGENT", "../hunter2", "is not the folder of an agent"),
    ],
)
def test_a_malformed_setting_is_named_and_not_shown(
    name: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = complaint_about(f"LONGSHORE_DISCORD_{name}", value, DiscordChannel, monkeypatch)
    assert said.startswith(f"LONGSHORE_DISCORD_{name} {complaint}")


@pytest.mark.spec("C2", "C8")
async def test_without_settings_it_takes_no_requests_and_says_what_is_missing(api: DiscordApi) -> None:
    channel = DiscordChannel(token="", public_key="", api="", application="", agent="")
    assert not channel.receives
    with pytest.raises(SignatureError, match="LONGSHORE_DISCORD_PUBLIC_KEY is not set"):
        channel.verify(InboundRequest(headers=api.signed(b"{}"), body=b"{}"))
    with pytest.raises(DeliveryError, match="LONGSHORE_DISCORD_TOKEN is not set") as caught:
        await channel.deliver(message())
    assert not caught.value.retryable
    await channel.show_typing(Destination(CHANNEL), on=True)
    assert channel.registers(InboundMessage(CHANNEL, "1", {}, is_direct=True), known=True) is None


@pytest.mark.spec("C2")
async def test_settings_come_from_the_environment(api: DiscordApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TOKEN": TOKEN, "PUBLIC_KEY": api.public_key.upper(), "API": api.url + "/"}.items():
        monkeypatch.setenv(f"LONGSHORE_DISCORD_{name}", value)
    channel = DiscordChannel()
    channel.verify(InboundRequest(headers=api.signed(b"{}"), body=b"{}"))
    await channel.deliver(message())
    assert len(api.messages) == 1
    await channel.close()


@pytest.mark.spec("C4")
@pytest.mark.parametrize(
    ("direct", "mention", "known", "agent"),
    [
        (True, False, True, "helper"),
        (False, True, True, "helper"),
        (False, False, True, None),
        (True, True, False, None),
    ],
)
def test_a_place_is_registered_only_for_somebody_who_is_known(
    direct: bool, mention: bool, known: bool, agent: str | None, discord: DiscordHarness
) -> None:
    found = InboundMessage(CHANNEL, "1", {"text": "hi"}, sender_id=ADA, is_direct=direct, is_mention=mention)
    assert discord.channel.registers(found, known=known) == agent
