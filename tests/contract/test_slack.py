"""The `slack` channel over its real wire: the channel contract, and what Slack sends us."""

import copy
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from adapters.channel_port import Answer, Button, ButtonPress, Destination, InboundMessage, InboundRequest, Received
from adapters.channels.conformance import CHECKS, Check, run_check
from adapters.channels.slack import SlackChannel
from adapters.channels.slack.api import RESPONSE_HOSTS, SlackApi
from adapters.channels.slack.events import readable
from adapters.errors import MalformedError, SignatureError
from tests.support.channel_settings import complaint_about
from tests.support.slack_api import BOT_USER, SECRET, TEAM, TOKEN, SlackServer
from tests.support.slack_harness import THREAD, TS, SlackHarness, channel_to, heard, made, says, slack_server

ODD: Final[tuple[Any, ...]] = (None, True, 0, -1, 10**30, 1e308, "", "\x00", "\ud800", "ü" * 300, [], [None], {"a": 1})


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack_server() as stand_in:
        yield stand_in


@pytest.fixture
async def harness(server: SlackServer) -> AsyncIterator[SlackHarness]:
    made_for_test = SlackHarness(server)
    yield made_for_test
    await made_for_test.channel.close()


@pytest.fixture
def channel(harness: SlackHarness) -> SlackChannel:
    return harness.channel


@pytest.mark.spec("C1", "C2", "C8")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_slack_keeps_the_contract_over_http(check: Check, harness: SlackHarness) -> None:
    outcome = await run_check(check, harness)
    assert (outcome is None) == (check.name not in {"refuses_every_request", "shows_one_message_per_key"})


# --- Signatures --------------------------------------------------------------------------------------------------


@pytest.mark.spec("C8")
@pytest.mark.parametrize(("age", "passes"), [(299, True), (301, False), (-299, True), (-301, False), (10**9, False)])
def test_a_signature_is_good_for_five_minutes(
    age: int, passes: bool, server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    request = made(server.signed(server.event(text="hi")[1], at=1_700_000_000 - age))
    if passes:
        channel_to(server).verify(request)
    else:
        with pytest.raises(SignatureError, match="too old or from the future"):
            channel_to(server).verify(request)


@pytest.mark.spec("C8")
def test_a_body_that_was_written_anew_is_refused(server: SlackServer) -> None:
    channel = channel_to(server)
    headers, body = server.event(text="hi")
    again = json.dumps(json.loads(body), indent=1).encode()
    form_headers, form = server.command(text="two words")
    for request in (InboundRequest(headers, again), InboundRequest(form_headers, form.replace(b"+", b"%20"))):
        with pytest.raises(SignatureError, match="does not fit"):
            channel.verify(request)
    channel.verify(InboundRequest(headers, body))
    channel.verify(InboundRequest(form_headers, form))


@pytest.mark.spec("C8")
def test_without_a_secret_nothing_is_received(server: SlackServer) -> None:
    channel = SlackChannel(token=TOKEN, api=server.url)
    assert not channel.receives
    with pytest.raises(SignatureError, match="LONGSHORE_SLACK_SIGNING_SECRET is not set"):
        channel.verify(made(server.event(text="hi")))


# --- Messages ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2")
def test_slack_is_told_the_challenge_it_asks_for(channel: SlackChannel, server: SlackServer) -> None:
    body = json.dumps({"type": "url_verification", "token": "x", "challenge": "3eZbrw1aB"}).encode()
    assert channel.receive(made(server.signed(body))) == Received(answer=Answer(b'{"challenge": "3eZbrw1aB"}'))


@pytest.mark.spec("C2", "M2")
def test_a_mention_and_its_message_are_the_same_message(channel: SlackChannel, server: SlackServer) -> None:
    text = f"<@{BOT_USER}> look"
    message = heard(channel, server.event(text=text))
    mention = heard(channel, server.event(text=text, type="app_mention"))
    headers, body = server.event(text=text)
    repeated = heard(channel, (headers | {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}, body))
    assert message == mention == repeated
    assert (message.is_mention, message.thread_id, message.content) == (True, TS, {"text": "look"})


@pytest.mark.spec("C2", "M2")
@pytest.mark.parametrize(
    ("event", "thread", "is_mention", "is_direct"),
    [
        ({"text": "hi"}, None, False, False),
        ({"text": "hi <@U2EVE>"}, None, False, False),
        ({"text": "hi <@U0BOT|otto>"}, TS, True, False),
        ({"text": "hi", "thread_ts": THREAD}, THREAD, False, False),
        ({"text": "hi <@U0BOT>", "thread_ts": THREAD}, THREAD, True, False),
        ({"text": "hi", "thread_ts": THREAD, "subtype": "thread_broadcast"}, THREAD, False, False),
        ({"text": "hi", "channel": "D1", "channel_type": "im"}, None, False, True),
        ({"text": "hi <@U0BOT>", "channel": "D1", "channel_type": "im"}, None, True, True),
        ({"text": "hi", "channel": "D1", "channel_type": "im", "thread_ts": THREAD}, THREAD, False, True),
        ({"text": "hi", "channel": "G1", "channel_type": "mpim"}, None, False, False),
    ],
)
def test_threads_mentions_and_direct_chats(
    event: dict[str, Any], thread: str | None, is_mention: bool, is_direct: bool, channel: SlackChannel,
    server: SlackServer,
) -> None:  # fmt: skip
    message = heard(channel, server.event(**event))
    assert (message.thread_id, message.is_mention, message.is_direct) == (thread, is_mention, is_direct)
    assert channel.accepts(message)


@pytest.mark.spec("C2", "M2")
def test_the_bot_is_known_from_the_setting_where_the_event_does_not_say(server: SlackServer) -> None:
    body = json.loads(server.event(text="<@U7OTTO> ask <@U1ADA>")[1])
    # Somebody who installed the app for themselves is not the bot.
    body["authorizations"] = [{"user_id": "U1ADA", "is_bot": False}]
    request = server.signed(json.dumps(body).encode())
    assert not heard(channel_to(server), request).is_mention
    assert heard(channel_to(server, bot_user="U7OTTO"), request).is_mention


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
        ("<@U2EVE> and <@U2EVE|eve>", "@U2EVE and @U2EVE"),
        ("<#C1|general> <#C2>", "#general #C2"),
        ("<!here> <!subteam^S1|@crew> <!date^1^{date}|Monday>", "@here @crew Monday"),
        ("<https://x.example/?a=1&amp;b=2|here>", "here (https://x.example/?a=1&b=2)"),
        ("<https://x.example> <http://x.example|x.example>", "https://x.example x.example"),
        ("<mailto:ada@x.example|ada@x.example>", "ada@x.example"),
        ("&lt;@U2EVE&gt; 1 < 2 <", "<@U2EVE> 1 < 2 <"),
    ],
)
def test_text_is_read_as_people_wrote_it(text: str, plain: str) -> None:
    assert readable(text) == plain


