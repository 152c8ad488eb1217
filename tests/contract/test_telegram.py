"""The `telegram` channel over its real wire, against a stand-in that checks what it gets and has bad days."""

import asyncio
import contextlib
import json
import logging
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.channel_port import (
    Batch,
    Button,
    ButtonPress,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundFile,
    OutboundMessage,
)
from adapters.channels import http
from adapters.channels.conformance import CHECKS, FAULTS, Check, Fault, Forgery, run_check
from adapters.channels.telegram.channel import SECRET_HEADER, TelegramChannel
from adapters.errors import ChannelError, DeliveryError, MalformedError, SignatureError
from adapters.redaction import Redactor, secrets_in
from tests.support import telegram_api
from tests.support.channel_settings import complaint_about
from tests.support.telegram_api import BOT_ID, GROUP, PERSON, TOKEN, TOPIC, USERNAME, TelegramApi
from workers.intake.codes import new_code

SECRET: Final = "Secret_of-the-webhook"
NAMES: Final = {"message-1": "501", "thread-9": str(TOPIC), "ada": str(PERSON)}
EXCUSED: Final = {
    "refuses_every_request",  # it takes them
    "shows_one_message_per_key",  # the Bot API knows no keys
    "finds_what_arrived",  # nor can a bot read what it has sent
}
PNG: Final = b"\x89PNG\r\n\x1a\n pixels"


class TelegramHarness:
    destination = Destination(str(GROUP))
    receives = True
    forgeries: Sequence[Forgery] = ("wrong", "missing", "non-ascii")  # it signs no body and names no time
    threads: Sequence[str | None] = (None, "thread-9")
    faults: Sequence[Fault] = FAULTS
    knows_its_keys = False

    def __init__(self, api: TelegramApi) -> None:
        self.api = api
        self.channel = make(api, SECRET)

    def named(self, ours: str) -> str:
        return NAMES[ours]

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        topic = {"message_thread_id": TOPIC, "is_topic_message": True} if thread is not None else {}
        update = self.api.says(text, chat=GROUP, sender=int(NAMES[sender]), **topic)
        update["message"]["message_id"] = int(NAMES[message_id])
        return posted(update)

    def press(self, label: str, sender: str) -> InboundRequest:
        return posted(self.api.presses(label, int(NAMES[sender])))

    def forged(self, forgery: Forgery) -> InboundRequest:
        headers = {"wrong": {SECRET_HEADER: SECRET[:-1]}, "missing": {}, "non-ascii": {SECRET_HEADER: "ünïcödé\udce9"}}
        return InboundRequest(headers[forgery], posted(self.api.says("hi")).body)

    def unreadable(self) -> Sequence[InboundRequest]:
        bodies = (b"", b"not json", b"\xff\xfe", b"[]", b"5", b"null", b"{}", b'{"update_id": "7"}', b"[" * 5000)
        return [InboundRequest({SECRET_HEADER: SECRET}, body) for body in bodies]

    def unwanted(self) -> InboundMessage | None:
        update = self.api.says("beep", chat=GROUP)
        update["message"]["from"]["is_bot"] = True
        [message] = self.channel.receive(posted(update)).messages
        return message

    def shown(self) -> list[str]:
        return [message.text for message in self.api.messages]

    def buttons(self) -> list[str]:
        return [key["text"] for message in self.api.messages for row in message.keys for key in row]

    def fail_next(self, fault: Fault) -> None:
        if fault == "away":
            self.api.close()
        else:
            self.api.fail_next(fault)


def make(api: TelegramApi, secret: str = "", **more: Any) -> TelegramChannel:
    return TelegramChannel(TOKEN, secret, username=USERNAME, api=api.url, **more)


def posted(update: Any) -> InboundRequest:
    return InboundRequest({SECRET_HEADER: SECRET}, json.dumps(update).encode())


@pytest.fixture
def api() -> Iterator[TelegramApi]:
    stand_in = TelegramApi()
    yield stand_in
    stand_in.close()


@pytest.fixture
async def harness(api: TelegramApi) -> AsyncIterator[TelegramHarness]:
    harness = TelegramHarness(api)
    yield harness
    await harness.channel.close()


@pytest.fixture
async def channel(api: TelegramApi) -> AsyncIterator[TelegramChannel]:
    """It listens by itself, quickly."""
    channel = make(api, poll_seconds=5, agent="demo")
    yield channel
    await channel.close()


def said(text: str = "hello", to: Destination = TelegramHarness.destination, **more: Any) -> OutboundMessage:
    return OutboundMessage(to, {"text": text}, "key-1", **more)


def _named(check: Check) -> str:
    return check.name


@pytest.mark.spec("C1", "C2", "C8")
@pytest.mark.parametrize("check", CHECKS, ids=_named)
async def test_telegram_keeps_the_contract(check: Check, harness: TelegramHarness) -> None:
    outcome = await run_check(check, harness)
    assert (outcome is None) == (check.name not in EXCUSED)
    assert harness.api.problems == []


