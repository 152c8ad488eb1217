"""The `slack` channel and its stand-in, for the channel contract and the tests beside it."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from adapters.channel_port import Destination, InboundMessage, InboundRequest, OutboundMessage
from adapters.channels.conformance import FAULTS, FORGERIES, Fault, Forgery
from adapters.channels.slack import SlackChannel
from tests.support.slack_api import BOT_ID, BOT_USER, SECRET, TOKEN, SlackServer

TS: Final = "1700000000.000100"
THREAD: Final = "1699999999.000900"
PLACE: Final = Destination("C1")
NAMES: Final = {"message-1": TS, "thread-9": THREAD, "ada": "U1ADA"}
_NO_EVENTS: Final[tuple[Any, ...]] = (5, [], {}, {"type": "message"})


def made(request: tuple[dict[str, str], bytes]) -> InboundRequest:
    return InboundRequest(*request)


def heard(channel: SlackChannel, request: tuple[dict[str, str], bytes]) -> InboundMessage:
    channel.verify(made(request))
    [message] = channel.receive(made(request)).messages
    return message


def says(text: str, key: str = "key-1", destination: Destination = PLACE, **more: Any) -> OutboundMessage:
    return OutboundMessage(destination, {"text": text}, key, **more)


def channel_to(server: SlackServer, **more: Any) -> SlackChannel:
    return SlackChannel(**{"token": TOKEN, "signing_secret": SECRET, "api": server.url} | more)


@contextmanager
def slack_server() -> Iterator[SlackServer]:
    """It has nothing to complain about when it closes."""
    server = SlackServer()
    yield server
    server.close()
    assert server.problems == []
    assert server.elsewhere == 0


class SlackHarness:
    destination = PLACE
    receives = True
    forgeries: Sequence[Forgery] = FORGERIES
    threads: Sequence[str | None] = (None, "thread-9")
    faults: Sequence[Fault] = FAULTS
    knows_its_keys = True

    def __init__(self, server: SlackServer) -> None:
        self.server = server
        self.channel = channel_to(server)

    def named(self, ours: str) -> str:
        return NAMES[ours]

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        where = {"thread_ts": NAMES[thread]} if thread else {}
        written = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return made(self.server.event(ts=NAMES[message_id], user=NAMES[sender], text=written, **where))

    def press(self, label: str, sender: str) -> InboundRequest:
        return made(self.server.press(label, NAMES[sender]))

    def forged(self, forgery: Forgery) -> InboundRequest:
        headers, body = self.server.event(text="hi")
        match forgery:
            case "wrong":
                return InboundRequest(headers, body + b" ")
            case "missing":
                return InboundRequest({"content-type": "application/json"}, body)
            case "old":
                return made(self.server.signed(body, at=time.time() - 3600))
            case "non-ascii":
                return InboundRequest(headers | {"x-slack-signature": "v0=ünïcödé\udcff"}, body)
            case "garbage":
                return InboundRequest(headers | {"x-slack-request-timestamp": "²" * 400}, body)

    def unreadable(self) -> Sequence[InboundRequest]:
        message = {"type": "message", "channel": "C1", "ts": TS, "user": "U1ADA", "text": "hi"}
        bodies: list[Any] = [[], 5, None, {}, {"type": 5}, {"type": "event_callback"}, {"type": "url_verification"}]
        bodies += [{"type": "event_callback", "event": event} for event in _NO_EVENTS]
        for name in ("channel", "ts"):
            bodies.append({"type": "event_callback", "event": {k: v for k, v in message.items() if k != name}})
        raw = [
            b"",
            b"not json",
            b"\xff\xfe",
            b"[" * 100_000,
            b"9" * 5000,
            *(json.dumps(one).encode() for one in bodies),
        ]
        forms = [{}, {"a": "b"}, {"payload": ""}, {"payload": "[]"}, {"payload": '{"type": "block_actions"}'}]
        forms += [{"command": "/x"}, {"command": "/x", "channel_id": "C1", "user_id": "U1ADA"}]
        many = b"&".join(b"a=b" for _ in range(2000))
        signed = [self.server.signed(body, "application/x-www-form-urlencoded") for body in (b"payload=\xff", many)]
        return [made(one) for one in (*map(self.server.signed, raw), *map(self.server.form, forms), *signed)]

    def unwanted(self) -> InboundMessage | None:
        [message] = self.channel.receive(made(self.server.event(text="beep", bot_id=BOT_ID, user=BOT_USER))).messages
        return message

    def shown(self) -> list[str]:
        return self.server.shown()

    def buttons(self) -> list[str]:
        return self.server.buttons()

    def fail_next(self, fault: Fault) -> None:
        if fault == "away":
            self.server.close()
        else:
            self.server.fail_next(fault)
