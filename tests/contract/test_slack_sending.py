"""What the `slack` channel sends, over real HTTP: messages, buttons, files, and finding again what arrived."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.channel_port import Button, Destination, OutboundFile, Receipt
from adapters.channels import http
from adapters.channels.slack import SlackChannel
from adapters.channels.slack import channel as slack
from adapters.channels.slack.api import FILE_HOSTS, SlackApi
from adapters.channels.slack.messages import emoji_name
from adapters.errors import ChannelError, DeliveryError
from tests.support.rest_stand_in import Said
from tests.support.slack_api import TOKEN, File, SlackServer
from tests.support.slack_harness import PLACE, THREAD, TS, channel_to, heard, says, slack_server


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack_server() as stand_in:
        yield stand_in


@pytest.fixture
async def channel(server: SlackServer) -> AsyncIterator[SlackChannel]:
    made = channel_to(server)
    yield made
    await made.close()


def a_file(folder: Path, name: str = "report.txt", data: bytes = b"figures") -> OutboundFile:
    path = folder / name
    path.write_bytes(data)
    return OutboundFile(name, path, "text/plain", len(data))


# --- Messages -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "C3", "M12")
async def test_a_message_carries_its_key_and_asks_for_no_previews(channel: SlackChannel, server: SlackServer) -> None:
    receipt = await channel.deliver(says("**bold** <!channel> & `x`", destination=Destination("C1", THREAD)))
    [(method, said)] = server.calls
    assert method == "chat.postMessage"
    assert said == {
        "channel": "C1",
        "thread_ts": THREAD,
        "text": "*bold* &lt;!channel&gt; &amp; `x`",
        "metadata": {"event_type": "longshore_message", "event_payload": {"key": "key-1"}},
        "unfurl_links": False,
        "unfurl_media": False,
    }
    assert receipt == Receipt(server.messages[0]["ts"])


@pytest.mark.spec("C3")
def test_length_counts_escapes_and_both_halves_of_an_emoji(channel: SlackChannel) -> None:
    assert channel.length("a & b") == len("a &amp; b")
    assert channel.length("🫖") == 2


@pytest.mark.spec("M12")
@pytest.mark.parametrize(
    ("said", "retryable", "may_have_arrived", "words"),
    [
        ({"error": "ratelimited"}, True, False, "ratelimited"),
        ({"error": "service_unavailable"}, True, False, "service_unavailable"),
        ({"error": "fatal_error"}, True, True, "fatal_error"),
        ({"error": "internal_error"}, True, True, "internal_error"),
        ({"error": "channel_not_found"}, False, False, "invite it there"),
        ({"error": "not_in_channel"}, False, False, "invite the bot to the channel"),
        ({"error": "is_archived"}, False, False, "the channel is archived"),
        ({"error": "invalid_auth"}, False, False, "LONGSHORE_SLACK_TOKEN is not valid"),
        ({"error": "account_inactive"}, False, False, "install it again"),
        (
            {"error": "missing_scope", "needed": "chat:write"},
            False,
            False,
            r"missing_scope \(chat:write\): add the scope",
        ),
        ({"error": "a_new_one"}, False, False, "slack: a_new_one"),
        ({"error": f"see {TOKEN}"}, True, True, "in no form it is known for"),
        ({"error": ["x"]}, True, True, "in no form it is known for"),
        ({}, True, True, "in no form it is known for"),
    ],
)
async def test_what_slack_refuses_is_judged_and_explained(
    said: dict[str, Any], retryable: bool, may_have_arrived: bool, words: str, channel: SlackChannel,
    server: SlackServer,
) -> None:  # fmt: skip
    server.scripted.append(Said(200, {"ok": False} | said))
    with pytest.raises(DeliveryError, match=words) as caught:
        await channel.deliver(says("hi"))
    assert (caught.value.retryable, caught.value.may_have_arrived) == (retryable, may_have_arrived)
    assert TOKEN not in str(caught.value)
    assert server.url not in str(caught.value)


@pytest.mark.spec("M12")
async def test_a_limit_that_is_told_with_200_is_waited_for(channel: SlackChannel, server: SlackServer) -> None:
    server.scripted.append(Said(200, {"ok": False, "error": "ratelimited"}, {"Retry-After": "30"}))
    with pytest.raises(DeliveryError) as caught:
        await channel.deliver(says("hi"))
    assert caught.value.retry_after == 30


@pytest.mark.spec("M12")
async def test_an_answer_that_is_not_slacks_leaves_a_doubt(channel: SlackChannel, server: SlackServer) -> None:
    server.fail_next("garbled")
    with pytest.raises(DeliveryError) as caught:
        await channel.deliver(says("hi"))
    assert (caught.value.retryable, caught.value.may_have_arrived) == (True, True)
    assert await channel.find_receipt(PLACE, "key-1") == Receipt(server.messages[0]["ts"])


@pytest.mark.spec("M12")
async def test_slack_not_answering_in_time_leaves_a_doubt(
    channel: SlackChannel, server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.1)
    server.fail_next("slow")
    with pytest.raises(DeliveryError, match="slack: ReadTimeout") as caught:
        await channel.deliver(says("hi"))
    assert (caught.value.retryable, caught.value.may_have_arrived) == (True, True)


@pytest.mark.spec("C8")
async def test_a_redirect_does_not_carry_the_token_elsewhere(channel: SlackChannel, server: SlackServer) -> None:
    server.scripted.append(Said(307, headers={"Location": f"{server.host}/elsewhere"}))
    with pytest.raises(DeliveryError, match="slack answered 307") as caught:
        await channel.deliver(says("hi"))
    assert not caught.value.retryable


@pytest.mark.spec("C2")
async def test_another_token_is_refused_and_not_shown(server: SlackServer) -> None:
    channel = channel_to(server, token="xoxb-another")
    with pytest.raises(DeliveryError, match="LONGSHORE_SLACK_TOKEN is not valid") as caught:
        await channel.deliver(says("hi"))
    assert not caught.value.retryable
    assert "xoxb-another" not in str(caught.value)
    await channel.close()


@pytest.mark.spec("C2")
async def test_without_a_token_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TOKEN", "SIGNING_SECRET"):
        monkeypatch.setenv(f"LONGSHORE_SLACK_{name}", "")
    channel = SlackChannel()
    for message in (says("hi"), says("hi", files=(a_file(tmp_path),))):
        with pytest.raises(DeliveryError, match="LONGSHORE_SLACK_TOKEN is not set") as caught:
            await channel.deliver(message)
        assert not caught.value.retryable
    assert not channel.receives


@pytest.mark.spec("C3")
async def test_an_edit_takes_away_buttons_and_may_set_others(channel: SlackChannel, server: SlackServer) -> None:
    receipt = await channel.deliver(says("Allow?", buttons=(Button("Yes", "c:1"),)))
    assert receipt.platform_message_id is not None
    await channel.edit(PLACE, receipt.platform_message_id, {"text": "Sure?"}, (Button("Really", "c:2"),))
    assert (server.shown(), server.buttons()) == (["Sure?"], ["Really"])
    await channel.edit(PLACE, receipt.platform_message_id, {"text": "*Allowed* by @ada"})
    assert (server.shown(), server.buttons()) == (["_Allowed_ by @ada"], [])
    with pytest.raises(ChannelError, match="no longer there"):
        await channel.edit(PLACE, "1.2", {"text": "x"})


@pytest.mark.spec("C3")
@pytest.mark.parametrize(
    ("emoji", "name"),
    [
        ("👍", "thumbsup"),
        ("👍🏽", "thumbsup"),
        ("❤️", "heart"),
        ("✅", "white_check_mark"),
        ("🚀", "rocket"),
        ("🫖", "teapot"),
        (":eyes:", "eyes"),
        ("thumbs_up", "thumbsup"),
        ("our-own_ship", "our-own_ship"),
        ("white_check_mark", "white_check_mark"),
    ],
)
def test_an_emoji_has_the_name_slack_gave_it(emoji: str, name: str) -> None:
    assert emoji_name(emoji) == name


@pytest.mark.spec("C3")
@pytest.mark.parametrize("emoji", ["", "two words", "👍👍", "\x00", "🏽", "👨‍👩‍👧"])
def test_what_is_no_emoji_is_refused(emoji: str) -> None:
    with pytest.raises(ChannelError, match="no such reaction"):
        emoji_name(emoji)


@pytest.mark.spec("C3")
async def test_the_same_reaction_twice_is_one(channel: SlackChannel, server: SlackServer) -> None:
    receipt = await channel.deliver(says("hi"))
    assert receipt.platform_message_id is not None
    for _ in range(2):
        await channel.react(PLACE, receipt.platform_message_id, "👀")
    assert server.reactions == [(receipt.platform_message_id, "eyes")]


@pytest.mark.spec("M13")
async def test_a_thread_shows_what_the_agent_is_at(channel: SlackChannel, server: SlackServer) -> None:
    thread = Destination("C1", THREAD)
    for on, doing, shown in ((True, None, "is thinking…"), (True, "reads a file", "reads a file"), (False, None, "")):
        await channel.show_typing(thread, on=on, doing=doing)
        assert server.status == {THREAD: shown}
    await channel.show_typing(PLACE, on=True)
    assert len(server.calls) == 3


@pytest.mark.spec("M13")
@pytest.mark.parametrize("said", [Said(200, {"ok": False, "error": "not_in_assistant"}), Said(429), Said(500)])
async def test_typing_never_fails(said: Said, channel: SlackChannel, server: SlackServer) -> None:
    server.scripted.append(said)
    await channel.show_typing(Destination("C1", THREAD), on=True)
    assert server.scripted == []
    server.close()
    await channel.show_typing(Destination("C1", THREAD), on=False)


@pytest.mark.spec("C6")
async def test_there_is_no_direct_chat_with_nobody(channel: SlackChannel, server: SlackServer) -> None:
    assert await channel.open_dm("U1ADA") == "D1ADA"
    assert await channel.open_dm("nobody") is None
    server.scripted.append(Said(200, {"ok": False, "error": "missing_scope", "needed": "im:write"}))
    with pytest.raises(DeliveryError, match="im:write"):
        await channel.open_dm("U1ADA")


# --- Finding what arrived ----------------------------------------------------------------------------------------


@pytest.mark.spec("M12")
@pytest.mark.parametrize("thread", [None, THREAD])
async def test_what_arrived_is_found_among_much_else(
    thread: str | None, channel: SlackChannel, server: SlackServer
) -> None:
    place = Destination("C1", thread)
    server.page_messages = 2
    receipts = [await channel.deliver(says("hi", f"key-{number}", destination=place)) for number in range(5)]
    for number, receipt in enumerate(receipts):
        assert await channel.find_receipt(place, f"key-{number}") == receipt
    assert await channel.find_receipt(place, "key-9") is None
    assert await channel.find_receipt(Destination("C1", TS if thread is None else None), "key-0") is None


@pytest.mark.spec("M12")
async def test_a_message_is_found_also_after_an_edit(channel: SlackChannel, server: SlackServer) -> None:
    receipt = await channel.deliver(says("Allow?", buttons=(Button("Yes", "c:1"),)))
    assert receipt.platform_message_id is not None
    await channel.edit(PLACE, receipt.platform_message_id, {"text": "Allowed"})
    assert await channel.find_receipt(PLACE, "key-1") == receipt


@pytest.mark.spec("M12")
async def test_a_key_that_other_apps_use_is_not_ours(channel: SlackChannel, server: SlackServer) -> None:
    foreign = {"event_type": "other", "event_payload": {"key": "key-1"}}
    odd = ({"metadata": foreign}, {"metadata": "key-1"}, {"metadata": None, "blocks": [5, {"block_id": ["key-1"]}]}, 5)
    server.scripted.append(Said(200, {"ok": True, "messages": odd}))
    assert await channel.find_receipt(PLACE, "key-1") is None


@pytest.mark.spec("M12")
async def test_what_cannot_be_ruled_out_is_not_denied(
    channel: SlackChannel, server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack, "MAX_PAGES", 2)
    server.page_messages = 1
    for number in range(3):
        await channel.deliver(says("hi", f"key-{number}"))
    with pytest.raises(ChannelError, match="and there are more"):
        await channel.find_receipt(PLACE, "never-sent")
    server.scripted.append(Said(200, {"ok": True}))
    with pytest.raises(ChannelError, match="does not say"):
        await channel.find_receipt(PLACE, "never-sent")
    with pytest.raises(DeliveryError, match="channel_not_found"):
        await channel.find_receipt(Destination("C9"), "never-sent")


# --- Files -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "M12")
@pytest.mark.parametrize("thread", [None, THREAD])
@pytest.mark.parametrize(("text", "shown"), [("The **report**", "The *report*"), ("", "a_b_c & co.txt, more.txt")])
async def test_files_are_shown_with_their_text_in_one_message(
    thread: str | None, text: str, shown: str, channel: SlackChannel, server: SlackServer, tmp_path: Path
) -> None:
    place = Destination("C1", thread)
    files = (a_file(tmp_path, "a_b_c & co.txt"), a_file(tmp_path, "more.txt", b"more"))
    receipt = await channel.deliver(says(text, destination=place, files=files))
    [message] = server.messages
    assert (server.shown(), message["files"], message.get("thread_ts")) == ([shown], ["F1", "F2"], thread)
    assert [(file.name, file.data) for file in server.files.values()] == [
        ("a_b_c & co.txt", b"figures"),
        ("more.txt", b"more"),
    ]
    links = ["https://t.slack.com/files/F1", "https://t.slack.com/files/F2"]
    assert receipt == Receipt(message["ts"], {"files": links})
    assert await channel.find_receipt(place, "key-1") == Receipt(message["ts"])


@pytest.mark.spec("M12")
@pytest.mark.parametrize("path", ["/api/files.getUploadURLExternal", "/upload/F1"])
async def test_an_upload_that_fails_has_shown_nothing(
    path: str, channel: SlackChannel, server: SlackServer, tmp_path: Path
) -> None:
    server.instead[path] = Said(500)
    message = says("The report", files=(a_file(tmp_path),))
    with pytest.raises(DeliveryError, match="slack answered 500") as caught:
        await channel.deliver(message)
    assert (caught.value.retryable, caught.value.may_have_arrived) == (True, False)
    await channel.deliver(message)
    assert server.shown() == ["The report"]


@pytest.mark.spec("M12")
async def test_files_that_were_shown_are_found_although_slack_broke(
    channel: SlackChannel, server: SlackServer, tmp_path: Path
) -> None:
    server.afterwards["/api/files.completeUploadExternal"] = Said(500)
    with pytest.raises(DeliveryError) as caught:
        await channel.deliver(says("The report", files=(a_file(tmp_path),)))
    assert caught.value.may_have_arrived
    assert await channel.find_receipt(PLACE, "key-1") == Receipt(server.messages[0]["ts"])


@pytest.mark.spec("M12")
async def test_files_are_delivered_also_if_their_message_is_not_found_at_once(
    channel: SlackChannel, server: SlackServer, tmp_path: Path
) -> None:
    server.instead["/api/conversations.history"] = Said(500)
    receipt = await channel.deliver(says("The report", files=(a_file(tmp_path),)))
    assert (receipt.platform_message_id, server.shown()) == (None, ["The report"])


@pytest.mark.spec("C8")
async def test_a_file_is_uploaded_to_slack_only(channel: SlackChannel, server: SlackServer, tmp_path: Path) -> None:
    elsewhere = {"ok": True, "file_id": "F1", "upload_url": "https://evil.example/upload"}
    server.instead["/api/files.getUploadURLExternal"] = Said(200, elsewhere)
    with pytest.raises(DeliveryError, match="no address for the file"):
        await channel.deliver(says("The report", files=(a_file(tmp_path),)))


@pytest.mark.spec("C2")
async def test_what_people_attach_is_fetched_with_the_token(channel: SlackChannel, server: SlackServer) -> None:
    server.files["F7"] = File("cat.png", 4, b"meow")
    url = f"{server.host}/files/F7"
    file = {"name": "cat.png", "mimetype": "image/png", "size": 4, "url_private_download": url, "mode": "hosted"}
    foreign = {"id": "F8", "file_access": "check_file_info"}
    message = heard(channel, server.event(text="", subtype="file_share", files=[file, foreign]))
    attached = {"name": "cat.png", "media_type": "image/png", "size": 4, "reference": url}
    assert message.content == {"text": "", "attachments": [attached, {}]}
    assert await channel.fetch(url, 4) == b"meow"
    with pytest.raises(ChannelError, match="larger than 3 bytes"):
        await channel.fetch(url, 3)


@pytest.mark.spec("C2")
async def test_a_long_file_is_fetched_whole(channel: SlackChannel, server: SlackServer) -> None:
    server.files["F7"] = File("long.bin", 0, b"x" * (http.MAX_ANSWER_BYTES + 7))
    assert len(await channel.fetch(f"{server.host}/files/F7", 2 << 20)) == http.MAX_ANSWER_BYTES + 7


@pytest.mark.spec("C8")
@pytest.mark.parametrize(
    "url", ["", "http://127.0.0.1:1/files/F7", "http://files.slack.com/F7", "https://hooks.slack.com/F7"]
)
async def test_the_token_is_shown_to_slack_only(url: str, channel: SlackChannel) -> None:
    with pytest.raises(ChannelError, match="not on Slack's servers"):
        await channel.fetch(url, 100)
    assert SlackApi("https://slack.com/api", TOKEN).owns("https://files.slack.com/F7", FILE_HOSTS)


@pytest.mark.spec("C2")
async def test_a_file_that_may_not_be_seen_says_what_is_missing(server: SlackServer) -> None:
    server.files["F7"] = File("cat.png", 4, b"meow")
    channel = channel_to(server, token="xoxb-another")
    with pytest.raises(ChannelError, match=r"slack answered 302 for the file.*files:read"):
        await channel.fetch(f"{server.host}/files/F7", 100)
    await channel.close()


@pytest.mark.spec("C3")
async def test_buttons_keep_to_what_slack_takes(channel: SlackChannel, server: SlackServer) -> None:
    buttons = [Button("Read", url="https://x.example"), Button("Yes", "c:1", "good"), Button("No", "c:2", "bad")]
    buttons += [Button("long " * 30, f"c:{number}") for number in range(3, 30)]
    await channel.deliver(says("Choose", buttons=tuple(buttons)))
    [message] = server.messages
    section, *rows = message["blocks"]
    assert section == {"type": "section", "expand": True, "text": {"type": "mrkdwn", "text": "Choose"}}
    elements = [element for row in rows for element in row["elements"]]
    assert [len(row["elements"]) for row in rows] == [25, 5]
    assert [element.get("style") for element in elements[:4]] == [None, "primary", "danger", None]
    assert [element.get("value") for element in elements] == [None, *(f"c:{number}" for number in range(1, 30))]
    assert elements[0]["url"] == "https://x.example"
    assert len(elements[3]["text"]["text"]) == 75
