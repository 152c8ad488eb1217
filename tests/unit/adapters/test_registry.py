"""Finding drivers: by entry point, made once, and only those the operator allows."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from adapters import registry
from adapters.channels.fake import FakeChannel
from adapters.contracts import Channel, Provider
from adapters.errors import BrokenDriverError, UnknownDriverError
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool
from adapters.tools.clock import CLOCK


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two channels and a tool of another distribution; returns the groups that were looked into."""
    asked: list[str] = []

    def found(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        kinds = {
            "longshore.channels": {"fake": "adapters.channels.fake:FakeChannel", "broken": "no_such_module:Channel"},
            "longshore.tools": {"clock": "adapters.tools.clock:CLOCK"},
        }
        return [EntryPoint(name, value, group) for name, value in kinds.get(group, {}).items()]

    monkeypatch.setattr(registry, "entry_points", found)
    return asked


@pytest.mark.spec("P16", "C1")
def test_drivers_are_found_by_their_entry_points(installed: list[str]) -> None:
    everything = Registry()
    assert installed == ["longshore.providers", "longshore.channels", "longshore.tools"]
    assert everything.channels.names == ["broken", "fake"]
    assert everything.tools.names == ["clock"]
    assert everything.providers.names == []


@pytest.mark.spec("P16")
def test_a_class_is_made_once_and_a_value_is_used_as_it_is(installed: list[str]) -> None:
    channels: Drivers[Channel] = Drivers("channel")
    assert channels.made == []
    first = channels.get("fake")
    assert isinstance(first, FakeChannel)
    assert channels.get("fake") is first
    assert channels.made == ["fake"]
    tools: Drivers[Tool[Any]] = Drivers("tool")
    assert tools.get("clock") is CLOCK


@pytest.mark.spec("P16")
def test_a_broken_driver_does_no_harm_until_it_is_asked_for(installed: list[str]) -> None:
    channels: Drivers[Channel] = Drivers("channel")
    assert "broken" in channels.names
    assert channels.get("fake").channel_type == "fake"


@pytest.mark.spec("P16", "M3")
def test_an_unknown_name_is_answered_with_those_there_are(installed: list[str]) -> None:
    channels: Drivers[Channel] = Drivers("channel")
    with pytest.raises(UnknownDriverError, match="there is no channel 'fax' here; installed: broken, fake"):
        channels.get("fax")
    with pytest.raises(UnknownDriverError, match="there is no provider 'fax' here; installed: none"):
        Drivers[Provider]("provider").get("fax")


def test_a_driver_that_does_not_load_is_named(installed: list[str]) -> None:
    with pytest.raises(BrokenDriverError, match="the channel 'broken' is installed but does not load"):
        Drivers[Channel]("channel").get("broken")


def test_drivers_that_are_handed_in_are_all_there_is(installed: list[str]) -> None:
    provider = ScriptedProvider()
    providers: Drivers[Provider] = Drivers("provider", made={"mine": provider})
    assert providers.names == ["mine"]
    assert providers.get("mine") is provider
    assert installed == []
    with pytest.raises(UnknownDriverError):
        providers.get("scripted")


@pytest.mark.spec("P11", "C2")
def test_what_ships_here_is_installed_under_its_own_name() -> None:
    everything = Registry()
    assert {"scripted"} <= set(everything.providers.names)
    assert {"fake", "local", "webhook"} <= set(everything.channels.names)
    for name in ("fake", "local", "webhook"):
        assert everything.channels.get(name).channel_type == name
    assert everything.providers.get("scripted").manifest.adapter_id == "scripted"
    for name in ("clock", "send_message"):
        assert everything.tools.get(name).name == name