@pytest.mark.spec("C2", "M16")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<@U0BOT> /clear", "/clear"),
        ("<@U0BOT>: /clear", "/clear"),
        ("hey <@U0BOT> look", "hey look"),
        ("<@U0BOT>, ask <@U2EVE>", "ask @U2EVE"),
        ("<@U0BOT>", "@U0BOT"),
    ],
)
def test_the_mention_that_wakes_the_bot_is_not_part_of_the_text(
    text: str, plain: str, channel: SlackChannel, server: SlackServer
) -> None:
    assert heard(channel, server.event(text=text)).content == {"text": plain}


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    "event",
    [
        {"subtype": "message_changed", "message": {"text": "x"}},
        {"subtype": "message_deleted"},
        {"subtype": "bot_message", "text": "x"},
        {"subtype": "channel_join", "text": "x"},
        {"type": "reaction_added"},
        {"text": ""},
        {"text": " ", "files": []},
    ],
)
def test_what_is_not_said_by_somebody_is_no_message(
    event: dict[str, Any], channel: SlackChannel, server: SlackServer
) -> None:
    assert channel.receive(made(server.event(**event))) == Received()


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    ("sender", "taken"),
    [("U1ADA", True), ("W1EVE", True), ("B1", False), ("USLACKBOT", False), (BOT_USER, False), (None, False)],
)
def test_only_people_are_heard(sender: str | None, taken: bool, server: SlackServer) -> None:
    channel = channel_to(server, bot_user=BOT_USER)
    assert channel.accepts(InboundMessage("C1", TS, {"text": "x"}, sender_id=sender)) is taken


@pytest.mark.spec("C4")
@pytest.mark.parametrize("agent", ["otto", ""])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("is_direct", "is_mention"), [(True, False), (False, True), (False, False)])
def test_a_place_is_registered_for_people_who_are_known(
    agent: str, known: bool, is_direct: bool, is_mention: bool, server: SlackServer
) -> None:
    message = InboundMessage("C1", TS, {"text": "x"}, is_direct=is_direct, is_mention=is_mention)
    expected = "otto" if agent and known and (is_direct or is_mention) else None
    assert channel_to(server, agent=agent).registers(message, known=known) == expected