# --- Updates -----------------------------------------------------------------------------------------------------


def read(**message: Any) -> InboundMessage:
    """The one message that an update brings, whose fields are changed as given; None takes one away."""
    whole = {"message_id": 5, "chat": {"id": GROUP, "type": "supergroup"}, "text": "hi", "from": {"id": PERSON}}
    fields = {key: value for key, value in (whole | message).items() if value is not None}
    channel = TelegramChannel(TOKEN, SECRET, username=f"@{USERNAME}")
    [read] = channel.receive(posted({"update_id": 1, "message": fields})).messages
    return read


def entity(kind: str, offset: int, length: int, **more: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "offset": offset, "length": length, **more}]


@pytest.mark.spec("C1", "M2")
@pytest.mark.parametrize(
    ("fields", "mentioned"),
    [
        ({"text": "hi all"}, False),
        # Offsets are in UTF-16 units: the teapot has two.
        ({"text": f"🫖 @{USERNAME} hi", "entities": entity("mention", 3, len(USERNAME) + 1)}, True),
        ({"text": f"🫖 @{USERNAME.upper()}", "entities": entity("mention", 3, len(USERNAME) + 1)}, True),
        ({"text": "@another_bot hi", "entities": entity("mention", 0, 12)}, False),
        ({"text": f"@{USERNAME}", "entities": entity("mention", 0, 900)}, True),
        ({"text": f"@{USERNAME}", "entities": entity("mention", 900, 5)}, False),
        ({"text": f"@{USERNAME} in code", "entities": entity("code", 0, len(USERNAME) + 1)}, False),
        ({"text": "Longshore", "entities": entity("text_mention", 0, 9, user={"id": BOT_ID})}, True),
        ({"text": "Ada", "entities": entity("text_mention", 0, 3, user={"id": PERSON})}, False),
        ({"reply_to_message": {"message_id": 4, "from": {"id": BOT_ID, "is_bot": True}}}, True),
        ({"reply_to_message": {"message_id": 4, "from": {"id": PERSON}}}, False),
        ({"reply_to_message": {"message_id": 4}}, False),
        # All that is said in a topic is a reply to what opened it.
        (
            {
                "message_thread_id": 9,
                "is_topic_message": True,
                "reply_to_message": {"message_id": 9, "from": {"id": BOT_ID}},
            },
            False,
        ),
        (
            {
                "text": None,
                "photo": [{"file_id": "F"}],
                "caption": f"@{USERNAME}",
                "caption_entities": entity("mention", 0, len(USERNAME) + 1),
            },
            True,
        ),
    ],
)
def test_who_is_meant(fields: dict[str, Any], mentioned: bool) -> None:
    message = read(**fields)
    assert message.is_mention == mentioned
    assert not message.is_direct


@pytest.mark.spec("M16")
@pytest.mark.parametrize(
    ("text", "length", "heard", "mentioned"),
    [
        ("/clear", 6, "/clear", False),
        (f"/clear@{USERNAME}", 6 + len(USERNAME) + 1, "/clear", True),
        (f"/clear@{USERNAME.title()} now 🫖", 6 + len(USERNAME) + 1, "/clear now 🫖", True),
        ("/start", 6, "/start", False),
        ("/start LS-AAAA-BBBB-CCCC", 6, "LS-AAAA-BBBB-CCCC", False),  # somebody has followed a link
        (f"/start@{USERNAME} ls-aaaa-bbbb-cccc", 6 + len(USERNAME) + 1, "ls-aaaa-bbbb-cccc", True),
        # Whoever made the link is not whoever follows it: it says nothing in their name.
        ("/start approve", 6, "/start", False),
        ("/start LS-AAAA-BBBB-CCCC yes", 6, "/start", False),
        ("/start LS-AAAA", 6, "/start", False),
    ],
)
def test_a_command_to_the_bot_is_a_command(text: str, length: int, heard: str, mentioned: bool) -> None:
    message = read(text=text, entities=entity("bot_command", 0, length))
    assert (message.content["text"], message.is_mention) == (heard, mentioned)


@pytest.mark.spec("C5")
def test_a_link_can_carry_a_code_as_the_fleet_makes_them() -> None:
    code = new_code()
    assert read(text=f"/start {code}", entities=entity("bot_command", 0, 6)).content["text"] == code


@pytest.mark.spec("M16")
def test_a_command_to_another_bot_is_not_ours() -> None:
    message = {
        "message_id": 5,
        "chat": {"id": GROUP, "type": "group"},
        "from": {"id": PERSON},
        "text": "/clear@other now",
    }
    update = posted({"update_id": 1, "message": message | {"entities": entity("bot_command", 0, 12)}})
    assert TelegramChannel(TOKEN, SECRET, username=USERNAME).receive(update).messages == ()
    # Who does not know its own name cannot tell, and hears it as it was said.
    [heard] = TelegramChannel(TOKEN, SECRET, username="").receive(update).messages
    assert heard.content["text"] == "/clear@other now"


