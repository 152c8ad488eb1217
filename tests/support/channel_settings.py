"""Settings of channels that cannot be used."""

from collections.abc import Callable

import pytest

from adapters.channel_port import Channel
from adapters.errors import ChannelError


def complaint_about(variable: str, value: str, made: Callable[[], Channel], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of the value, which has "hunter2" in it, when a channel is made; never the value."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ChannelError) as caught:
        made()
    assert "hunter2" not in str(caught.value)
    return str(caught.value)
