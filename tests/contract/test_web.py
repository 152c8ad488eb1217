"""The `web` channel keeps the channel contract: what it was handed is what its reader finds in the rows.

Over HTTP it is tested in tests/integration/test_gateway_web.py."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adapters.channel_port import (
    Button,
    Destination,
    InboundMessage,
    InboundRequest,
    OutboundFile,
    OutboundMessage,
    Receipt,
)
from adapters.channels.conformance import CHECKS, Check, Fault, Forgery, run_check
from adapters.channels.web import VARIABLE, WebChannel

APPLYING = {
    "opens_a_direct_chat",
    "refuses_every_request",
    "says_whether_it_takes_requests",
    "takes_a_text_as_long_as_it_says",
    "delivers_and_gives_a_receipt",
    "keeps_the_order",
    "shows_one_message_per_key",
    "edits_or_refuses",
    "reacts_or_refuses",
    "shows_typing_or_nothing",
    "has_consistent_capabilities",
    "closes_twice",
}


class ReadChannel(WebChannel):
    """With its reader: the rows of the database, as the gateway shows them."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.rows: dict[str, str] = {}

    async def deliver(self, message: OutboundMessage) -> Receipt:
        self.rows[message.idempotency_key] = str(message.content["text"])
        return await super().deliver(message)

    async def edit(
        self,
        destination: Destination,
        platform_message_id: str,
        content: dict[str, Any],
        buttons: tuple[Button, ...] = (),
    ) -> None:
        self.rows[platform_message_id] = str(content["text"])
        await super().edit(destination, platform_message_id, content, buttons)


class WebHarness:
    destination = Destination("ada")
    receives = False
    forgeries: Sequence[Forgery] = ()
    threads: Sequence[str | None] = ()
    faults: Sequence[Fault] = ()
    knows_its_keys = False

    def __init__(self, home: Path) -> None:
        self.channel = ReadChannel(home)

    def named(self, ours: str) -> str:
        return ours

    def press(self, label: str, sender: str) -> InboundRequest:
        raise NotImplementedError("presses come with a token, by another route")

    def buttons(self) -> list[str]:
        return []

    def request(self, *, message_id: str, text: str, thread: str | None, sender: str) -> InboundRequest:
        raise NotImplementedError("messages come with a token, by another route")

    def forged(self, forgery: Forgery) -> InboundRequest:
        raise NotImplementedError("there is nothing to forge")

    def unreadable(self) -> Sequence[InboundRequest]:
        return ()

    def unwanted(self) -> InboundMessage | None:
        return None

    def shown(self) -> list[str]:
        return list(self.channel.rows.values())

    def fail_next(self, fault: Fault) -> None:
        raise NotImplementedError("a row cannot fail to be written twice")


@pytest.mark.spec("C1", "C2")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_web_keeps_what_of_the_contract_concerns_it(check: Check, tmp_path: Path) -> None:
    outcome = await run_check(check, WebHarness(tmp_path))
    assert (outcome is None) == (check.name in APPLYING)


@pytest.mark.spec("C2", "C3")
async def test_the_receipt_has_what_the_gateway_shows(tmp_path: Path) -> None:
    source = tmp_path / "chart.png"
    source.write_bytes(b"png")
    file = OutboundFile("chart.png", source, "image/png", 3)
    message = OutboundMessage(
        Destination("ada"), {"text": "look"}, "key-1", files=(file,), buttons=(Button("Yes", "card:1", "good"),)
    )
    channel = WebChannel(tmp_path / "home")
    first, second = await channel.deliver(message), await channel.deliver(message)
    assert first == second
    assert first.details["buttons"] == [{"label": "Yes", "token": "card:1", "style": "good", "url": None}]
    [kept] = first.details["files"]
    assert Path(kept).read_bytes() == b"png"
    assert Path(kept).is_relative_to(tmp_path / "home" / "received")


@pytest.mark.spec("C4")
@pytest.mark.parametrize(
    ("is_direct", "known", "agent"), [(True, True, "helper"), (True, False, None), (False, True, None)]
)
def test_only_a_direct_chat_of_somebody_known_gets_an_agent_by_itself(
    monkeypatch: pytest.MonkeyPatch, is_direct: bool, known: bool, agent: str | None
) -> None:
    message = InboundMessage("ada", "1", {"text": "hi"}, sender_id="ada", is_direct=is_direct)
    assert WebChannel().registers(message, known=known) is None
    monkeypatch.setenv(VARIABLE, "helper")
    assert WebChannel().registers(message, known=known) == agent
