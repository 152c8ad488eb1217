"""The `web` channel keeps the channel contract: what it was handed is what its reader finds in the rows.

Over HTTP it is tested in tests/integration/test_gateway_web.py."""

from pathlib import Path

import pytest

from adapters.channel_port import (
    Button,
    Destination,
    InboundMessage,
    OutboundFile,
    OutboundMessage,
)
from adapters.channels.conformance import CHECKS, Check, run_check
from adapters.channels.web import VARIABLE, WebChannel
from tests.support.row_channels import APPLYING, RowHarness


@pytest.mark.spec("C1", "C2")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_web_keeps_what_of_the_contract_concerns_it(check: Check, tmp_path: Path) -> None:
    outcome = await run_check(check, RowHarness(WebChannel(tmp_path), "ada"))
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
