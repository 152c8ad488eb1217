"""Tables, one file per aggregate, with the statements that read and change them beside them.

Whoever imports one has them all: they refer to each other by name, and a key has the type of what it refers to."""

from models.audit import Audit
from models.base import Base, new_id, now
from models.budgets import BudgetDay, Reservation
from models.cards import Card
from models.consent import Approval, PendingQuestion
from models.conversation import Compaction, Event, TranscriptItem, Usage
from models.database import Database
from models.engagements import Engagement
from models.fleet import Process, ProviderHealth, Rejected
from models.groups import AgentGroup, MessagingGroup, Wiring
from models.inbox import MessageIn
from models.invitations import Invitation, WrongCode
from models.listeners import Listener
from models.outbox import MessageOut
from models.people import AgentGroupMember, User, UserDm, UserRole
from models.programs import ProgramState
from models.rounds import Round
from models.series import Series
from models.sessions import Lease, Session
from models.sign_ins import SignIn
from models.tokens import Token
from models.turns import Step, Turn
from models.workflows import Stage, Workflow

__all__ = [
    "AgentGroup",
    "AgentGroupMember",
    "Approval",
    "Audit",
    "Base",
    "BudgetDay",
    "Card",
    "Compaction",
    "Database",
    "Engagement",
    "Event",
    "Invitation",
    "Lease",
    "Listener",
    "MessageIn",
    "MessageOut",
    "MessagingGroup",
    "PendingQuestion",
    "Process",
    "ProgramState",
    "ProviderHealth",
    "Rejected",
    "Reservation",
    "Round",
    "Series",
    "Session",
    "SignIn",
    "Stage",
    "Step",
    "Token",
    "TranscriptItem",
    "Turn",
    "Usage",
    "User",
    "UserDm",
    "UserRole",
    "Wiring",
    "Workflow",
    "WrongCode",
    "new_id",
    "now",
]
