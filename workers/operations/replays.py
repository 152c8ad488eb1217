"""Replays: what was said to an agent is said again, to the same agent on another provider or model, in a session of its
own from which (unless it is wanted) nothing leaves. How it compares is `workers.operations.comparing`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import WorkspaceError
from adapters.model_port import ModelProvider
from adapters.registry import Registry
from models.audit import note
from models.base import AnyRow, new_id
from models.conversation import history
from models.groups import is_ours
from models.inbox import BATCH_LIMIT
from models.lookup import short
from models.quoting import one_line
from models.replays import copy_context, copy_of, messages_by_turn, put_copies, put_replay
from models.sessions import find_session, set_numbers
from models.turns import turns_of_session
from workers.failover import check_choice
from workers.house import House
from workers.operations.comparing import Pair, Side, ToolUse, compare
from workers.operations.keys import OTHER_CONTENT, row_id_for
from workers.refusals import RefusedError
from workers.scratch import check_size

__all__ = ["MAX_TURNS", "Pair", "Replay", "Side", "ToolUse", "compare", "replay"]

_ENDED: Final = ("completed", "failed", "cancelled")
MAX_TURNS: Final = 500
MAX_MESSAGES: Final = BATCH_LIMIT - 1  # of one turn; one more may tell of the turns before
# What a program that keeps its own memory is told of the turns before: so many characters, the latest.
MAX_RETOLD: Final = 20_000
MAX_LINE: Final = 2000


@dataclass(frozen=True)
class Replay:
    """`turns`: numbers of the original's turns that are said again. `again`: it was there already, under its key."""

    session_id: str
    replay_of: str
    turns: tuple[int, ...]
    provider: str
    model: str | None
    delivers: bool
    again: bool = False


@dataclass(frozen=True)
class Wish:
    """What is to be said again: these turns (None: all), by whom (None: as it was), and whether answers leave."""

    turns: Sequence[int] | None = None
    provider: str | None = None
    model: str | None = None
    delivery: bool = False


@dataclass(frozen=True)
class Said:
    """A turn of the original: what it answered, and who is to run it now."""

    turn: AnyRow
    messages: list[AnyRow]
    provider: str
    model: str | None


async def replay(
    house: House,
    by: str,
    session_id: str,
    *,
    turns: Sequence[int] | None = None,
    provider: str | None = None,
    model: str | None = None,
    delivery: bool = False,
    key: str | None = None,
) -> Replay:
    """Say the messages of a session's turns again (all, or those with these numbers), in a new session. Rings.

    `provider`, `model`: as the original ran, if not given. `key`: the same one of the same person makes one replay.
    RefusedError: there is no such turn, one has not ended, there is no such provider, the agent's folder is too
    large to be copied, or the key was used for something else."""
    wish = Wish(turns, provider, model, delivery)
    check_choice(house.registry, provider, model)
    new = new_id() if key is None else row_id_for("replay", by, key)

    original = await house.db.read(lambda conn: original_of(conn, session_id))
    await _check_folder(house, original.folder)
    made = await house.db.transact(lambda conn: put_beside(conn, house.registry, by, original, new, wish))
    if not made.again:
        house.bells.wake(made.session_id, made.provider)
    return made


async def put_beside(
    conn: AsyncConnection, registry: Registry, by: str, original: AnyRow, new: str, wish: Wish, **detail: Any
) -> Replay:
    """Write a replay of that id, unless it is there. Whoever calls this rings for one that was not. `detail`: what else
    is to be remembered of who wanted it."""
    said = await said_in_turns(conn, original, wish.turns, wish.provider, wish.model)
    for one in said:
        check_choice(registry, one.provider, None)
    first = said[0]
    made = await put_replay(
        conn,
        new,
        agent_group_id=original.agent_group_id,
        provider=first.provider,
        model=first.model,
        replay_of=original.id,
        delivers=wish.delivery,
    )
    if not made:
        before = await _made_before(conn, new)
        if not _is_as_asked(before, original.id, wish):
            raise RefusedError(OTHER_CONTENT)
        return before
    numbers = tuple(one.turn.number for one in said)
    await _write(conn, registry, original.id, new, said)
    chosen = {"provider": first.provider, "model": first.model, "delivery": wish.delivery, "turns": list(numbers)}
    about = {"agent_group_id": original.agent_group_id, "to": new, **chosen, **detail}
    await note(conn, by, "session.replay", original.id, **about)
    return Replay(new, original.id, numbers, first.provider, first.model, wish.delivery)


async def _made_before(conn: AsyncConnection, session_id: str) -> Replay:
    known = await find_session(conn, session_id)
    assert known is not None
    assert known.replay_of is not None
    numbers = {pair.original.number for pair in await compare(conn, session_id)}
    turns = tuple(sorted(number for number in numbers if number is not None))
    return Replay(session_id, known.replay_of, turns, known.provider, known.model, known.delivers, again=True)


