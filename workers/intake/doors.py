"""The one way in from a platform: whoever hears something from one, by HTTP or by listening, hands it to `take_in`.

Each message ends as a row, as the same row again, as refused with the reason kept, or as dealt with on the spot; a bad
one does not stop its neighbours. Only the store being away stops all of them: then the platform sends it again."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import structlog

from adapters.channel_port import ButtonPress, Channel, InboundMessage, Received
from adapters.registry import Registry
from models.database import Database
from models.errors import StoreError
from workers.bells import Bells
from workers.consent import cards
from workers.intake.ingest import Accepted, accept, parse_incoming, record_rejection
from workers.intake.refusals import RefusedError
from workers.settings import Settings

log = structlog.get_logger()

NAME_LIMIT: Final = 200
# Telling whoever pressed a button is a courtesy: what it did is done.
TELL_SECONDS: Final = 10.0
_TELLING: Final[set[asyncio.Task[None]]] = set()  # the loop keeps only weak references


Word = Literal["accepted", "duplicate", "handled", "refused", "filtered"]


class House(Protocol):
    """What a door needs of the process it is in."""

    @property
    def db(self) -> Database: ...

    @property
    def registry(self) -> Registry: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def bells(self) -> Bells: ...


@dataclass(frozen=True)
class Outcome:
    """What became of a message. `reason` says why it was refused."""

    message: InboundMessage
    word: Word
    accepted: Accepted | None = None
    reason: str = ""


@dataclass(frozen=True)
class TakenIn:
    outcomes: tuple[Outcome, ...] = ()
    told: tuple[str, ...] = ()  # for each press, in words, what came of it

    @property
    def accepted(self) -> list[Accepted]:
        """What was taken, new or not."""
        return [outcome.accepted for outcome in self.outcomes if outcome.accepted is not None]

    @property
    def refused(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.word == "refused"]


async def take_in(house: House, channel: Channel, received: Received) -> TakenIn:
    """Store what came, and ring for each message as soon as it is committed. StoreError: not all of it is stored."""
    outcomes = [await _message(house, channel, message) for message in received.messages]
    told = [await _press(house, channel, press) for press in received.presses]
    return TakenIn(tuple(outcomes), tuple(told))


async def _message(house: House, channel: Channel, message: InboundMessage, agent_group: str | None = None) -> Outcome:
    try:
        if not channel.accepts(message):
            return Outcome(message, "filtered")
        accepted = await _accept(house, channel, message, agent_group)
    except StoreError:
        raise
    except RefusedError as error:
        reason = str(error)
        error.ring(house.bells)
    except Exception as error:  # somebody else's bug or malice: the others are to be heard
        log.exception("door.not_foreseen", channel=channel.channel_type)
        reason = f"it could not be stored ({type(error).__name__})"
    else:
        accepted.ring(house.bells)
        word: Word = "duplicate" if accepted.duplicate else "handled" if accepted.handled else "accepted"
        return Outcome(message, word, accepted)
    log.info("door.refused", channel=channel.channel_type, reason=reason)
    await record_rejection(house.db, _rejection_id(channel, message), channel.channel_type, reason, _facts(message))
    return Outcome(message, "refused", reason=reason)


async def _accept(house: House, channel: Channel, message: InboundMessage, agent_group: str | None) -> Accepted:
    """`agent_group`: whose offer was taken up by a button; else the wirings of the place decide."""
    fields = {
        "agent_group": agent_group,
        "channel_type": channel.channel_type,
        "platform_id": message.platform_id,
        "thread_id": message.thread_id,
        "message_id": message.platform_message_id,
        "kind": message.kind,
        "content": message.content,
        "sender_id": message.sender_id,
        "sender_name": _shown_name(message.sender_name),
        "is_mention": message.is_mention,
    }
    return await accept(
        house.db,
        house.registry,
        house.settings,
        parse_incoming(fields),
        from_outside=True,
        is_direct=message.is_direct,
        trusted=channel.capabilities.trusted,
    )


async def _press(house: House, channel: Channel, press: ButtonPress) -> str:
    try:
        pressed = await cards.press(house.db, channel.channel_type, press)
    except StoreError:
        raise
    except Exception:  # the other presses, and the messages beside it, are to be heard
        log.exception("door.press_not_foreseen", channel=channel.channel_type)
        pressed = cards.Pressed("Something went wrong here, and nothing was done. Try it again later.")
    ring_for(house, pressed.wakes, pressed.deliveries)
    text = pressed.text
    if pressed.said is not None:
        outcome = await _message(house, channel, pressed.said.message, pressed.said.agent_group_id)
        text = outcome.reason or text
    telling = asyncio.create_task(_tell(channel, press, text))
    _TELLING.add(telling)
    telling.add_done_callback(_TELLING.discard)
    return text


def ring_for(house: House, wakes: Sequence[tuple[str, str | None]], deliveries: Sequence[str] = ()) -> None:
    """After the commit. A wake's provider is None for the default one."""
    for session_id, provider in wakes:
        house.bells.wake(session_id, provider or house.settings.default_provider)
    for message_out_id in deliveries:
        house.bells.deliver(message_out_id)


async def _tell(channel: Channel, press: ButtonPress, text: str) -> None:
    try:
        async with asyncio.timeout(TELL_SECONDS):
            await channel.tell(press, text)
    except Exception as error:  # see above  # noqa: BLE001
        log.info("door.not_told", channel=channel.channel_type, error=type(error).__name__)


async def finish_telling() -> None:
    """Before a process ends."""
    await asyncio.gather(*_TELLING)


def _shown_name(name: str | None) -> str | None:
    """What people call themselves never keeps their message out."""
    plain = "".join(char if char.isprintable() else " " for char in name or "").strip()
    return plain[:NAME_LIMIT] or None


def _rejection_id(channel: Channel, message: InboundMessage) -> str:
    """A platform's repetition of what was refused is the same row."""
    parts = (channel.channel_type, message.platform_id, message.platform_message_id)
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "\x1f".join(parts).encode("utf-8", "replace").decode()))


def _facts(message: InboundMessage) -> dict[str, Any]:
    """Without what was said: most of it was never meant for us."""
    return {
        "platform_id": message.platform_id,
        "thread_id": message.thread_id,
        "message_id": message.platform_message_id,
        "sender_id": message.sender_id,
        "sender_name": _shown_name(message.sender_name),
    }
