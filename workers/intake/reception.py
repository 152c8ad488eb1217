"""What a message from outside goes through before it is stored: a one-time code, an answer to a card, the way to an
agent, a command, and whether its sender may speak to that agent. All in the transaction that stores it.

Each message is dealt with once: what is answered here leaves a row under the message's own key."""

from dataclasses import dataclass, field, replace
from typing import Literal

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import InboundMessage
from adapters.registry import Registry
from models.base import AnyRow
from models.groups import Wiring, ensure_messaging_group, find_agent_group, set_place
from models.sessions import find_active_session, find_session
from models.upsert import insert_ignoring
from workers.consent.cards import answer_by_text
from workers.intake import admitting, commands, pairing, switchboard
from workers.intake.access import NEEDED, Act, Standing, standing_of, user_id_of
from workers.intake.admitting import Stranger
from workers.intake.front_desk import has_said, key_of, say
from workers.intake.incoming import Incoming
from workers.intake.switchboard import Found
from workers.settings import Settings

log = structlog.get_logger()


@dataclass(frozen=True)
class Visit:
    """A message from outside and how it came. `trusted`: it is from a service of the operator's own. `key`: the same
    for every copy of the message."""

    incoming: Incoming
    is_direct: bool
    trusted: bool
    key: str

    @property
    def typed(self) -> str:
        """What the sender wrote themselves: the words on a button are the agent's, and command nothing."""
        return "" if "card" in (self.incoming.content or {}) else self.incoming.words

    @property
    def user_id(self) -> str | None:
        sender = self.incoming.sender_id
        return None if sender is None else user_id_of(self.incoming.channel_type, sender)


@dataclass(frozen=True)
class Passed:
    """It may be stored. `raw`: as a command to the agent's program. `stranger`: it waits until they are let in."""

    found: Found
    may_answer: bool
    raw: str | None = None
    stranger: Stranger | None = None


@dataclass(frozen=True)
class Handled:
    """It was no message for an agent, and is dealt with."""

    what: Literal["code", "command", "answer"]
    deliveries: list[str] = field(default_factory=list)
    wakes: list[tuple[str, str | None]] = field(default_factory=list)


@dataclass(frozen=True)
class Turned:
    """Nobody here takes it. What its sender is told, if anything, is stored."""

    reason: str
    deliveries: list[str] = field(default_factory=list)


class AgainError(Exception):
    """A copy of this message was dealt with before; what this one has done is rolled back."""


async def receive(
    conn: AsyncConnection, registry: Registry, settings: Settings, visit: Visit
) -> Passed | Handled | Turned:
    incoming, user_id = visit.incoming, visit.user_id
    if await has_said(conn, visit.key):
        raise AgainError
    if (code := pairing.code_in(visit.typed)) is not None:
        return await _redeem(conn, visit, code)
    if user_id is not None and visit.typed and (answered := await _answer_card(conn, visit, user_id)) is not None:
        return answered
    found = await switchboard.find(conn, incoming)
    if found.wired == 0 and incoming.agent_group is None:
        agent = await registration_of(conn, registry, visit)
        found = await _register(conn, visit, agent) if agent is not None else found
    if found.route is None or found.agent is None:
        return await _nobody(conn, visit, found)
    standing = await standing_of(conn, user_id, found.route.agent_group_id)
    if visit.trusted:
        standing = max(standing, Standing.MEMBER)
    raw = None
    if found.route.wakes and incoming.kind in ("chat", "chat-sdk") and visit.typed.lstrip().startswith("/"):
        provider = await provider_of(conn, found, settings)
        command = commands.command_in(visit.typed, provider, found.agent.config)
        if command is not None and not (standing == Standing.STRANGER and found.policy == switchboard.STRICT):
            if standing < NEEDED[command.act]:
                denial = commands.denial(command, found.agent.folder, standing)
                return Handled("command", await _say(conn, visit, denial))
            done = await commands.perform(conn, registry, command, found.route, found.agent, provider)
            if not done.raw:
                return Handled("command", [*done.deliveries, *await _say(conn, visit, done.text)], done.wakes)
            raw = command.text
    if standing < NEEDED[Act.TALK] and found.policy != "public":
        return await _stranger(conn, visit, found)
    return Passed(found, may_answer=standing >= NEEDED[Act.ANSWER], raw=raw)


async def _redeem(conn: AsyncConnection, visit: Visit, code: str) -> Handled:
    """A code is never stored, not even as something that was refused."""
    if visit.user_id is None:
        return Handled("code", await _say(conn, visit, "This platform does not say who you are: codes do not work."))
    incoming = visit.incoming
    place = (incoming.channel_type, incoming.platform_id)
    visitor = pairing.Visitor(visit.user_id, incoming.sender_name, *place, visit.is_direct)
    redeemed = await pairing.redeem(conn, code, visitor)
    if redeemed is None:
        return Handled("code")
    return Handled("code", [*redeemed.deliveries, *await _say(conn, visit, redeemed.text)], redeemed.wakes)


