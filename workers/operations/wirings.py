"""Wirings: which agent listens in which place, to what, and what becomes of strangers there."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from models.audit import note
from models.groups import (
    Wiring,
    ensure_messaging_group,
    find_agent_group,
    find_place,
    remove_wiring,
    set_place,
)
from models.upsert import insert_or_update
from workers.house import House
from workers.intake.patterns import find_fault
from workers.operations.agents import agent_named
from workers.operations.names import check_name
from workers.refusals import RefusedError

FollowUp = Literal["enqueue", "interrupt", "separate", "reject"]
ResponseScope = Literal["all", "triggered", "allowlisted"]
Strangers = Literal["strict", "request_approval", "public"]
MAX_PRIORITY: Final = 1_000_000


class WiringError(RefusedError):
    """An agent cannot listen like that. The text says why."""


@dataclass(frozen=True)
class Listening:
    """To what an agent listens in a place (docs/routing.md). `sticky`: once called in a thread, follow it; None: if it
    answers only mentions. `priority`: higher is asked first."""

    pattern: str | None = None
    mention_only: bool = False
    include_senders: tuple[str, ...] = ()
    exclude_senders: tuple[str, ...] = ()
    sticky: bool | None = None
    scope: ResponseScope = "all"
    per_thread: bool = False
    follow_up: FollowUp = "enqueue"
    priority: int = 0

    def columns(self, channel: str) -> dict[str, Any]:
        """Checked: WiringError or BadNameError if it makes no sense."""
        rules = self._rules(channel)
        if self.scope == "allowlisted" and "includeSenders" not in rules:
            raise WiringError("the scope allowlisted hears only senders that are included by name: name somebody")
        if abs(self.priority) > MAX_PRIORITY:
            raise WiringError(f"the priority is from {-MAX_PRIORITY} to {MAX_PRIORITY}")
        return {
            "trigger_rules": rules,
            "response_scope": self.scope,
            "session_mode": "per-thread" if self.per_thread else "shared",
            "priority": self.priority,
            "follow_up": self.follow_up,
        }

    def _rules(self, channel: str) -> dict[str, Any]:
        rules: dict[str, Any] = {}
        if self.pattern is not None:
            if (fault := find_fault(self.pattern)) is not None:
                raise WiringError(f"the pattern {self.pattern!r} {fault}")
            rules["pattern"] = check_name("the pattern", self.pattern)
        if self.mention_only:
            rules["mentionOnly"] = True
        # People are named telegram:123 elsewhere.
        for rule, senders in (("includeSenders", self.include_senders), ("excludeSenders", self.exclude_senders)):
            if senders:
                rules[rule] = [check_name("a sender", sender.removeprefix(f"{channel}:")) for sender in senders]
        if both := sorted({*rules.get("includeSenders", ())} & {*rules.get("excludeSenders", ())}):
            raise WiringError(f"{', '.join(both)} cannot be both included and excluded")
        if self.mention_only if self.sticky is None else self.sticky:
            rules["sticky"] = True
        return rules


def check_place(channel: str, chat: str) -> None:
    check_name("the platform", channel, 50)
    check_name("the place", chat)


async def put_wiring(
    house: House, by: str, agent: str, channel: str, chat: str, how: Listening, strangers: Strangers | None = None
) -> None:
    """Let an agent listen in a place. Wired again, it listens as said the last time. `strangers`: what becomes of them
    there, whichever agent they write to; None: as it was, and `strict` in a new place."""
    check_place(channel, chat)
    columns = how.columns(channel)
    house.registry.channels.get(channel)

    async def work(conn: AsyncConnection) -> None:
        group_id = str((await agent_named(conn, agent)).id)
        place = await ensure_messaging_group(conn, channel, chat)
        key = {"messaging_group_id": place, "agent_group_id": group_id}
        await insert_or_update(conn, Wiring, list(key), **key, **columns)
        if strangers is not None:
            await set_place(conn, place, unknown_sender_policy=strangers)
        await note(conn, by, "wiring.put", f"{channel} {chat}", agent_group_id=group_id, strangers=strangers, **columns)

    await house.db.transact(work)


async def unwire(house: House, by: str, agent: str, channel: str, chat: str) -> bool:
    """Let an agent listen in a place no more. What was said there stays. False: it did not."""

    async def work(conn: AsyncConnection) -> bool:
        group, place = await find_agent_group(conn, agent), await find_place(conn, channel, chat)
        if group is None or place is None or not await remove_wiring(conn, place.id, group.id):
            return False
        await note(conn, by, "wiring.remove", f"{channel} {chat}", agent_group_id=group.id)
        return True

    return await house.db.transact(work)
