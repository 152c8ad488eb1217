"""Once more: a conversation begins anew, and what was said in one of its sessions is answered again, where it was said.

Unlike a replay this is the conversation itself: answers leave, tools work on the agent's own folder. So what is said
again is said in nobody's name: whoever wanted it must not have it done with the rights of those who said it first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.registry import Registry
from models.audit import note
from models.base import AnyRow, new_id
from models.groups import how_it_runs
from models.lookup import short
from models.overseeing import SAID_AGAIN
from models.sessions import find_session, living_session
from workers.failover import check_choice
from workers.giving_up import start_over
from workers.house import Done, House, ring
from workers.operations.replays import Said, Wish, copies, original_of, said_in_turns
from workers.refusals import RefusedError


@dataclass(frozen=True)
class Again:
    """`turns`: numbers of the session's turns that are answered again. `done` is to be rung for."""

    session_id: str
    again_of: str
    turns: tuple[int, ...]
    done: Done


async def again(
    house: House,
    by: str,
    session_id: str,
    *,
    turns: Sequence[int] | None = None,
    provider: str | None = None,
    model: str | None = None,
) -> Again:
    """Begin the session's conversation anew and answer its messages again (all, or those of these turns). Rings.

    `provider`, `model`: as the agent runs now, if not given. RefusedError: as for a replay."""
    wish = Wish(turns, provider, model)
    new = new_id()
    made = await house.db.transact(
        lambda conn: put_again(conn, house.registry, by, session_id, new, wish, house.settings.default_provider)
    )
    ring(house, made.done)
    return made


async def put_again(
    conn: AsyncConnection,
    registry: Registry,
    by: str,
    session_id: str,
    new: str,
    wish: Wish,
    default_provider: str,
    **detail: Any,
) -> Again:
    """In the caller's transaction, who rings for `done` after it. `new` is the id of the session it goes on in; one
    that is there is that of a call before this one, and nothing is done. `detail`: for the audit's line."""
    check_choice(registry, wish.provider, wish.model)
    original = await original_of(conn, session_id)
    if original.workflow_id is not None:
        raise RefusedError(
            f"session {short(session_id)} is part of workflow {short(original.workflow_id)}, which says what is done "
            "there: restart that, or replay the session beside it"
        )
    if await find_session(conn, new) is not None:
        return Again(new, session_id, (), Done(_words(original, new)))
    # It may have begun anew since: what it is at now is given up, and what waits there comes along.
    active = await living_session(conn, session_id)
    said: list[Said] = []

    async def first() -> list[dict[str, Any]]:
        said.extend(await _said(conn, original, wish, default_provider))
        for one in said:
            check_choice(registry, one.provider, None)
        return copies(said, new, 0, sender_id=None)

    done = await start_over(conn, active, f"given up: answered again by {by}", new, first)
    if done is None:
        raise RefusedError(f"session {short(active)} was closed just now: try it again")
    numbers = tuple(one.turn.number for one in said)
    done.text = _words(original, new)
    about = {"agent_group_id": original.agent_group_id, "to": new, "turns": list(numbers)}
    await note(conn, by, "session.again", session_id, **about, provider=wish.provider, model=wish.model, **detail)
    return Again(new, session_id, numbers, done)


def _words(original: AnyRow, new: str) -> str:
    return f"{original.folder} answers {short(original.id)} again, in {short(new)}"


async def _said(conn: AsyncConnection, original: AnyRow, wish: Wish, default_provider: str) -> list[Said]:
    """By whoever runs the agent now: what has changed since is the point of it."""
    group = await how_it_runs(conn, original.agent_group_id)
    own = original.provider or group.provider or default_provider
    provider = wish.provider or own
    model = wish.model or ((original.model or group.model) if provider == own else None)
    kept = []
    for one in await said_in_turns(conn, original, wish.turns, provider, None):
        messages = [row for row in one.messages if row.kind in SAID_AGAIN]
        if messages:
            kept.append(Said(one.turn, messages, provider, model))
    if not kept:
        raise RefusedError(f"session {short(original.id)} has nothing that could be answered again")
    return kept