def _is_as_asked(made: Replay, session_id: str, wish: Wish) -> bool:
    return (
        made.replay_of == session_id
        and (wish.turns is None or sorted(set(wish.turns)) == list(made.turns))
        and wish.provider in (None, made.provider)
        and wish.model in (None, made.model)
        and wish.delivery == made.delivers
    )


async def original_of(conn: AsyncConnection, session_id: str) -> AnyRow:
    session = await find_session(conn, session_id)
    if session is None or is_ours(session.folder):
        raise RefusedError(f"there is no session {session_id!r}; see: longshore sessions")
    if session.replay_of is not None:
        original = short(session.replay_of)
        raise RefusedError(f"session {short(session_id)} is a replay itself: replay the original, {original}")
    return session


async def said_in_turns(
    conn: AsyncConnection, session: AnyRow, numbers: Sequence[int] | None, provider: str | None, model: str | None
) -> list[Said]:
    """The turns that are wanted, in their order."""
    turns = {turn.number: turn for turn in await turns_of_session(conn, session.id)}
    wanted = {n for n, turn in turns.items() if turn.status in _ENDED} if numbers is None else set(numbers)
    if len(wanted) > MAX_TURNS:
        raise RefusedError(f"{len(wanted)} turns are too many for one replay: choose at most {MAX_TURNS}")
    messages = await messages_by_turn(conn, [turns[n].id for n in wanted if n in turns])
    if numbers is None:
        wanted = {n for n in wanted if turns[n].id in messages}
    if not wanted:
        raise RefusedError(f"session {short(session.id)} has no turn that has ended: there is nothing to replay")
    said = []
    for number in sorted(wanted):
        turn = turns.get(number)
        _check_turn(session, number, turn, messages.get(turn.id) if turn is not None else None)
        assert turn is not None
        runs = provider or turn.provider
        kept = turn.model if runs == turn.provider else None
        said.append(Said(turn, messages[turn.id], runs, model or kept))
    return said


def _check_turn(session: AnyRow, number: int, turn: AnyRow | None, messages: list[AnyRow] | None) -> None:
    where = f"turn {number} of session {short(session.id)}"
    if turn is None:
        raise RefusedError(f"there is no {where}; it has turns up to {session.turn_seq}")
    if turn.status not in _ENDED:
        raise RefusedError(f"{where} has not ended ({turn.status}): wait for it, or cancel it first")
    if not messages:
        raise RefusedError(f"{where} has no messages any more: they went on in a later turn, or were pruned")
    if len(messages) > MAX_MESSAGES:
        raise RefusedError(f"{where} answered {len(messages)} messages; at most {MAX_MESSAGES} are said again at once")


async def _check_folder(house: House, folder: str) -> None:
    try:
        await asyncio.to_thread(check_size, house.settings.workspace_root, folder)
    except WorkspaceError as error:
        raise RefusedError(str(error)) from error


async def _write(conn: AsyncConnection, registry: Registry, original: str, new: str, said: Sequence[Said]) -> None:
    first = said[0].turn.number
    last = await copy_context(conn, original, new, first)
    rows: list[dict[str, Any]] = []
    if last and not _recalls(registry, said[0].provider):
        rows.append(await _retold(conn, original, new, said[0]))
    rows += copies(said, new, len(rows))
    await put_copies(conn, rows)
    await set_numbers(conn, new, messages=len(rows), turns=last)


def copies(said: Sequence[Said], new: str, after: int, **changes: Any) -> list[dict[str, Any]]:
    """Rows for a session that has `after` messages. Each turn's messages travel together and alone: all ride along with
    the last, which names who runs it."""
    rows: list[dict[str, Any]] = []
    for one in said:
        for number, row in enumerate(one.messages, 1):
            ends = number == len(one.messages)
            named = {"provider": one.provider, "model": one.model} if ends else {"provider": None, "model": None}
            rows.append(copy_of(row, new, after + len(rows) + 1, wakes=ends, **named, **changes))
    return rows


def _recalls(registry: Registry, provider: str) -> bool:
    """Whether it goes on from what was said before, whoever said it; or hears nothing but people's own words."""
    driver = registry.providers.get(provider)
    return isinstance(driver, ModelProvider) or driver.manifest.capabilities.plain_texts


async def _retold(conn: AsyncConnection, original: str, new: str, one: Said) -> dict[str, Any]:
    """A program remembers what it was told itself, and nothing else: what was said before it is told in words."""
    summary, items = await history(conn, original, one.turn.number)
    lines = [f"summary: {one_line(summary, MAX_LINE)}"] if summary else []
    texts = [(row.role, str(row.content.get("text") or "")) for row in items if row.type == "text"]
    lines += [f"{role}: {one_line(text, MAX_LINE)}" for role, text in texts if text.strip()]
    told = "\n".join(lines)[-MAX_RETOLD:]
    content = {"action": "conversation so far", "status": "info", "result": told}
    copied = copy_of(one.messages[0], new, 1, kind="system", wakes=False, content=content, provider=None, model=None)
    return copied | {"replay_of": None, "sender_id": None}