@pytest.mark.spec("M16", "C6")
@pytest.mark.parametrize(
    ("text", "heard"),
    [
        (f"@{USERNAME} /clear", "/clear"),
        (f"@{USERNAME}: approve 1a2b3c4d", "approve 1a2b3c4d"),
        (f"@{USERNAME}", f"@{USERNAME}"),
        (f"@{USERNAME} ask @{USERNAME}", f"ask @{USERNAME}"),
    ],
)
def test_the_mention_before_what_is_said_is_not_part_of_it(text: str, heard: str) -> None:
    for kind, user in (("mention", {}), ("text_mention", {"user": {"id": BOT_ID}})):
        message = read(text=text, entities=entity(kind, 0, len(USERNAME) + 1, **user))
        assert (message.content["text"], message.is_mention) == (heard, True)


@pytest.mark.spec("M16")
def test_a_command_behind_a_mention_is_read_like_any_other() -> None:
    mention, at = entity("mention", 0, len(USERNAME) + 1), len(USERNAME) + 2
    text, command = f"@{USERNAME} /status@{USERNAME}", entity("bot_command", at, 8 + len(USERNAME))
    assert read(text=text, entities=[*mention, *command]).content["text"] == "/status"


@pytest.mark.spec("C5", "C6", "M16")
@pytest.mark.parametrize("mark", [{"forward_origin": {"type": "hidden_user"}}, {"forward_date": 1}])
def test_what_is_passed_on_is_nothing_its_sender_says(mark: dict[str, Any]) -> None:
    """Nor a command, a code or an answer of theirs."""
    assert read(text="/clear\nnow", entities=entity("bot_command", 0, 6), **mark).content["text"] == "> /clear\n> now"
    other = read(text="/clear@other", entities=entity("bot_command", 0, 12), **mark)
    assert other.content["text"] == "> /clear@other"
    pictured = read(text=None, caption="LS-AAAA-BBBB-CCCC", photo=[{"file_id": "F"}], **mark)
    assert pictured.content["text"] == "> LS-AAAA-BBBB-CCCC"
    assert read(text=None, photo=[{"file_id": "F"}], **mark).content["text"] == ""


@pytest.mark.spec("C1", "C4")
def test_who_said_it_and_where() -> None:
    sender = {"id": 77, "first_name": "Ada", "last_name": "Lovelace", "username": "ada"}
    private = read(chat={"id": 77, "type": "private"}, **{"from": sender})
    assert (private.platform_id, private.sender_id, private.is_direct) == ("77", "77", True)
    assert private.sender_name == "Ada Lovelace"
    assert read(**{"from": {"id": 77, "username": "ada"}}).sender_name == "ada"
    assert read(**{"from": {"id": 77}}).sender_name is None
    # A reply outside of a forum has a thread number too.
    assert read(message_thread_id=9).thread_id is None
    assert read(message_thread_id=9, is_topic_message=True).thread_id == "9"


@pytest.mark.spec("C1", "C5")
@pytest.mark.parametrize(
    "fields",
    [
        {"from": {"id": 7, "is_bot": True}},
        {"from": {"id": 1087968824, "is_bot": True}, "sender_chat": {"id": GROUP, "type": "supergroup"}},
        {"from": {"id": 777000}, "sender_chat": {"id": -100777, "type": "channel"}},
        {"from": None},
    ],
)
def test_nobody_but_a_person_is_listened_to(fields: dict[str, Any]) -> None:
    message = read(**fields)
    assert message.sender_id is None
    assert not TelegramChannel(TOKEN, SECRET).accepts(message)


@pytest.mark.spec("C2", "T8")
@pytest.mark.parametrize(
    ("fields", "attachment"),
    [
        (
            {
                "photo": [
                    {"file_id": "S", "width": 90, "height": 60, "file_size": 1},
                    {"file_id": "L", "width": 900, "height": 600, "file_size": 99},
                    {"file_id": "M", "width": 300, "height": 200},
                ]
            },
            {"name": "photo.jpg", "media_type": "image/jpeg", "size": 99, "reference": "L"},
        ),
        (
            {"document": {"file_id": "D", "file_name": "terms.pdf", "mime_type": "application/pdf", "file_size": 5}},
            {"name": "terms.pdf", "media_type": "application/pdf", "size": 5, "reference": "D"},
        ),
        (
            {"document": {"file_id": "D"}},
            {"name": "document", "media_type": "application/octet-stream", "reference": "D"},
        ),
        ({"voice": {"file_id": "V"}}, {"name": "voice.ogg", "media_type": "audio/ogg", "reference": "V"}),
        ({"audio": {"file_id": "A"}}, {"name": "audio.mp3", "media_type": "audio/mpeg", "reference": "A"}),
        ({"video": {"file_id": "W"}}, {"name": "video.mp4", "media_type": "video/mp4", "reference": "W"}),
        ({"video_note": {"file_id": "N"}}, {"name": "video.mp4", "media_type": "video/mp4", "reference": "N"}),
    ],
)
def test_what_is_attached(fields: dict[str, Any], attachment: dict[str, Any]) -> None:
    assert read(text="", caption="look", **fields).content == {"text": "look", "attachments": [attachment]}
    assert read(text="", **fields).content == {"text": "", "attachments": [attachment]}


