"""Finding drivers: by entry point, made once, and only those the operator allows."""

from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

import pytest

from adapters import registry
from adapters.channel_port import Channel
from adapters.channels.fake import FakeChannel
from adapters.contracts import Provider
from adapters.errors import BrokenDriverError, RefusedDriverError, UnknownDriverError
from adapters.packages.trust import Allowed
from adapters.providers.scripted import ScriptedProvider
from adapters.registry import Drivers, Registry
from adapters.tool_port import Tool
from adapters.tools.clock import CLOCK
from tests.support.adapter_packages import install


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Two channels and a tool of our own distribution; returns the groups that were looked into."""
    asked: list[str] = []
    points = {
        "longshore.channels": {"fake": "adapters.channels.fake:FakeChannel", "broken": "adapters.no_such:Channel"},
        "longshore.tools": {"clock": "adapters.tools.clock:CLOCK"},
    }
    install(tmp_path, "longshore", points)

    def found(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [
            point for dist in distributions(path=[str(tmp_path)]) for point in dist.entry_points.select(group=group)
        ]

    monkeypatch.setattr(registry, "entry_points", found)
    return asked


@pytest.mark.spec("P16", "C1")
def test_drivers_are_found_by_their_entry_points(installed: list[str]) -> None:
    everything = Registry()
    assert everything.channels.names == ["broken", "fake"]
    assert everything.tools.names == ["clock"]
    assert everything.providers.names == []
    assert installed == ["longshore.channels", "longshore.tools", "longshore.providers"]


@pytest.mark.spec("P16")
def test_entry_points_are_read_once_and_only_those_that_somebody_asks_for(installed: list[str]) -> None:
    everything = Registry()
    assert installed == []
    assert everything.channels.names == ["broken", "fake"]
    assert everything.channels.refused == []
    everything.channels.get("fake")
    assert installed == ["longshore.channels"]


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


OTHERS: dict[str, dict[str, str]] = {
    "longshore.channels": {"pager": "adapters.channels.fake:FakeChannel", "bomb": "no_such_module:Channel"}
}


@pytest.mark.spec("P16")
def test_what_nobody_allowed_is_refused_by_name_and_harms_nobody(installed: list[str], tmp_path: Path) -> None:
    install(tmp_path, "longshore-pager", OTHERS)
    channels: Drivers[Channel] = Drivers("channel", allowed=Allowed(""))
    assert channels.names == ["broken", "fake"]
    assert sorted((refused.name, refused.distribution) for refused in channels.refused) == [
        ("bomb", "longshore-pager 1.0"),
        ("pager", "longshore-pager 1.0"),
    ]
    with pytest.raises(RefusedDriverError, match=r"add pager .* to LONGSHORE_ADAPTERS"):
        channels.get("pager")
    assert channels.get("fake").channel_type == "fake"


@pytest.mark.spec("P16")
def test_the_operator_allows_by_id_and_only_that(
    installed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "longshore-pager", OTHERS)
    monkeypatch.setenv("LONGSHORE_ADAPTERS", " other , pager ")
    channels = Registry().channels
    assert channels.names == ["broken", "fake", "pager"]
    assert isinstance(channels.get("pager"), FakeChannel)
    origin = channels.origin("pager")
    assert origin is not None
    assert (origin.distribution, origin.ours, origin.signed_by) == ("longshore-pager", False, None)
    assert [refused.name for refused in channels.refused] == ["bomb"]


@pytest.mark.spec("P16")
def test_nobody_takes_a_name_that_is_ours(installed: list[str], tmp_path: Path) -> None:
    install(tmp_path, "longshore-evil", {"longshore.channels": {"fake": "evil:Channel"}})
    channels: Drivers[Channel] = Drivers("channel", allowed=Allowed("fake"))
    assert isinstance(channels.get("fake"), FakeChannel)
    [refused] = channels.refused
    assert refused.distribution == "longshore-evil 1.0"
    assert "taken: by Longshore itself" in refused.reason


@pytest.mark.spec("P16")
def test_two_that_offer_the_same_name_are_both_refused(installed: list[str], tmp_path: Path) -> None:
    for name in ("one", "two"):
        install(tmp_path, name, {"longshore.channels": {"pager": f"{name}:Channel"}})
    channels: Drivers[Channel] = Drivers("channel", allowed=Allowed("pager"))
    assert "pager" not in channels.names
    with pytest.raises(RefusedDriverError, match=r"taken: by .* and .*; uninstall one"):
        channels.get("pager")


@pytest.mark.spec("P16")
def test_our_name_alone_opens_nothing_outside_of_our_package(installed: list[str], tmp_path: Path) -> None:
    install(tmp_path / "other", "longshore", {"longshore.channels": {"pager": "evil:Channel"}})
    [point] = [point for dist in distributions(path=[str(tmp_path / "other")]) for point in dist.entry_points]
    with pytest.raises(RefusedDriverError, match="not allowed"):
        Allowed("").judge(point, "channel")


def test_code_of_others_may_fail_in_any_way(
    installed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loud_driver.py").write_text("raise SystemError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    install(tmp_path, "loud", {"longshore.channels": {"loud": "loud_driver:Channel"}})
    with pytest.raises(BrokenDriverError, match="the channel 'loud' is installed but does not load: no licence"):
        Drivers[Channel]("channel", allowed=Allowed("loud")).get("loud")