@pytest.mark.spec("C2", "M16")
@pytest.mark.parametrize(
    ("text", "said"), [("/clear", "/clear"), (" what is &lt;b&gt;? ", "what is <b>?"), ("", "/longshore")]
)
def test_a_slash_command_is_a_message_to_the_bot(
    text: str, said: str, channel: SlackChannel, server: SlackServer
) -> None:
    request = made(server.command(text=text))
    channel.verify(request)
    expected = InboundMessage(
        "C1",
        "13345224609.738474920.8088930838d88f008e0",
        {"text": said},
        sender_id="U1ADA",
        sender_name="ada",
        is_mention=True,
    )
    # Slack would show any other answer to whoever gave the command.
    assert channel.receive(request) == Received((expected,), answer=Answer(b"", "text/plain"))
    # It can be given in a direct chat of two others, and does not say so.
    assert not channel.receive(made(server.command(text=text, channel_id="D1"))).messages[0].is_direct


@pytest.mark.spec("C2", "C8")
async def test_other_workspaces_than_the_one_that_is_set_are_not_heard(server: SlackServer) -> None:
    def counts(channel: SlackChannel) -> list[tuple[int, int]]:
        requests = (server.event(text="hi"), server.command(text="hi"), server.press("Yes", "U1ADA"))
        received = [channel.receive(made(request)) for request in requests]
        return [(len(one.messages), len(one.presses)) for one in received]

    channel = channel_to(server)
    await channel.deliver(says("yes?", buttons=(Button("Yes", "token-1"),)))
    await channel.close()
    heard_all = [(1, 0), (1, 0), (0, 1)]
    assert counts(channel) == counts(channel_to(server, team=TEAM)) == heard_all
    assert counts(channel_to(server, team="T9OTHER")) == [(0, 0)] * 3
    challenge = json.dumps({"type": "url_verification", "challenge": "3eZbrw1aB"}).encode()
    assert channel_to(server, team="T9OTHER").receive(made(server.signed(challenge))).answer is not None


def _places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every field in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (key,)
        yield from ((key, *rest) for rest in _places(inner))


def _variants(value: Any) -> Iterator[Any]:
    for way in _places(value):
        for odd in ODD:
            changed = copy.deepcopy(value)
            inner = changed
            for key in way[:-1]:
                inner = inner[key]
            inner[way[-1]] = odd
            yield changed


@pytest.mark.spec("C2", "C8")
def test_odd_fields_are_refused_or_read_and_never_crash(channel: SlackChannel, server: SlackServer) -> None:
    file = {"id": "F1", "name": "a.txt", "mimetype": "text/plain", "size": 3, "url_private_download": "https://x"}
    event = json.loads(server.event(text=f"<@{BOT_USER}> hi", thread_ts=THREAD, bot_id="B1", files=[file])[1])
    press = {
        "type": "block_actions",
        "user": {"id": "U1ADA", "username": "ada"},
        "channel": {"id": "C1"},
        "message": {"ts": TS, "thread_ts": THREAD},
        "response_url": "https://hooks.slack.com/actions/1",
        "actions": [{"type": "button", "action_id": "a", "value": "card-1:1"}],
    }
    requests = [server.signed(json.dumps(body).encode()) for body in _variants(event)]
    requests += [server.form({"payload": json.dumps(payload)}) for payload in _variants(press)]
    refused = 0
    for request in requests:
        try:
            received = channel.receive(made(request))
        except MalformedError:
            refused += 1
        else:
            for message in received.messages:
                assert isinstance(message.content["text"], str)
                channel.accepts(message)
                json.dumps(message.content, allow_nan=False)
    assert 0 < refused < len(requests)


# --- Buttons -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2", "C3", "C6")
async def test_a_press_says_where_by_whom_and_how_to_tell_them(channel: SlackChannel, server: SlackServer) -> None:
    destination = Destination("C1", THREAD)
    receipt = await channel.deliver(says("Allow?", destination=destination, buttons=(Button("Yes", "card-1:1"),)))
    received = channel.receive(made(server.press("Yes", "U1ADA")))
    press = ButtonPress(
        "card-1:1", "C1", "U1ADA", "u1ada", THREAD, receipt.platform_message_id, f"{server.host}/response/U1ADA"
    )
    assert received == Received(presses=(press,), answer=Answer(b"", "text/plain"))
    await channel.tell(press, "heard & done")
    expected = {
        "text": "heard &amp; done",
        "thread_ts": THREAD,
        "response_type": "ephemeral",
        "replace_original": False,
    }
    assert server.told == [{"user": "U1ADA"} | expected]


