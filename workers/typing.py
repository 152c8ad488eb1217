"""Showing that an agent is at work: the platform's typing sign, refreshed while a turn runs and taken away at its end,
and what the agent is at, where the platform can show that.

It says what the session's row says: nothing while the turn waits for a person or is no longer ours. A kindness, not a
duty: whatever goes wrong with it, the turn does not notice."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from adapters.channel_port import Channel, Destination
from adapters.errors import AdapterError
from models.errors import StoreError
from models.sessions import find_activity
from workers.replies import ReplyTo
from workers.runtime import Runtime

log = structlog.get_logger()

# Platforms take the sign away after five seconds or so.
REFRESH_SECONDS: Final = 4.0
PATIENCE_SECONDS: Final = 3.0
AWAITING_HUMAN: Final = "awaiting human"
# The end of a turn does not wait for a platform to take the sign away; the loop keeps only weak references.
_CLEARING: Final[set[asyncio.Task[None]]] = set()


class Typing:
    """`async with` around a turn."""

    def __init__(self, runtime: Runtime, to: ReplyTo) -> None:
        self._runtime = runtime
        self._session_id = to.session_id
        self._destination = Destination(to.platform_id, to.thread_id)
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._shown = False
        with suppress(AdapterError):
            channel = runtime.registry.channels.get(to.channel_type)
            self._channel = channel if channel.capabilities.typing else None

    async def __aenter__(self) -> None:
        if self._channel is not None:
            self._task = asyncio.create_task(self._refresh(self._channel))

    async def __aexit__(self, *_: object) -> None:
        if self._task is None or self._channel is None:
            return
        self._task.cancel()
        clearing = asyncio.create_task(self._clear(self._task, self._channel))
        _CLEARING.add(clearing)
        clearing.add_done_callback(_CLEARING.discard)

    async def _clear(self, refreshing: asyncio.Task[None], channel: Channel) -> None:
        await asyncio.gather(refreshing, return_exceptions=True)
        if self._shown:
            await self._show(channel, on=False)

    async def _refresh(self, channel: Channel) -> None:
        works = await self._show(channel, on=True)  # at once; what it is at matters if it takes longer
        while works:
            await asyncio.sleep(REFRESH_SECONDS)
            at_work, doing = await self._activity()
            if at_work or self._shown:
                works = await self._show(channel, on=at_work, doing=doing)

    async def _activity(self) -> tuple[bool, str | None]:
        """Whether the turn is at work, and at what since when."""
        try:
            row = await self._runtime.db.read(
                lambda conn: find_activity(conn, self._session_id), patience=PATIENCE_SECONDS
            )
        except StoreError:
            return True, None  # the turn runs all the same
        if row is None or row.lease_owner != self._runtime.owner or (row.activity or "").startswith(AWAITING_HUMAN):
            return False, None
        if row.activity is None or row.activity_since is None:
            return True, None
        return True, f"{row.activity.removeprefix('tool: ')}, since {row.activity_since:%H:%M:%SZ}"

    async def _show(self, channel: Channel, *, on: bool, doing: str | None = None) -> bool:
        """False: it did not work, and is not tried again."""
        self._shown = on or self._shown
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await channel.show_typing(self._destination, on=on, doing=doing)
        except Exception as error:  # see above  # noqa: BLE001
            log.debug("typing.not_shown", channel=channel.channel_type, error=type(error).__name__)
            return False
        self._shown = on
        return True