@pytest.mark.spec("C1")
@pytest.mark.parametrize(
    "update",
    [
        {"update_id": 1},
        {"update_id": 1, "edited_message": {"message_id": 5, "text": "changed"}},
        {"update_id": 1, "my_chat_member": {"chat": {"id": 7}}},
        {"update_id": 1, "channel_post": {"message_id": 5, "chat": {"id": -100, "type": "channel"}, "text": "news"}},
        {"update_id": 1, "message": {"message_id": 5, "chat": {"id": 7, "type": "group"}, "new_chat_members": []}},
        {"update_id": 1, "callback_query": {"id": "q", "from": {"id": 7}, "inline_message_id": "i", "data": "x"}},
        {"update_id": 1, "callback_query": {"id": "q", "from": {"id": 7}, "game_short_name": "chess"}},
    ],
)
def test_what_says_nothing_brings_nothing(update: dict[str, Any]) -> None:
    received = TelegramChannel(TOKEN, SECRET).receive(posted(update))
    assert (received.messages, received.presses, received.answer) == ((), (), None)


@pytest.mark.spec("C6")
def test_a_press_says_where_by_whom_and_under_what() -> None:
    place = {"message_id": 5, "chat": {"id": GROUP, "type": "supergroup"}, "date": 0}
    topic = {"message_thread_id": 9, "is_topic_message": True}
    callback = {"id": "q1", "from": {"id": 77, "first_name": "Ada"}, "message": place | topic, "data": "card:1"}
    received = TelegramChannel(TOKEN, SECRET).receive(posted({"update_id": 1, "callback_query": callback}))
    assert received.presses == (ButtonPress("card:1", str(GROUP), "77", "Ada", "9", "5", "q1"),)


ODD: Final[list[Any]] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**400,
    "",
    "x",
    "\ud800",
    [],
    [None],
    [[]],
    {},
    {"id": None},
    {"": []},
]
FIELDS: Final = (
    "update_id", "message", "callback_query", "message.message_id", "message.from", "message.from.id",
    "message.from.is_bot", "message.from.first_name", "message.chat", "message.chat.id", "message.chat.type",
    "message.text", "message.caption", "message.entities", "message.entities.0", "message.entities.0.offset",
    "message.entities.0.user", "message.photo", "message.photo.0", "message.photo.0.file_id",
    "message.photo.0.width", "message.document", "message.sender_chat", "message.reply_to_message",
    "message.message_thread_id", "message.is_topic_message", "callback_query.id", "callback_query.from",
    "callback_query.message", "callback_query.message.chat", "callback_query.data",
)  # fmt: skip


def whole_update() -> Any:
    message = {
        "message_id": 5,
        "from": {"id": 7, "is_bot": False, "first_name": "Ada"},
        "chat": {"id": 7, "type": "private"},
        "text": "hi",
        "entities": entity("mention", 0, 2, user={"id": 7}),
        "photo": [{"file_id": "F", "width": 1}],
    }
    callback = {"id": "q", "from": {"id": 7}, "message": message, "data": "card:1"}
    return {"update_id": 1, "message": message, "callback_query": callback}


@pytest.mark.spec("C8")
@pytest.mark.parametrize("path", FIELDS)
def test_odd_updates_are_read_or_refused_in_words(path: str) -> None:
    *above, last = path.split(".")
    channel = TelegramChannel(TOKEN, SECRET, username=USERNAME)
    for odd in ODD:
        for alone in (False, True):
            update = whole_update()
            if alone and above:  # else the message hides the callback
                update = {"update_id": 1, above[0]: update[above[0]]}
            at = update
            for step in above:
                at = at[int(step) if isinstance(at, list) else step]
            at[int(last) if isinstance(at, list) else last] = odd
            with contextlib.suppress(MalformedError):
                received = channel.receive(posted(update))
                for message in received.messages:
                    assert message.content["text"].encode() is not None  # nothing that no wire can carry


LEAVES: Final = st.none() | st.booleans() | st.integers() | st.text()
KEYS: Final = st.sampled_from(["message", "from", "chat", "id", "text", "entities", "message_id", "photo", "data"])


@pytest.mark.spec("C8")
@given(st.recursive(LEAVES, lambda more: st.lists(more) | st.dictionaries(KEYS, more)))
def test_anything_at_all_is_read_or_refused_in_words(anything: Any) -> None:
    with contextlib.suppress(MalformedError):
        TelegramChannel(TOKEN, SECRET).receive(posted({"update_id": 1, "message": anything}))


