"""Listening to platforms that must be asked or held on to (`longshore listen`): one process at a time for each.

The others stand by, and take over within the lease's seconds when the active one dies. What was heard is stored before
the cursor is, so a message may be heard twice, and its platform's id makes it one row; none is passed over."""

import asyncio
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from adapters.channel_port import Channel
from adapters.errors import DeliveryError
from models.errors import StoreError
from models.listeners import claim_listener, release_listener, renew_listener, store_cursor
from workers.house import House
from workers.intake.doors import take_in

log = structlog.get_logger()

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
LONGEST_REST_SECONDS: Final = 3600.0  # however long a platform asks for


class ListeningHouse(House, Protocol):
    @property
    def owner(self) -> str: ...


def listening_channels(house: House) -> dict[str, Channel]:
    """What there is to listen to, by the name that only one process may have at a time."""
    found: dict[str, Channel] = {}
    for channel in house.registry.channels.working.values():
        name = channel.listens()
        if name is not None:
            found[name] = channel
    return found


async def listen_to_all(house: ListeningHouse) -> None:
    """Until it is cancelled."""
    channels = listening_channels(house)
    async with asyncio.TaskGroup() as group:
        for name, channel in channels.items():
            group.create_task(_attend(house, name, channel), name=f"longshore-listen-{name}")


@dataclass
class _Place:
    """Our place as the one who listens. `renewed` is of this machine's monotonic clock."""

    name: str
    token: int
    cursor: dict[str, Any] | None
    renewed: float
    heard: bool = False  # anything at all


async def _attend(house: ListeningHouse, name: str, channel: Channel) -> None:
    pause = FIRST_PAUSE_SECONDS
    while True:
        wait = house.settings.lease_seconds / 3
        try:
            place = await _claim(house, name)
            if place is not None:
                log.info("listener.listens", name=name)
                await _keep_and_listen(house, channel, place)
                wait = pause = FIRST_PAUSE_SECONDS if place.heard else min(pause * 2, LONGEST_PAUSE_SECONDS)
        except StoreError as error:
            log.warning("listener.store_away", name=name, error=str(error))
        await asyncio.sleep(wait)


async def _claim(house: ListeningHouse, name: str) -> _Place | None:
    asked = time.monotonic()
    row = await house.db.transact(lambda conn: claim_listener(conn, name, house.owner, house.settings.lease_seconds))
    return _Place(name, row.token, row.cursor, asked) if row is not None else None


async def _keep_and_listen(house: ListeningHouse, channel: Channel, place: _Place) -> None:
    """Listen as long as the place is ours and nothing goes wrong."""
    listening = asyncio.create_task(_listen(house, channel, place))
    keeping = asyncio.create_task(_keep(house, place))
    try:
        await asyncio.wait({listening, keeping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (listening, keeping):
            task.cancel()
        await asyncio.gather(listening, keeping, return_exceptions=True)
        with suppress(StoreError):
            await house.db.transact(lambda conn: release_listener(conn, place.name, place.token), patience=1)


async def _keep(house: ListeningHouse, place: _Place) -> None:
    """Renew our place; ends when it is lost, or when others may believe that it is."""
    seconds = house.settings.lease_seconds
    while time.monotonic() - place.renewed < seconds * 2 / 3:
        await asyncio.sleep(seconds / 6)
        asked = time.monotonic()
        try:
            ours = await house.db.transact(
                lambda conn: renew_listener(conn, place.name, place.token, seconds), patience=seconds / 6
            )
        except StoreError as error:
            log.warning("listener.not_renewed", name=place.name, error=str(error))
            continue
        if not ours:
            break
        place.renewed = asked
    log.warning("listener.place_lost", name=place.name)


async def _listen(house: ListeningHouse, channel: Channel, place: _Place) -> None:
    """From the stored cursor on, until something goes wrong. While the platform wants to be left alone the place is
    kept, so that nobody else asks it."""
    while True:
        try:
            await _hear(house, channel, place)
            log.warning("listener.ended", name=place.name)
        except DeliveryError as error:
            log.warning("listener.platform_failed", name=place.name, error=str(error))
            if error.retry_after is not None:
                await asyncio.sleep(min(max(error.retry_after, FIRST_PAUSE_SECONDS), LONGEST_REST_SECONDS))
                continue
        except StoreError as error:
            log.warning("listener.store_away", name=place.name, error=str(error))
        except Exception:  # a driver's bug must not end the others
            log.exception("listener.crashed", name=place.name)
        return


async def _hear(house: ListeningHouse, channel: Channel, place: _Place) -> None:
    async with aclosing(channel.listen(place.cursor)) as batches:  # type: ignore[type-var]
        async for batch in batches:
            await take_in(house, channel, batch.received)
            cursor = batch.cursor
            if not await house.db.transact(lambda conn, to=cursor: store_cursor(conn, place.name, place.token, to)):  # type: ignore[misc]
                return
            place.cursor, place.heard = cursor, True
