"""What a message from outside goes through before it is stored: a one-time code, an answer to a card, the way to an
agent, a command, and whether its sender may speak to that agent. All in the transaction that stores it.

Each message is dealt with once: what is answered here leaves a row under the message's own key."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Registry
from models.sessions import find_active_session, find_session
from workers.access import NEEDED, Act, Standing, standing_of
from workers.consent import strangers
from workers.consent.cards import answer_by_text
from workers.consent.strangers import Stranger
from workers.front_desk import has_said, say
from workers.house import Done
from workers.intake import codes, commands, switchboard
from workers.intake.received import AgainError, Handled, Passed, Turned
from workers.intake.registering import register, registration_of
from workers.intake.switchboard import Found
from workers.intake.visits import Visit, standing_at
from workers.settings import Settings

log = structlog.get_logger()


async def receive(
    conn: AsyncConnection, registry: Registry, settings: Settings, visit: Visit
) -> Passed | Handled | Turned:
    incoming, user_id = visit.incoming, visit.user_id
    if await has_said(conn, visit.key):
        raise AgainError
    if written := codes.codes_in(visit.typed):
        return await _redeem(conn, visit, written)
    if user_id is not None and visit.typed and (answered := await _answer_card(conn, visit, user_id)) is not None:
        return answered
    found = await switchboard.find(conn, incoming, from_outside=True)
    if found.wired == 0 and incoming.agent_group is None:
        agent = await registration_of(conn, registry, visit)
        found = await register(conn, visit, agent) if agent is not None else found
    if found.route is None or found.agent is None:
        return await _nobody(conn, visit, found)
    standing = await _standing(conn, visit, found)
    raw = None
    command, provider = await command_of(conn, settings, visit, found, standing)
    if command is not None:
        if standing < NEEDED[command.act]:
            denial = commands.denial(command, found.agent.folder, standing)
            return await _handled(conn, visit, "command", Done(denial))
        done = await commands.perform(conn, registry, command, found.route, found.agent, provider, visit.user_id)
        if done is not None:
            return await _handled(conn, visit, "command", done)
        raw = command.text
    if standing < NEEDED[Act.TALK] and found.policy != "public":
        return await _stranger(conn, visit, found)
    return Passed(found, may_answer=visit.may_decide and standing >= NEEDED[Act.ANSWER], raw=raw)


async def command_of(
    conn: AsyncConnection, settings: Settings, visit: Visit, found: Found, standing: Standing
) -> tuple[commands.Command | None, str]:
    """The command that it is, if it is one, and the provider it is for. Strangers in a strict place command nothing:
    they do not even learn what there is."""
    assert found.route is not None
    assert found.agent is not None
    if not found.route.wakes or visit.incoming.kind not in ("chat", "chat-sdk"):
        return None, ""
    if not visit.typed.lstrip().startswith("/") or (standing, found.policy) == (Standing.STRANGER, switchboard.STRICT):
        return None, ""
    provider = await provider_of(conn, found, settings)
    return commands.command_in(visit.typed, provider, found.agent.config), provider


async def _standing(conn: AsyncConnection, visit: Visit, found: Found) -> Standing:
    assert found.route is not None
    agent_group_id = found.route.agent_group_id
    standing = await standing_at(conn, visit, agent_group_id)
    if standing == Standing.STRANGER and would_be_asked_about(visit, found):
        # Who is let in just now must not be found waiting by nobody.
        await strangers.stop_at_the_door(conn, _as_stranger(visit, found))
        standing = await standing_of(conn, visit.user_id, agent_group_id)
    return standing


def would_be_asked_about(visit: Visit, found: Found) -> bool:
    """If they are a stranger. What would only be overheard is no reason to ask anybody."""
    waking = found.route is not None and found.route.wakes
    return waking and found.policy == "request_approval" and visit.user_id is not None


async def _redeem(conn: AsyncConnection, visit: Visit, written: Sequence[str]) -> Handled:
    """A code is never stored, not even as something that was refused, nor what is said around it."""
    incoming = visit.incoming
    place = (incoming.channel_type, incoming.platform_id)
    visitor = codes.Visitor(visit.user_id, incoming.sender_name, *place, visit.is_direct)
    redeemed = await codes.redeem(conn, written, visitor)
    return Handled("code", Done("")) if redeemed is None else await _handled(conn, visit, "code", redeemed)


async def _answer_card(conn: AsyncConnection, visit: Visit, user_id: str) -> Handled | None:
    incoming = visit.incoming
    done = await answer_by_text(
        conn,
        channel_type=incoming.channel_type,
        platform_id=incoming.platform_id,
        thread_id=incoming.thread_id,
        user_id=user_id,
        text=incoming.words,
        may_decide=visit.may_decide,
    )
    return None if done is None else await _handled(conn, visit, "answer", done)


async def _nobody(conn: AsyncConnection, visit: Visit, found: Found) -> Turned:
    incoming = visit.incoming
    place = f"{incoming.channel_type} {incoming.platform_id!r}"
    if found.wired:
        return Turned(f"no agent in {place} listens to such a message", "chatter")
    if incoming.agent_group is not None:
        return Turned(f"there is no agent group {incoming.agent_group!r}", "nobody")  # which there are is not for all
    why = f"no agent is wired to {place}: longshore wire AGENT {incoming.channel_type} {incoming.platform_id}"
    return Turned(why, "nobody", await strangers.turn_away(conn, _as_stranger(visit)))


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
    stranger = _as_stranger(visit, found)
    why = f"{visit.user_id or 'a sender without an id'} is not known to {folder}"
    if visit.user_id is not None and would_be_asked_about(visit, found):
        _, request = await strangers.request_of(conn, visit.user_id, agent_group_id)
        if request is None or request.status != "denied":
            return Passed(found, may_answer=False, stranger=stranger)
        return Turned(f"{why}, and was not let in", "stranger")  # by whom is not for strangers
    told = await strangers.turn_away(conn, stranger) if found.route.wakes else []
    return Turned(f"{why}: longshore people add {visit.user_id or 'USER'} --agent {folder}", "stranger", told)


def _as_stranger(visit: Visit, found: Found | None = None) -> Stranger:
    """`found`: to whom; None: nobody listens there."""
    incoming = visit.incoming
    stranger = Stranger(
        visit.user_id,
        incoming.channel_type,
        incoming.sender_id,
        incoming.sender_name,
        incoming.platform_id,
        incoming.thread_id,
        visit.is_direct,
    )
    if found is None or found.route is None or found.agent is None:
        return stranger
    return replace(stranger, agent_group_id=found.route.agent_group_id, folder=found.agent.folder)


async def _handled(
    conn: AsyncConnection, visit: Visit, what: Literal["code", "command", "answer"], done: Done
) -> Handled:
    """Answer the message itself: what marks it as dealt with. One of whom nobody vouches that they wrote is told
    nothing: others would get it."""
    if visit.user_id is None and not visit.trusted:
        return Handled(what, done)
    incoming = visit.incoming
    place = {"channel_type": incoming.channel_type, "platform_id": incoming.platform_id}
    said = await say(conn, **place, thread_id=incoming.thread_id, text=done.text, key=visit.key)
    if said is None:
        raise AgainError
    done.deliveries.append(said)
    return Handled(what, done)
