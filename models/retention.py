"""What is old and finished: the rows that may be removed, and by which rule each of the others stays.

A row goes when it was finished before a date, nothing waits for it, and nothing that stays names it. What a
conversation, a bill or somebody's attention still rests on stays, however old: transcripts of open conversations,
usage, dead letters and undelivered answers (with the whole of their turn), and what was decided about strangers.

Rules only; who walks through the tables is `models.pruning`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, String, Table, and_, bindparam, exists, func, not_, or_
from sqlalchemy.orm import aliased

from models.base import Base, Timestamp
from models.budgets import BudgetDay, Reservation
from models.cards import Card
from models.consent import ACCESS, Approval, PendingQuestion
from models.conversation import Compaction, Event, TranscriptItem, Usage
from models.fleet import Rejected
from models.inbox import MessageIn
from models.invitations import Invitation, WrongCode
from models.outbox import MessageOut
from models.programs import ProgramState
from models.series import Series
from models.sessions import Session
from models.turns import Step, Turn

Clause = ColumnElement[bool]

# Handed in when a statement is run: what was finished, or refused, before it is old; and the first's day in UTC.
FINISHED: Final = bindparam("given_finished", type_=Timestamp())
REFUSED: Final = bindparam("given_refused", type_=Timestamp())
DAY: Final = bindparam("given_day", type_=String())


@dataclass(frozen=True)
class Names:
    """A column of another table that names rows of this one. `rule`: by which those go; None: they stay."""

    entity: type[Base]
    column: str
    rule: "Rule | None" = None


@dataclass(frozen=True, eq=False)
class Way:
    """How a table is walked: by these columns, which are unique together and lead down an index; by parts, such as
    sessions, that the column `part` names. `young`: what is true of all rows of a part behind one of which it is."""

    order: tuple[str, ...]
    part: str | None = None
    young: Clause | None = None


@dataclass(frozen=True, eq=False)
class Rule:
    """`is_over` says of a row whether it is old and finished."""

    entity: type[Any]
    way: Way
    is_over: Callable[[Any], Clause]
    named_by: tuple[Names, ...] = ()

    @property
    def table(self) -> Table:
        table: Table = self.entity.__table__
        return table

    def may_go(self, row: Any = None) -> Clause:
        """Whether a row can go together with all that names it."""
        return self._unless_named(self.entity if row is None else row, lambda names: names.rule)

    def goes(self) -> Clause:
        """Whether it can go by itself: what named it is gone."""
        return self._unless_named(self.entity, lambda _: None)

    def _unless_named(self, row: Any, rule_of: Callable[[Names], "Rule | None"]) -> Clause:
        clauses = [self.is_over(row)]
        for names in self.named_by:
            other, rule = aliased(names.entity), rule_of(names)
            stays = () if rule is None else (not_(rule.may_go(other)),)
            clauses.append(~exists().where(getattr(other, names.column) == row.id, *stays))
        return and_(*clauses)


def _is_settled(row: Any) -> Clause:
    """Its turn (if it has one) has ended long ago, and nobody has to look at it any more."""
    turn, message, answer = aliased(Turn), aliased(MessageIn), aliased(MessageOut)
    return and_(
        ~exists().where(turn.id == row.turn_id, or_(turn.ended_at.is_(None), turn.ended_at >= FINISHED)),
        ~exists().where(message.turn_id == row.turn_id, message.status.not_in(["completed", "discarded"])),
        ~exists().where(answer.turn_id == row.turn_id, answer.status.in_(["failed", "unknown"])),
    )


def is_closed(session: Any) -> Clause:
    """The conversation was begun anew long ago: nobody remembers this one."""
    since = func.coalesce(session.activity_since, session.last_active)
    return and_(session.status == "closed", session.last_active < FINISHED, since < FINISHED)


def _of_closed(row: Any) -> Clause:
    session = aliased(Session)
    return exists().where(session.id == row.session_id, is_closed(session))


def is_summed_up(turn_id: Any) -> Clause:
    """A summary stands for the turn: its words are not read again."""
    turn, summary = aliased(Turn), aliased(Compaction)
    return exists().where(
        turn.id == turn_id, summary.session_id == turn.session_id, summary.through_turn >= turn.number
    )


def _question_is_over(row: Any) -> Clause:
    return and_(row.status != "pending", row.created_at < FINISHED, row.expires_at < FINISHED, _is_settled(row))


def _approval_is_over(row: Any) -> Clause:
    return and_(
        row.status != "pending",
        # Who was turned away stays so, and the requests about one stranger are found one from the other.
        row.category != ACCESS,
        row.created_at < FINISHED,
        row.expires_at < FINISHED,
        func.coalesce(row.decided_at, row.created_at) < FINISHED,
        _is_settled(row),
    )


def _card_is_over(row: Any) -> Clause:
    """Closed, and what it asked goes as well."""
    approval, question = aliased(Approval), aliased(PendingQuestion)
    return and_(
        row.status == "closed",
        row.created_at < FINISHED,
        ~exists().where(approval.id == row.subject_id, not_(APPROVALS.may_go(approval))),
        ~exists().where(question.id == row.subject_id, not_(QUESTIONS.may_go(question))),
    )


def _answer_is_over(row: Any) -> Clause:
    return and_(
        row.created_at < FINISHED,
        row.status.in_(["delivered", "cancelled"]),
        row.deliver_after < FINISHED,  # when it was cancelled nobody wrote down
        func.coalesce(row.delivered_at, row.created_at) < FINISHED,
        or_(row.recurrence.is_(None), row.recurred, row.status == "cancelled"),
        _is_settled(row),
    )


def _message_is_over(row: Any) -> Clause:
    return and_(
        row.created_at < FINISHED,
        row.status.in_(["completed", "discarded"]),
        row.status_changed_at < FINISHED,
        or_(row.recurrence.is_(None), row.recurred),  # else its series ends with it
        _is_settled(row),
    )


def _words_are_over(row: Any) -> Clause:
    forgotten = or_(_of_closed(row), is_summed_up(row.turn_id))
    return and_(row.created_at < FINISHED, _is_settled(row), forgotten)


def _turn_is_over(row: Any) -> Clause:
    return and_(row.ended_at.is_not(None), row.ended_at < FINISHED)


def _series_is_over(row: Any) -> Clause:
    message = aliased(MessageIn)
    runs = exists().where(message.series_id == row.id, not_(MESSAGES_IN.may_go(message)))
    return and_(row.created_at < FINISHED, ~runs)


def _invitation_is_over(row: Any) -> Clause:
    return and_(row.expires_at < FINISHED, func.coalesce(row.used_at, row.expires_at) < FINISHED)


def _by_session(number: str, begins: Any = None) -> Way:
    return Way(("session_id", number), "session_id", None if begins is None else begins >= FINISHED)


# Input that was refused, which anybody can fill, has a date of its own.
REJECTED: Final = Rule(
    Rejected,
    Way(("created_at", "id"), young=Rejected.created_at >= REFUSED),
    lambda row: row.created_at < REFUSED,
)
WRONG_CODES: Final = Rule(
    WrongCode, Way(("id",), young=WrongCode.created_at >= REFUSED), lambda row: row.created_at < REFUSED
)

INVITATIONS: Final = Rule(Invitation, Way(("id",)), _invitation_is_over)
BUDGET_DAYS: Final = Rule(BudgetDay, Way(("agent_group_id", "user_id", "day")), lambda row: row.day < DAY)
QUESTIONS: Final = Rule(PendingQuestion, Way(("id",)), _question_is_over)
APPROVALS: Final = Rule(Approval, Way(("id",)), _approval_is_over, (Names(BudgetDay, "approval_id", BUDGET_DAYS),))
CARDS: Final = Rule(Card, Way(("id",)), _card_is_over)
MESSAGES_OUT: Final = Rule(
    MessageOut,
    _by_session("seq", MessageOut.created_at),
    _answer_is_over,
    (Names(Card, "message_out_id", CARDS), Names(PendingQuestion, "message_out_id", QUESTIONS)),
)
MESSAGES_IN: Final = Rule(
    MessageIn,
    _by_session("seq", MessageIn.created_at),
    _message_is_over,
    (Names(MessageOut, "in_reply_to", MESSAGES_OUT),),
)
STEPS: Final = Rule(Step, Way(("turn_id", "number"), "turn_id"), _is_settled)
EVENTS: Final = Rule(
    Event, _by_session("seq", Event.created_at), lambda row: and_(row.created_at < FINISHED, _is_settled(row))
)
TRANSCRIPTS: Final = Rule(TranscriptItem, _by_session("id", TranscriptItem.created_at), _words_are_over)
COMPACTIONS: Final = Rule(Compaction, _by_session("through_turn"), _of_closed)
PROGRAM_STATES: Final = Rule(ProgramState, _by_session("provider"), _of_closed)
TURNS: Final = Rule(
    Turn,
    Way(("id",), "id"),
    _turn_is_over,
    (
        Names(Usage, "turn_id"),  # what a bill rests on
        Names(Reservation, "turn_id"),
        Names(TranscriptItem, "turn_id", TRANSCRIPTS),
        Names(ProgramState, "turn_id", PROGRAM_STATES),
        Names(Event, "turn_id", EVENTS),
        Names(Step, "turn_id", STEPS),
        Names(MessageOut, "turn_id", MESSAGES_OUT),
        Names(MessageIn, "turn_id", MESSAGES_IN),
        Names(PendingQuestion, "turn_id", QUESTIONS),
        Names(Approval, "turn_id", APPROVALS),
    ),
)
SERIES: Final = Rule(Series, Way(("id",)), _series_is_over)

# Messages and answers of turns whose events are found.
BY_TURN: Final = Way(("turn_id", "id"), "turn_id")

# What names something goes before it.
IN_ORDER: Final = (
    REJECTED,
    WRONG_CODES,
    INVITATIONS,
    BUDGET_DAYS,
    QUESTIONS,
    APPROVALS,
    CARDS,
    MESSAGES_OUT,
    MESSAGES_IN,
    STEPS,
    EVENTS,
    TRANSCRIPTS,
    COMPACTIONS,
    PROGRAM_STATES,
    TURNS,
    SERIES,
)