@pytest.mark.spec("C4")
@pytest.mark.parametrize("known", [True, False])
def test_a_place_gets_an_agent_when_somebody_known_speaks_to_the_bot(known: bool) -> None:
    channel = TelegramChannel(TOKEN, SECRET, username=USERNAME, agent="demo")
    direct = InboundMessage("7", "1", {}, is_direct=True)
    mentioned = InboundMessage(str(GROUP), "1", {}, is_mention=True)
    registered = [channel.registers(one, known=known) for one in (direct, mentioned, InboundMessage("7", "1", {}))]
    assert registered == (["demo", "demo", None] if known else [None, None, None])
    assert TelegramChannel(TOKEN, SECRET).registers(direct, known=known) is None


# --- Sending -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C3")
async def test_markdown_arrives_as_entities(channel: TelegramChannel, api: TelegramApi) -> None:
    await channel.deliver(said("🫖 **bold** `co*de`"))
    [shown] = api.messages
    assert shown.text == "🫖 bold co*de"
    found = {(one["type"], one["offset"], one["length"]) for one in shown.entities}
    assert found == {("bold", 3, 4), ("code", 8, 5)}
    assert channel.length("🫖 **bold**") == 7


@pytest.mark.spec("C3")
async def test_half_a_character_does_not_stop_a_message(channel: TelegramChannel, api: TelegramApi) -> None:
    await channel.deliver(said("half \ud83d of it"))
    assert [shown.text for shown in api.messages] == ["half � of it"]


@pytest.mark.spec("C1", "M12")
async def test_a_message_goes_to_its_topic(channel: TelegramChannel, api: TelegramApi) -> None:
    topic = Destination(str(GROUP), str(TOPIC))
    receipt = await channel.deliver(said(to=topic, buttons=(Button("Allow", "card:1"),)))
    await channel.show_typing(topic, on=True, doing="reading")
    assert (api.messages[0].thread, api.typing) == (TOPIC, [(GROUP, TOPIC)])
    [press] = channel.receive(posted(api.presses("Allow"))).presses
    assert (press.thread_id, press.platform_message_id) == (str(TOPIC), receipt.platform_message_id)
    await channel.edit(topic, receipt.platform_message_id or "", {"text": "changed"})
    assert api.messages[0].text == "changed"


@pytest.mark.spec("C3", "C6")
async def test_buttons_stand_in_rows_that_can_be_read(channel: TelegramChannel, api: TelegramApi) -> None:
    narrow = tuple(Button(f"Option {number}", f"card:{number}") for number in range(4))
    wide = (Button("Allow this once and never again", "card:9"), Button("Look", url="https://example.org/x"))
    await channel.deliver(said(buttons=narrow))
    await channel.deliver(said(buttons=wide))
    assert [[len(row) for row in shown.keys] for shown in api.messages] == [[3, 1], [1, 1]]
    assert api.messages[1].keys[1] == [{"text": "Look", "url": "https://example.org/x"}]


@pytest.mark.spec("C6")
async def test_whoever_pressed_is_told_once_and_briefly(channel: TelegramChannel, api: TelegramApi) -> None:
    await channel.deliver(said(buttons=(Button("Allow", "card:1"),)))
    [press] = channel.receive(posted(api.presses("Allow"))).presses
    await channel.tell(press, "x" * 300)
    assert api.toasts == {press.handle: "x" * 200}
    await channel.tell(press, "too late: nobody looks there any more")
    assert api.toasts == {press.handle: "x" * 200}
    api.fail_next("busy")
    with pytest.raises(DeliveryError, match="answered 429"):
        await channel.tell(press, "again")


@pytest.mark.spec("C3")
async def test_an_edit_that_changes_nothing_is_done(channel: TelegramChannel, api: TelegramApi) -> None:
    receipt = await channel.deliver(said("same"))
    assert receipt.platform_message_id is not None
    await channel.edit(TelegramHarness.destination, receipt.platform_message_id, {"text": "same"})
    with pytest.raises(DeliveryError, match="message to edit not found") as caught:
        await channel.edit(TelegramHarness.destination, "999999", {"text": "other"})
    assert not caught.value.retryable
    assert [shown.text for shown in api.messages] == ["same"]


@pytest.mark.spec("C3")
@pytest.mark.parametrize(
    ("emoji", "shown"),
    [
        ("👍", "👍"),
        ("thumbs_up", "👍"),
        (":tada:", "🎉"),
        ("❤️", "❤"),
        ("✅", "👍"),
        ("smile", "😁"),
        ("EYES", "👀"),
        ("😢", "😢"),
    ],
)
async def test_reactions_by_sign_or_name(emoji: str, shown: str, channel: TelegramChannel, api: TelegramApi) -> None:
    receipt = await channel.deliver(said())
    await channel.react(TelegramHarness.destination, receipt.platform_message_id or "", emoji)
    assert api.messages[0].reaction == shown