@pytest.mark.spec("C2", "C8")
@pytest.mark.parametrize("handle", ["", "http://127.0.0.1:1/response/U1ADA", "https://hooks.slack.com.evil.example/x"])
async def test_an_address_that_is_not_slacks_is_never_called(
    handle: str, channel: SlackChannel, server: SlackServer
) -> None:
    await channel.tell(ButtonPress("card-1:1", "C1", "U1ADA", thread_id=THREAD, handle=handle), "heard")
    assert server.told == [{"channel": "C1", "user": "U1ADA", "text": "heard", "thread_ts": THREAD}]


@pytest.mark.spec("C8")
@pytest.mark.parametrize(
    ("url", "owned"),
    [
        ("https://hooks.slack.com/actions/T1/1/x", True),
        ("https://hooks.slack.com:443/actions", True),
        ("https://slack.com/api/x", True),
        ("http://hooks.slack.com/actions", False),
        ("https://hooks.slack.com:8443/actions", False),
        ("https://hooks.slack.com@evil.example/", False),
        ("https://evil@hooks.slack.com/", False),
        ("https://evil.example\\@hooks.slack.com/", False),
        ("https://files.slack.com/x", False),
        ("https://hooks.slack.com.evil.example", False),
        ("//hooks.slack.com/x", False),
        ("file:///etc/passwd", False),
        ("https://[", False),
        ("https://\x00", False),
        ("x" * 100_000, False),
    ],
)
def test_which_addresses_are_slacks(url: str, owned: bool) -> None:
    assert SlackApi("https://slack.com/api", TOKEN).owns(url, RESPONSE_HOSTS) is owned


@pytest.mark.spec("C2")
@pytest.mark.parametrize(
    "actions", [[], [{"type": "button", "url": "https://x"}], [{"value": "ü"}], [{"value": "x" * 300}], [5]]
)
def test_a_press_of_what_is_not_ours_brings_nothing(
    actions: list[Any], channel: SlackChannel, server: SlackServer
) -> None:
    payload = {"type": "block_actions", "user": {"id": "U1ADA"}, "channel": {"id": "C1"}, "actions": actions}
    for said in (payload, {"type": "view_submission", "user": {"id": "U1ADA"}}):
        received = channel.receive(made(server.form({"payload": json.dumps(said)})))
        assert received == Received(answer=Answer(b"", "text/plain"))


# --- Settings ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("C2")
async def test_settings_come_from_the_environment(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"TOKEN": TOKEN, "SIGNING_SECRET": SECRET, "API": f"{server.url}/", "BOT_USER": "U7OTTO", "AGENT": "otto"}
    for name, value in values.items():
        monkeypatch.setenv(f"LONGSHORE_SLACK_{name}", value)
    channel = SlackChannel()
    message = heard(channel, server.event(text="<@U7OTTO> hi"))
    assert message.is_mention
    assert channel.registers(message, known=True) == "otto"
    await channel.deliver(says("hi"))
    assert server.shown() == ["hi"]
    await channel.close()


@pytest.mark.spec("C2", "F9")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKEN", "hunter2"),
        ("TOKEN", "xoxp-hunter2"),
        ("TOKEN", "xoxb-hunter2\n"),
        ("SIGNING_SECRET", "hunter2 hunter2"),
        ("API", "hunter2"),
        ("API", "ftp://hunter2"),
        ("BOT_USER", "@hunter2"),
        ("TEAM", "hunter2"),
        ("AGENT", "a/hunter2"),
    ],
)
def test_a_bad_setting_is_named_and_not_repeated(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = complaint_about(f"LONGSHORE_SLACK_{name}", value, SlackChannel, monkeypatch)
    assert said.startswith(f"LONGSHORE_SLACK_{name} is not")


@pytest.mark.spec("C2")
def test_the_manifest_of_the_handbook_asks_for_what_the_driver_needs() -> None:
    page = (Path(__file__).parents[2] / "docs/channels/slack.md").read_text()
    manifest = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    events, interactivity = manifest["settings"]["event_subscriptions"], manifest["settings"]["interactivity"]
    [command] = manifest["features"]["slash_commands"]
    assert {events["request_url"], interactivity["request_url"], command["url"]} == {
        "https://fleet.example.com/channels/slack"
    }
    assert {"app_mention", "message.im", "message.channels", "message.groups"} <= set(events["bot_events"])
    history = {"channels:history", "groups:history", "im:history", "mpim:history"}
    sending = {"chat:write", "reactions:write", "files:write", "im:write"}
    assert history | sending | {"app_mentions:read", "commands", "files:read"} <= set(
        manifest["oauth_config"]["scopes"]["bot"]
    )