async def _answer_card(conn: AsyncConnection, visit: Visit, user_id: str) -> Handled | None:
    incoming = visit.incoming
    place = {"channel_type": incoming.channel_type, "platform_id": incoming.platform_id}
    pressed = await answer_by_text(conn, **place, thread_id=incoming.thread_id, user_id=user_id, text=incoming.words)
    if pressed is None:
        return None
    return Handled("answer", [*pressed.deliveries, *await _say(conn, visit, pressed.text or "Done.")], pressed.wakes)


async def registration_of(conn: AsyncConnection, registry: Registry, visit: Visit) -> AnyRow | None:
    """The agent that a place nobody has wired gets by the channel's rules. Strangers register nothing."""
    incoming = visit.incoming
    channel = registry.channels.get(incoming.channel_type)
    message = InboundMessage(
        platform_id=incoming.platform_id,
        platform_message_id=incoming.message_id or "",
        content=incoming.stored_content(),
        thread_id=incoming.thread_id,
        sender_id=incoming.sender_id,
        sender_name=incoming.sender_name,
        kind=incoming.kind,
        is_mention=incoming.is_mention,
        is_direct=visit.is_direct,
    )
    # Whether they are known depends on the agent, and which agent it is only the channel knows.
    folder = channel.registers(message, known=True)
    agent = await find_agent_group(conn, folder) if folder is not None else None
    if agent is None:
        if folder is not None:
            log.warning("reception.no_such_agent", channel=incoming.channel_type, agent=folder)
        return None
    known = visit.trusted or await standing_of(conn, visit.user_id, agent.id) > Standing.STRANGER
    return agent if channel.registers(message, known=known) == folder else None


async def _register(conn: AsyncConnection, visit: Visit, agent: AnyRow) -> Found:
    """In a group the agent answers when it is called, and follows the thread then."""
    incoming = visit.incoming
    place = await ensure_messaging_group(conn, incoming.channel_type, incoming.platform_id)
    await set_place(conn, place, is_group=not visit.is_direct)
    in_group = {"trigger_rules": {"mentionOnly": True, "sticky": True}, "session_mode": "per-thread"}
    rules = {} if visit.is_direct else in_group
    await insert_ignoring(conn, Wiring, messaging_group_id=place, agent_group_id=agent.id, **rules)
    log.info("reception.registered", channel=incoming.channel_type, place=incoming.platform_id, agent=agent.folder)
    return await switchboard.find(conn, incoming)


async def _nobody(conn: AsyncConnection, visit: Visit, found: Found) -> Turned:
    incoming = visit.incoming
    if incoming.agent_group is not None:
        return Turned(f"there is no agent group {incoming.agent_group!r}")  # which there are is not for everybody
    place = f"{incoming.channel_type} {incoming.platform_id!r}"
    if found.wired:
        return Turned(f"no agent in {place} listens to such a message")
    why = f"no agent is wired to {place}: longshore wire AGENT {incoming.channel_type} {incoming.platform_id}"
    return Turned(why, await admitting.turn_away(conn, _as_stranger(visit)))


async def provider_of(conn: AsyncConnection, found: Found, settings: Settings) -> str:
    """On which the agent runs there: as the opening of a turn decides."""
    assert found.route is not None
    assert found.agent is not None
    key = (found.route.agent_group_id, found.route.messaging_group_id, found.route.thread_id)
    session_id = await find_active_session(conn, *key)
    session = await find_session(conn, session_id) if session_id is not None else None
    own = session.provider if session is not None else None
    return own or found.agent.provider or settings.default_provider


async def _stranger(conn: AsyncConnection, visit: Visit, found: Found) -> Passed | Turned:
    assert found.route is not None
    assert found.agent is not None
    folder, agent_group_id = found.agent.folder, found.route.agent_group_id
    stranger = replace(_as_stranger(visit), agent_group_id=agent_group_id, folder=folder)
    why = f"{visit.user_id or 'a sender without an id'} is not known to {folder}"
    # What would only be overheard is no reason to ask anybody.
    if found.policy == "request_approval" and visit.user_id is not None and found.route.wakes:
        _, request = await admitting.request_of(conn, visit.user_id, agent_group_id)
        if request is None or request.status != "denied":
            return Passed(found, may_answer=False, stranger=stranger)
        return Turned(f"{why}, and {request.decided_by} did not let them in")
    told = await admitting.turn_away(conn, stranger) if found.route.wakes else []
    return Turned(f"{why}: longshore people add {visit.user_id or 'USER'} --agent {folder}", told)


def _as_stranger(visit: Visit) -> Stranger:
    incoming = visit.incoming
    return Stranger(
        visit.user_id,
        incoming.channel_type,
        incoming.sender_id,
        incoming.sender_name,
        incoming.platform_id,
        incoming.thread_id,
        visit.is_direct,
    )


async def _say(conn: AsyncConnection, visit: Visit, text: str) -> list[str]:
    """Answer the message itself: what marks it as dealt with."""
    incoming = visit.incoming
    place = {"channel_type": incoming.channel_type, "platform_id": incoming.platform_id}
    said = await say(conn, **place, thread_id=incoming.thread_id, text=text, key=visit.key)
    if said is None:
        raise AgainError
    return [said]


def visit_key(incoming: Incoming, row_id: str) -> str:
    return key_of("heard", incoming.channel_type, incoming.platform_id, incoming.message_id or row_id)