@pytest.mark.spec("C3")
async def test_a_reaction_that_telegram_has_not_is_refused_with_some_it_has(channel: TelegramChannel) -> None:
    receipt = await channel.deliver(said())
    with pytest.raises(ChannelError, match="has no reaction '🫖'; among others it has 👍") as caught:
        await channel.react(TelegramHarness.destination, receipt.platform_message_id or "", "🫖")
    assert not isinstance(caught.value, DeliveryError)
    with pytest.raises(DeliveryError, match="message to react not found"):
        await channel.react(TelegramHarness.destination, "999999", "👍")


def file(folder: Path, name: str, data: bytes, media_type: str) -> OutboundFile:
    (folder / "kept").write_bytes(data)
    return OutboundFile(name, folder / "kept", media_type, len(data))


@pytest.mark.spec("C2", "C3")
@pytest.mark.parametrize(
    ("name", "data", "media_type", "kind"),
    [
        ('a "report" ü.csv', b"a,b\r\n\x00\xff--boundary", "text/csv", "document"),
        ("cat.png", PNG, "image/png", "photo"),
        ("lying.png", b"no picture", "image/png", "document"),  # what cannot be shown is sent as it is
    ],
)
async def test_a_file_goes_with_its_text(
    name: str, data: bytes, media_type: str, kind: str, channel: TelegramChannel, api: TelegramApi, tmp_path: Path
) -> None:
    message = said("**here** 🫖", files=(file(tmp_path, name, data, media_type),), buttons=(Button("Fine", "card:1"),))
    receipt = await channel.deliver(message)
    [shown] = api.messages
    assert shown.file == (kind, name.replace('"', "%22"), data)
    assert (shown.text, shown.entities) == ("here 🫖", [{"type": "bold", "offset": 0, "length": 4}])
    assert receipt.platform_message_id == str(shown.id)
    # The words under a file are changed like any other.
    for _ in range(2):
        await channel.edit(message.destination, str(shown.id), {"text": "decided"})
    assert (shown.text, shown.keys) == ("decided", [])


@pytest.mark.spec("C2", "C3")
async def test_a_long_text_goes_before_its_files(channel: TelegramChannel, api: TelegramApi, tmp_path: Path) -> None:
    one = file(tmp_path, "a.csv", b"1", "text/csv")
    receipt = await channel.deliver(said("x" * 1025, files=(one, one), buttons=(Button("Fine", "card:1"),)))
    assert [(len(shown.text), shown.file is not None, len(shown.keys)) for shown in api.messages] == [
        (1025, False, 1),
        (0, True, 0),
        (0, True, 0),
    ]
    assert receipt.platform_message_id == str(api.messages[0].id)
    await channel.deliver(said("", files=(one,)))
    assert api.messages[-1].file == ("document", "a.csv", b"1")


@pytest.mark.spec("M12")
@pytest.mark.parametrize(("fault", "doubtful"), [("busy", True), ("lost", True), ("refused", False)])
async def test_what_was_half_sent_is_not_sent_again(
    fault: telegram_api.Fault, doubtful: bool, channel: TelegramChannel, api: TelegramApi, tmp_path: Path
) -> None:
    api.fail_next(None, fault)
    with pytest.raises(DeliveryError, match=r"what goes before a\.csv was sent, the file was not") as caught:
        await channel.deliver(said("x" * 1025, files=(file(tmp_path, "a.csv", b"1", "text/csv"),)))
    assert (caught.value.may_have_arrived, caught.value.retryable) == (doubtful, doubtful)


@pytest.mark.spec("M12")
async def test_a_file_that_is_too_large_is_not_even_sent(channel: TelegramChannel, tmp_path: Path) -> None:
    huge = OutboundFile("huge.bin", tmp_path / "not there", "application/zip", (50 << 20) + 1)
    with pytest.raises(DeliveryError, match=r"huge\.bin has 52428801 bytes; Telegram takes 50 MB") as caught:
        await channel.deliver(said(files=(huge,)))
    assert not caught.value.retryable


# --- What goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.spec("M12")
@pytest.mark.parametrize(
    ("fault", "words", "retryable", "doubtful"),
    [
        ("busy", "Telegram answered 429: Too Many Requests: retry after 7", True, False),
        ("blocked", "Telegram answered 403: Forbidden: bot was blocked by the user", False, False),
        (
            "moved",
            f"Telegram answered 400: .* supergroup chat: it is {GROUP} now; wire the agent to that",
            False,
            False,
        ),
        ("spoiled", "Telegram answered 500: Internal Server Error", True, True),
        ("lost", "Telegram: RemoteProtocolError", True, True),
        ("gibberish", "Telegram answered something unreadable", True, True),
        ("leaky", "Telegram answered 400: Bad Request: cannot /bot…/sendMessage", False, False),
    ],
)
async def test_failures_in_words(
    fault: telegram_api.Fault,
    words: str,
    retryable: bool,
    doubtful: bool,
    channel: TelegramChannel,
    api: TelegramApi,
) -> None:
    api.fail_next(fault)
    with pytest.raises(DeliveryError, match=words) as caught:
        await channel.deliver(said())
    error = pickle.loads(pickle.dumps(caught.value))  # as it travels between processes
    assert (error.retryable, error.may_have_arrived) == (retryable, doubtful)
    assert TOKEN.partition(":")[2] not in repr(error)


