"""A turn's notebook in the database: each model call is a step, intent before and reply after, and what users say
meanwhile is taken into the turn with the next one.

The first intent is written with the turn's opening and the last reply with its end, so that a turn of one call costs no
transaction of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.events import MessagesJoined, UsageReport
from adapters.model_port import ModelReply
from adapters.transcript import Called, Item, ReplyItem, Said, from_record
from models.base import AnyRow, new_id
from models.budgets import settle
from models.conversation import Compaction, Usage, history
from models.inbox import begin_processing, due_messages, joining
from models.sessions import hear
from models.turns import Step, count_steps, finish_step, steps_of_turn
from models.upsert import insert_ignoring
from workers.formatting import format_prompt
from workers.journal import Journal
from workers.media import Media
from workers.notebook import Opened, remembered

if TYPE_CHECKING:
    from workers.opening import OpenedTurn

_INSERT_STEP: Final = insert(Step.__table__)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Recalled:
    """What is known of a conversation when a turn is opened: earlier turns, and the steps of earlier attempts."""

    history: tuple[Item, ...]
    steps: dict[int, AnyRow] = field(default_factory=dict)
    first_step: str = ""


async def recall(
    conn: AsyncConnection, session_id: str, turn_id: str, number: int, model: str, messages: Sequence[AnyRow], new: bool
) -> Recalled:
    """Read what a tool loop goes on from. For a new turn, its first intent is written as well."""
    summary, rows = await history(conn, session_id, number) if number > 1 else (None, [])
    items = remembered(
        summary, [from_record({"role": row.role, "type": row.type, "content": row.content}) for row in rows]
    )
    journal = [] if new else await steps_of_turn(conn, turn_id)
    steps = {call: row for row in journal if (call := _number(row.key)) is not None}
    if steps:
        return Recalled(items, steps)
    # Nothing was asked yet: the turn is new, or began on a provider with a loop of its own.
    step = _intent(turn_id, 1, model, [message.seq for message in messages])
    await conn.execute(_INSERT_STEP, step | {"number": len(journal) + 1})
    return Recalled(items, first_step=step["id"])


class ModelJournal:
    def __init__(
        self, journal: Journal, turn: "OpenedTurn", user_id: str | None, media: Media, *, budgeted: bool
    ) -> None:
        """`turn.messages` grows with what joins it. `user_id`: whose request this is, and who is charged."""
        recalled = turn.recalled
        assert recalled is not None
        assert turn.model is not None
        self.history = recalled.history
        self._journal = journal
        self._media = media
        self._steps = recalled.steps
        self._messages = turn.messages
        self._facts = turn.facts
        self._model = turn.model
        self._through = turn.number - 1
        self._budgeted = budgeted
        self._charged_to = {
            "agent_group_id": turn.agent_group_id,
            "session_id": turn.lease.session_id,
            "turn_id": turn.id,
            "user_id": user_id,
            "provider": turn.provider,
        }
        self._ids: dict[int, str] = {n: row.id for n, row in recalled.steps.items()}
        if recalled.first_step:
            self._ids[1] = recalled.first_step
        # Replies that are heard but not yet on record: whatever is written next takes them along.
        self._unwritten: list[tuple[int, ModelReply]] = []

    @property
    def conversation(self) -> str:
        return self._journal.lease.session_id

    def name_call(self, number: int, index: int) -> str:
        return f"call_{self._journal.turn_id[-8:]}_{number}_{index}"

    def step_id(self, number: int) -> str:
        return self._ids[number]

    async def begin(self, number: int, *, pushed: Sequence[str] = (), only_if_asked: bool = False) -> Opened:
        known = self._steps.get(number)
        if known is not None and known.status == "finished":
            return Opened(self._joined(known.input), _reply(known.output))
        if number == 1 and known is None:
            return Opened(self._joined({"messages": [message.seq for message in self._messages]}))
        earlier = known.input if known is not None else {}
        joined: list[AnyRow] = []
        asked: dict[str, Any] = {}

        async def work(conn: AsyncConnection, _: int) -> None:
            nonlocal joined, asked
            await self._write_replies(conn)
            joined = await self._take(conn)
            asked = {
                "messages": [*earlier.get("messages", ()), *(row.seq for row in joined)],
                "pushed": [*earlier.get("pushed", ()), *map(self._journal.redactor.text, pushed)],
            }
            if only_if_asked and known is None and not any(asked.values()):
                return
            if known is not None:
                await conn.execute(update(Step).where(Step.id == known.id).values(input=asked, name=self._model[:200]))
                return
            step = _intent(self._journal.turn_id, number, self._model, asked["messages"], asked["pushed"])
            self._ids.setdefault(number, step["id"])
            count = await count_steps(conn, self._journal.turn_id) + 1
            if not await insert_ignoring(conn, Step, **step | {"id": self._ids[number], "number": count}):
                # Only the answer to an earlier commit was lost; what has joined since belongs to it too.
                await conn.execute(update(Step).where(Step.id == self._ids[number]).values(input=asked))

        await self._journal.write(work, activity="calling model")
        self._unwritten = []
        if joined:
            await self._media.prepare(joined)
            self._messages += joined
            self._journal.add(MessagesJoined(messages=tuple(row.seq for row in joined)))
        return Opened(self._joined(asked))

    async def finish(self, number: int, reply: ModelReply) -> None:
        self._unwritten.append((number, reply))
        if any(isinstance(item, Called) for item in reply.items):

            async def work(conn: AsyncConnection, _: int) -> None:
                await self._write_replies(conn)

            await self._journal.write(work)
            self._unwritten = []

    async def compact(self, number: int, summary: str, archive: str, usage: UsageReport) -> None:
        step_id = new_id()
        turn_id = self._journal.turn_id

        async def work(conn: AsyncConnection, _: int) -> None:
            count = await count_steps(conn, turn_id) + 1
            step = _intent(turn_id, number, self._model, []) | {"id": step_id, "key": f"compact:{step_id[-8:]}"}
            await insert_ignoring(conn, Step, **step, number=count)
            await finish_step(conn, step_id, ok=True, output={"archive": archive})
            row = {
                "session_id": self.conversation,
                "through_turn": self._through,
                "summary": self._journal.redactor.text(summary),
                "archive": archive,
            }
            if summary:
                await insert_ignoring(conn, Compaction, **row)
            await self._charge(conn, step_id, self.step_id(number), usage)

        await self._journal.write(work)

    async def write_end(self, conn: AsyncConnection) -> None:
        """What is not on record yet, in the transaction that ends the turn."""
        await self._write_replies(conn)

    async def _take(self, conn: AsyncConnection) -> list[AnyRow]:
        """Messages that came meanwhile become the turn's."""
        session_id, turn_id = self.conversation, self._journal.turn_id
        known = {message.id for message in self._messages}
        due = await due_messages(conn, session_id)
        new = joining(due)
        if new:
            await begin_processing(conn, [row.id for row in new], turn_id)
        if new and not [row for row in due if row.turn_id is None and row.wakes and row not in new]:
            await hear(conn, session_id)  # nothing is left to be rung for
        # Also those an earlier run of this transaction took, if only the answer to its commit was lost.
        return [row for row in due if row.id not in known and (row in new or row.turn_id == turn_id)]

    async def _write_replies(self, conn: AsyncConnection) -> None:
        redactor = self._journal.redactor
        for number, reply in self._unwritten:
            step_id = self.step_id(number)
            output = {"items": [redactor.record(item) for item in reply.items], "stop": reply.stop}
            await finish_step(conn, step_id, ok=True, output=output)
            await self._charge(conn, step_id, step_id, reply.usage)

    async def _charge(self, conn: AsyncConnection, usage_id: str, held_for: str, usage: UsageReport) -> None:
        """One usage row per call: its id makes it one however often it is written. What was held for it is settled."""
        cost = None if usage.cost_usd is None else Decimal(repr(usage.cost_usd))
        counted = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        }
        model = (usage.model or self._model)[:200]
        await insert_ignoring(conn, Usage, id=usage_id, model=model, cost_usd=cost, **counted, **self._charged_to)
        if self._budgeted:
            await settle(conn, held_for, usage.cost_usd or 0.0)

    def _joined(self, asked: dict[str, Any]) -> tuple[Item, ...]:
        wanted = set(asked.get("messages", ()))
        rows = [message for message in self._messages if message.seq in wanted]
        said = [format_prompt(rows, self._media.notes, self._facts)] if rows else []
        words = [Said("user", text) for text in [*said, *asked.get("pushed", ())]]
        return (*self._media.shown(rows), *words)


def _intent(turn_id: str, number: int, model: str, messages: list[int], pushed: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "id": new_id(),
        "turn_id": turn_id,
        "key": f"model:{number}",
        "kind": "model",
        "name": model[:200],
        "idempotent": True,  # asking again costs money and does nothing else
        "input": {"messages": messages, "pushed": list(pushed)},
    }


def _number(key: str) -> int | None:
    kind, _, number = key.partition(":")
    return int(number) if kind == "model" and number.isdigit() else None


def _reply(output: dict[str, Any]) -> ModelReply:
    items: list[ReplyItem] = [from_record(record) for record in output["items"]]  # type: ignore[misc]
    return ModelReply(tuple(items), output["stop"], UsageReport())
