"""The one way in from a platform: whoever hears something from one, by HTTP or by listening, hands it to `take_in`.

Each message ends as a row, as the same row again, as refused with the reason kept, or as dealt with on the spot; a bad
one does not stop its neighbours. What we cannot store, because the store is away or by a bug, the platform sends again;
one that fails again and again is kept where people can see it, and passed."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog

from adapters.channel_port import ButtonPress, Channel, InboundMessage, Received
from adapters.errors import MalformedError
from models.errors import StoreError
from workers.consent import cards
from workers.front_desk import key_of
from workers.house import Done, House, ring_for
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.intake.rejections import record_rejection
from workers.refusals import RefusedError

log = structlog.get_logger()

NAME_LIMIT: Final = 200
# What a message can be the cause of. Anything else is our fault, or the driver's.
ABOUT_THE_MESSAGE: Final = (ValueError, TypeError, RecursionError, MalformedError)
MAX_FAILURES: Final = 5  # of one message in a process; then it is passed
MAX_COUNTED: Final = 1000  # messages whose failures are remembered
# Telling whoever pressed a button is a courtesy: what it did is done.
TELL_SECONDS: Final = 10.0
_TELLING: Final[set[asyncio.Task[None]]] = set()  # the loop keeps only weak references
_WENT_WRONG: Final = "Something went wrong here, and nothing was done. Try it again later."
_FAILURES: Final[dict[str, int]] = {}


Word = Literal["accepted", "duplicate", "handled", "refused", "filtered"]


@dataclass(frozen=True)
class Outcome:
    """What became of a message. `reason` says why it was refused."""

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


async def take_in(house: House, channel: Channel, received: Received, *, may_decide: bool = True) -> TakenIn:
    """Store what came, and ring for each message as soon as it is committed. If it raises, not all of it is stored, and
    the platform is to send it again. `may_decide` False: whoever came in may talk, and neither answer questions nor
    decide."""
    outcomes: list[Outcome] = []
    bugs: list[Exception] = []
    for message in received.messages:
        try:
            outcomes.append(await _message(house, channel, message, may_decide))
        except StoreError:
            raise
        except Exception as error:  # the others are to be heard first
            log.exception("door.not_foreseen", channel=channel.channel_type)
            if await _give_up(house, channel, message, error):
                outcomes.append(Outcome("refused", reason=_not_stored(error)))
            else:
                bugs.append(error)
    told = [await _press(house, channel, press, may_decide) for press in received.presses]
    if bugs:
        raise bugs[0]
    return TakenIn(tuple(outcomes), tuple(told))


async def _give_up(house: House, channel: Channel, message: InboundMessage, error: Exception) -> bool:
    """Whether it failed too often to be tried again. Then it is kept with all that was said: the fault is ours."""
    message_id = _message_key(channel, message)
    failures = _FAILURES.pop(message_id, 0) + 1
    if failures < MAX_FAILURES:
        _FAILURES[message_id] = failures
        while len(_FAILURES) > MAX_COUNTED:
            del _FAILURES[next(iter(_FAILURES))]
        return False
    kept = _facts(message) | {"content": message.content}
    await record_rejection(house.db, message_id, channel.channel_type, _not_stored(error), kept)
    return True


def _not_stored(error: Exception) -> str:
    return f"it could not be stored ({type(error).__name__})"


async def _message(
    house: House, channel: Channel, message: InboundMessage, may_decide: bool, agent_group: str | None = None
) -> Outcome:
    try:
        if not channel.accepts(message):
            return Outcome("filtered")
        accepted = await _accept(house, channel, message, may_decide, agent_group)
    except RefusedError as error:
        reason, kind = str(error), error.kind
        error.ring(house.bells)
    except ABOUT_THE_MESSAGE as error:  # somebody else's bug or malice
        log.warning("door.unreadable", channel=channel.channel_type, error=type(error).__name__)
        reason, kind = _not_stored(error), "form"
    else:
        accepted.ring(house.bells)
        word: Word = "duplicate" if accepted.duplicate else "handled" if accepted.handled else "accepted"
        return Outcome(word, accepted)
    if kind == "chatter":  # what people say to each other is nobody's business
        log.debug("door.not_for_us", channel=channel.channel_type)
    else:
        log.info("door.refused", channel=channel.channel_type, reason=reason)
        rejection_id = _rejection_id(channel, message, kind)
        await record_rejection(house.db, rejection_id, channel.channel_type, reason, _facts(message))
    return Outcome("refused", reason=reason)


async def _accept(
    house: House, channel: Channel, message: InboundMessage, may_decide: bool, agent_group: str | None
) -> Accepted:
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
        may_decide=may_decide,
    )


async def _press(house: House, channel: Channel, press: ButtonPress, may_decide: bool) -> str:
    try:
        pressed = await cards.press(house.db, channel.channel_type, press, may_decide=may_decide)
    except StoreError:
        raise
    except Exception:  # the other presses, and the messages beside it, are to be heard
        log.exception("door.press_not_foreseen", channel=channel.channel_type)
        pressed = Done(_WENT_WRONG)
    ring_for(house, pressed.wakes, pressed.deliveries)
    text = pressed.text
    if isinstance(pressed, cards.Said):
        text = await _said(house, channel, pressed, may_decide) or text
    telling = asyncio.create_task(_tell(channel, press, text))
    _TELLING.add(telling)
    telling.add_done_callback(_TELLING.discard)
    return text


async def _said(house: House, channel: Channel, said: cards.Said, may_decide: bool) -> str:
    """Take it in as what whoever pressed has said. Returns why not, if it was not taken."""
    try:
        return (await _message(house, channel, said.message, may_decide, said.agent_group_id)).reason
    except StoreError:
        raise
    except Exception:  # they are told, and can press again
        log.exception("door.press_not_foreseen", channel=channel.channel_type)
        return _WENT_WRONG


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


def _rejection_id(channel: Channel, message: InboundMessage, kind: str) -> str:
    """One row a day for what the same sender is refused in the same place for the same kind of reason: strangers must
    not be able to fill the table."""
    today = datetime.now(UTC).date().isoformat()
    return key_of(today, channel.channel_type, message.platform_id, message.sender_id, kind)


def _message_key(channel: Channel, message: InboundMessage) -> str:
    return key_of("not stored", channel.channel_type, message.platform_id, message.platform_message_id)


def _facts(message: InboundMessage) -> dict[str, Any]:
    """Without what was said: most of it was never meant for us."""
    return {
        "platform_id": message.platform_id,
        "thread_id": message.thread_id,
        "message_id": message.platform_message_id,
        "sender_id": message.sender_id,
        "sender_name": _shown_name(message.sender_name),
    }