@pytest.mark.spec("M12")
async def test_no_answer_in_time_is_doubt(
    channel: TelegramChannel, api: TelegramApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.2)
    api.fail_next("slow")
    with pytest.raises(DeliveryError, match="Telegram: ReadTimeout") as caught:
        await channel.deliver(said())
    assert caught.value.may_have_arrived


@pytest.mark.spec("C2")
async def test_a_token_that_is_not_ours_is_named_by_its_variable(api: TelegramApi) -> None:
    channel = TelegramChannel("1:not-a-token-of-any-bot", "", api=api.url)
    with pytest.raises(DeliveryError, match="401: Unauthorized: LONGSHORE_TELEGRAM_TOKEN is none that") as caught:
        await channel.deliver(said())
    assert not caught.value.retryable
    assert "not-a-token" not in str(caught.value)
    await channel.close()


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    "to", [Destination("inbox"), Destination(""), Destination("7; 8"), Destination("٣"), Destination("7", "general")]
)
async def test_what_is_no_chat_of_telegram_is_not_asked_about(to: Destination, channel: TelegramChannel) -> None:
    with pytest.raises(DeliveryError, match="of Telegram's") as caught:
        await channel.deliver(said(to=to))
    assert not caught.value.retryable
    await channel.show_typing(to, on=True)
    with pytest.raises(DeliveryError, match="no message of Telegram's"):
        await channel.edit(Destination("7"), "m1", {"text": "x"})
    assert await channel.open_dm("ada") is None


@pytest.mark.spec("C2")
async def test_the_token_is_in_no_log(api: TelegramApi, caplog: pytest.LogCaptureFixture) -> None:
    """The HTTP library tells every address it asks; the redactor, which every handler has, knows the token."""
    caplog.set_level(logging.INFO)
    channel = make(api)
    await channel.deliver(said())
    await channel.close()
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "sendMessage" in told
    assert TOKEN.partition(":")[2] not in Redactor(secrets_in({"LONGSHORE_TELEGRAM_TOKEN": TOKEN})).text(told)


# --- Files of others ---------------------------------------------------------------------------------------------


@pytest.mark.spec("T8")
async def test_what_somebody_sent_is_fetched(channel: TelegramChannel, api: TelegramApi) -> None:
    api.files["F1"] = ("photos/file_1.jpg", b"x" * 3_000_000)
    assert await channel.fetch("F1", 3_000_000) == b"x" * 3_000_000
    with pytest.raises(ChannelError, match="larger than 2999999 bytes"):
        await channel.fetch("F1", 2_999_999)
    with pytest.raises(ChannelError, match="wrong file_id"):
        await channel.fetch("F2", 10)


@pytest.mark.spec("T8")
@pytest.mark.parametrize("path", ["", "../../etc/passwd", "photos/../../x"])
async def test_a_file_that_is_nowhere(path: str, channel: TelegramChannel, api: TelegramApi) -> None:
    api.files["F1"] = (path, b"x")
    with pytest.raises(ChannelError, match="does not say where"):
        await channel.fetch("F1", 10)


# --- Listening ---------------------------------------------------------------------------------------------------


def texts(batch: Batch) -> list[str]:
    return [message.content["text"] for message in batch.received.messages]


@contextlib.asynccontextmanager
async def listening(
    channel: TelegramChannel, cursor: dict[str, Any] | None = None
) -> AsyncIterator[AsyncGenerator[Batch]]:
    async with contextlib.aclosing(channel.listen(cursor)) as heard:  # type: ignore[type-var]
        yield heard  # type: ignore[misc]


@pytest.mark.spec("C2")
async def test_it_hears_messages_and_presses_in_order(channel: TelegramChannel, api: TelegramApi) -> None:
    await channel.deliver(said(buttons=(Button("Allow", "card:1"),)))
    api.queue(api.says("one"), api.says("two"), {"update_id": 70_100, "edited_message": {}}, api.presses("Allow"))
    async with listening(channel) as heard:
        batch = await anext(heard)
        assert texts(batch) == ["one", "two"]
        assert [press.token for press in batch.received.presses] == ["card:1"]
        assert api.offsets == [None]
        # What is said while it waits comes at once.
        waiting = asyncio.ensure_future(anext(heard))
        api.waiting.clear()
        assert await asyncio.to_thread(api.waiting.wait, 10)
        later = api.says("three") | {"update_id": 70_200}
        api.queue(later)
        assert texts(await waiting) == ["three"]
        assert api.offsets[-1] == batch.cursor["offset"]


