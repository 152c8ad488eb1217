"""One conversation with an agent, as a chat has it: say something, and see what comes of it.

It shows through a ChatPrinter and knows nothing of keyboards: `chat` drives it from a terminal or from a pipe."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import redis.asyncio

from adapters.events import (
    ApprovalRequested,
    Envelope,
    MessagesJoined,
    QuestionAsked,
    ToolResult,
    TurnEnded,
    TurnStarted,
)
from gateway.cli.chat_log import (
    CHANNEL,
    find_conversation,
    message_state,
    messages_numbered,
    open_approvals,
    recent_messages,
    sent_on_the_way,
)
from gateway.cli.chat_printer import ME, ChatPrinter
from gateway.cli.desk import BY, Desk, shown
from gateway.cli.listening import nobody_listens
from gateway.figures import until
from models.base import AnyRow, new_id
from models.consent import open_question
from models.lookup import short
from workers.consent.approvals import decide
from workers.events import Follower
from workers.house import ring_for
from workers.intake.incoming import parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.operations import sessions
from workers.refusals import RefusedError

HISTORY = 6
ENDS = ("completed", "failed", "cancelled", "parked")
_SENDING_TOOL = "send_message"


def fresh_place() -> str:
    return f"chat-{short(new_id())}"


class Conversation:
    def __init__(
        self, desk: Desk, client: redis.asyncio.Redis, group: AnyRow, place: str, printer: ChatPrinter
    ) -> None:
        self._desk = desk
        self._client = client
        self._group = group
        self._printer = printer
        self._mine: set[int] = set()
        # Until somebody listens, nobody is rung for: the first words of an answer are not kept for those who come late.
        self._listens = False
        self._unrung: list[Accepted] = []
        self._seen = 0  # the number of the last message that was shown
        self._events_before = 0
        self.place = place
        self.session_id: str | None = None

    async def open(self) -> None:
        """Find the conversation and show how it stands."""
        db, printer = self._desk.db, self._printer
        found = await db.read(lambda conn: find_conversation(conn, self._group.id, self.place))
        if found is None:
            return
        self.session_id, self._events_before, self._seen = found.id, found.event_seq, found.message_seq
        printer.history(await db.read(lambda conn: recent_messages(conn, found.id, HISTORY)))
        if (question := await db.read(lambda conn: open_question(conn, found.id))) is not None:
            asked = question.question
            shape = QuestionAsked(
                id=question.id,
                title=asked.get("title") or "",
                text=asked.get("text") or "",
                options=tuple(asked.get("options") or ()),
                seconds=0,
            )
            printer.show(Envelope(session=found.id, at=question.created_at, event=shape))
            printer.waits(f"[yellow]⏸ waiting for you[/yellow] [dim](for another {until(question.expires_at)})[/dim]")
        elif approvals := await db.read(lambda conn: open_approvals(conn, found.id)):
            for row in approvals:
                wish = ApprovalRequested(id=row.id, category=row.category, summary=row.summary, risk=row.risk)
                printer.show(Envelope(session=found.id, at=row.created_at, event=wish))
            printer.waits("[yellow]⏸ waiting for approval[/yellow]")
        elif found.activity and found.lease_expires_at is not None:
            printer.note(f"[dim]at work: {shown(found.activity)}[/dim]")

    async def say(self, text: str) -> Accepted:
        """Hand in a message as `send` does. RefusedError if it cannot be taken."""
        given = {
            "agent_group": self._group.id,
            "channel_type": CHANNEL,
            "platform_id": self.place,
            "text": text,
            "sender_id": ME,
            "sender_name": ME,
        }
        desk = self._desk
        accepted = await accept(desk.db, desk.registry, desk.settings, parse_incoming(given))
        self.session_id = accepted.session_id
        self._mine.add(accepted.seq)
        if self._listens:
            accepted.ring(desk.bells)
        else:
            self._unrung.append(accepted)
        if (words := await nobody_listens(desk, accepted)) is not None:
            self._printer.note(words)
        return accepted

    async def decide(self, approve: bool, code: str) -> str:
        """Say yes or no to what the agent asks for here; `code` is the end of its id, if several wait. In words what
        came of it. RefusedError if there is nothing to decide."""
        session_id = self.session_id
        waiting = await self._desk.db.read(lambda conn: open_approvals(conn, session_id)) if session_id else []
        meant = [row for row in waiting if row.id.endswith(code)]
        if len(meant) != 1:
            several = ", ".join(f"{short(row.id)} ({row.summary})" for row in waiting)
            raise RefusedError(
                f"say which, by its code: {several}" if several else "nothing waits for a decision in this conversation"
            )
        done = await decide(self._desk.db, meant[0].id, approve=approve)
        ring_for(self._desk, done.wakes, done.deliveries)
        return done.text

    async def stop(self) -> str:
        """Stop what the agent is at. In words what came of it; RefusedError if it is at nothing."""
        if self.session_id is None:
            raise RefusedError("nothing has been said yet")
        return (await sessions.cancel(self._desk, BY, self.session_id)).text

    def _ring_for_the_first(self) -> None:
        self._listens = True
        for accepted in self._unrung:
            accepted.ring(self._desk.bells)

    async def events(self) -> AsyncGenerator[Envelope, None]:
        """Show what happens from where `open` found things, and pass it on. For ever."""
        assert self.session_id is not None, "a conversation that has begun"
        follower = Follower(
            self._desk.db, self._client, self.session_id, self._events_before, ready=self._ring_for_the_first
        )
        async with aclosing(cast(AsyncGenerator[Envelope, None], follower.events())) as items:
            async for item in items:
                await self._show_messages(item)
                self._printer.show(item)
                await self._show_sent(item)
                yield item

    async def is_over(self, accepted: Accepted, item: Envelope) -> bool:
        """Whether this event ends the waiting for an answer to a message: its turn has ended, or asks back."""
        if not isinstance(item.event, TurnEnded) or item.event.status not in ENDS:
            return False
        if accepted.answered_turn is not None:
            return item.turn == accepted.answered_turn
        state = await self._desk.db.read(lambda conn: message_state(conn, accepted.message_id))
        if state is None or state.status not in ("pending", "processing"):
            return True
        return item.event.status == "parked" and state.turn_id == item.turn

    async def _show_messages(self, item: Envelope) -> None:
        """Texts of messages that are now being answered and that others have sent."""
        if not isinstance(item.event, TurnStarted | MessagesJoined):
            return
        new = {number for number in item.event.messages if number > self._seen} - self._mine
        if new:
            for said in await self._desk.db.read(lambda conn: messages_numbered(conn, item.session, new)):
                self._printer.said(said)
        self._seen = max([self._seen, *item.event.messages])

    async def _show_sent(self, item: Envelope) -> None:
        match item.event:
            case ToolResult(name=name, ok=True) if name == _SENDING_TOOL and item.turn is not None:
                turn_id, after = item.turn, self._seen
                for said in await self._desk.db.read(lambda conn: sent_on_the_way(conn, turn_id, after)):
                    self._printer.said(said)
                    self._seen = said.seq