@pytest.mark.spec("C2", "M1")
async def test_a_listener_that_died_loses_nothing(channel: TelegramChannel, api: TelegramApi) -> None:
    """Nothing is acknowledged before what was heard is taken: the next one hears it again."""
    api.queue(api.says("one"), api.says("two"))
    async with listening(channel) as heard:
        first = await anext(heard)
        assert texts(first) == ["one", "two"]
    # It died before the cursor was stored: the same again, as the same messages.
    async with listening(channel) as heard:
        again = await anext(heard)
        assert again == first
    api.queue(api.says("three"))
    async with listening(channel, dict(again.cursor)) as heard:
        assert texts(await anext(heard)) == ["three"]
    # A cursor that nobody could have written is none.
    async with listening(channel, {"offset": "yesterday"}) as heard:
        assert texts(await anext(heard)) == ["three"]


@pytest.mark.spec("C8")
async def test_one_unreadable_update_does_not_hold_up_the_others(channel: TelegramChannel, api: TelegramApi) -> None:
    api.queue({"update_id": 1, "message": {"text": 5}}, {"update_id": 2, "message": {"text": "\ud800"}}, api.says("ok"))
    async with listening(channel) as heard:
        batch = await anext(heard)
    assert texts(batch) == ["ok"]
    assert batch.cursor == {"offset": 70_002}


@pytest.mark.spec("C2")
async def test_somebody_else_who_takes_the_updates_is_told_of(channel: TelegramChannel, api: TelegramApi) -> None:
    api.webhook = True
    async with listening(channel) as heard:
        with pytest.raises(DeliveryError, match=r"webhook is active.*set LONGSHORE_TELEGRAM_SECRET") as caught:
            await anext(heard)
    assert (caught.value.retryable, caught.value.retry_after) == (True, 30.0)
    api.webhook = False
    other = make(api, poll_seconds=5)
    async with listening(channel) as heard, listening(other) as overheard:
        waiting = asyncio.ensure_future(anext(heard))
        assert await asyncio.to_thread(api.waiting.wait, 10)
        overhearing = asyncio.ensure_future(anext(overheard))
        with pytest.raises(DeliveryError, match=r"terminated by other.*another program that polls \(stop it\)"):
            await waiting
        api.queue(api.says("for the other"))
        assert texts(await overhearing) == ["for the other"]
    await other.close()


@pytest.mark.spec("C2")
@pytest.mark.parametrize(("fault", "retry_after"), [("busy", 7.0), ("broken", None), ("gibberish", None)])
async def test_a_listener_says_when_to_come_back(
    fault: telegram_api.Fault, retry_after: float | None, channel: TelegramChannel, api: TelegramApi
) -> None:
    api.fail_next(fault)
    async with listening(channel) as heard:
        with pytest.raises(DeliveryError) as caught:
            await anext(heard)
    assert (caught.value.retryable, caught.value.retry_after) == (True, retry_after)


# --- Settings ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C8", "F9")
async def test_what_is_set_decides_how_it_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "SECRET", "USERNAME", "API", "AGENT"):
        monkeypatch.delenv(f"LONGSHORE_TELEGRAM_{name}", raising=False)
    nothing = TelegramChannel()
    assert (nothing.receives, nothing.listens()) == (False, None)
    with pytest.raises(SignatureError, match="LONGSHORE_TELEGRAM_SECRET is not set"):
        nothing.verify(InboundRequest({SECRET_HEADER: ""}, b"{}"))
    with pytest.raises(DeliveryError, match="LONGSHORE_TELEGRAM_TOKEN is not set") as caught:
        await nothing.deliver(said())
    assert not caught.value.retryable
    await nothing.show_typing(TelegramHarness.destination, on=True)
    monkeypatch.setenv("LONGSHORE_TELEGRAM_TOKEN", TOKEN)
    assert (TelegramChannel().receives, TelegramChannel().listens()) == (False, f"telegram:{BOT_ID}")
    monkeypatch.setenv("LONGSHORE_TELEGRAM_SECRET", SECRET)
    assert (TelegramChannel().receives, TelegramChannel().listens()) == (True, None)
    TelegramChannel().verify(posted({}))


@pytest.mark.spec("F9")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKEN", "hunter2"),
        ("TOKEN", "123:hunter2/../x"),
        ("SECRET", "hunter2 and more"),
        ("SECRET", "hunter2" * 40),
        ("USERNAME", "hunter2 bot"),
        ("API", "hunter2"),
        ("API", "https://user:hunter2@api.example"),
        ("AGENT", "hunter2/x"),
    ],
)
def test_a_bad_setting_is_refused_without_repeating_it(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = complaint_about(f"LONGSHORE_TELEGRAM_{name}", value, TelegramChannel, monkeypatch)
    assert said.startswith(f"LONGSHORE_TELEGRAM_{name} is not")
