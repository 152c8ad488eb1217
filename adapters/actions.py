"""What a tool wants the fleet to do: data that its handler returns instead of a text.

The fleet does it in the transaction that writes the tool's result, so it happens exactly when the step is done, and
says in words what came of it. Who asks, from which session and to where is the fleet's knowledge; nothing here can
claim to be somebody else (`workers/actions/` performs them)."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True)
class Place:
    """Somewhere on a platform. The fleet checks that the agent may write there."""

    channel_type: str
    platform_id: str
    thread_id: str | None = None


@dataclass(frozen=True)
class Send:
    """A message to the conversation, or to another place. `files` lie in the outbox folder named `outbox`. With a date
    or a recurrence it is a reminder: said then, without the agent."""

    content: dict[str, Any]
    kind: Literal["chat", "chat-sdk"] = "chat"
    to: Place | None = None
    outbox: str | None = None
    deliver_after: datetime | None = None
    recurrence: str | None = None
    timezone: str = "UTC"

    @property
    def is_reminder(self) -> bool:
        return self.deliver_after is not None or self.recurrence is not None


@dataclass(frozen=True)
class Ask:
    """Something only a person can answer. `options` are what they may choose from (none: any text), and `values` what
    the agent is told when one is chosen. The turn is parked; the answer is the tool's result."""

    title: str
    text: str
    options: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    seconds: float = 300.0


@dataclass(frozen=True)
class EditMessage:
    number: int
    text: str


@dataclass(frozen=True)
class AddReaction:
    number: int
    emoji: str


@dataclass(frozen=True)
class SendToAgent:
    agent_group: str  # folder or id
    text: str
    session_id: str | None = None


@dataclass(frozen=True)
class ScheduleTask:
    """Without a date it begins with the next that its recurrence names. `terms`: how it is run, as far as that is not
    as usual: catch_up, overlap, jitter_seconds, pause_after, daily_usd, script."""

    prompt: str
    process_after: datetime | None = None
    recurrence: str | None = None
    timezone: str = "UTC"
    terms: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ListTasks:
    pass


@dataclass(frozen=True)
class ChangeTask:
    """`fields` is for `update`: those of ScheduleTask, and those of its terms, that change."""

    task_id: str
    change: Literal["cancel", "pause", "resume", "update"]
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisterAgentGroup:
    name: str
    folder: str
    place: Place
    trigger_rules: dict[str, Any] = field(default_factory=dict)
    session_mode: Literal["shared", "per-thread"] = "shared"
    provider: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class ResetSession:
    pass


@dataclass(frozen=True)
class ListSessions:
    """`begun_since`: only of conversations that began then or later."""

    agent_group: str | None = None
    begun_since: datetime | None = None
    state: Literal["working", "idle", "closed"] | None = None

    @property
    def narrows(self) -> bool:
        return self.begun_since is not None or self.state is not None


@dataclass(frozen=True)
class ReadSession:
    session_id: str
    view: Literal["messages", "steps"] = "messages"
    limit: int = 50


@dataclass(frozen=True)
class Submit:
    """What a stage of a workflow has come to. `text`: what the agent is told."""

    output: dict[str, Any]
    text: str


@dataclass(frozen=True)
class SteerSession:
    """Another agent's session, or all its conversations with people (`agent_group`). `reset`: begin anew. `replay`: say
    its messages again in a session beside it, from which nothing leaves. `again`: begin anew, and answer its messages
    once more, where they were said."""

    act: Literal["reset", "replay", "again"]
    session_id: str | None = None
    agent_group: str | None = None  # its folder
    provider: str | None = None
    model: str | None = None


Action = (
    Send
    | Ask
    | EditMessage
    | AddReaction
    | SendToAgent
    | ScheduleTask
    | ListTasks
    | ChangeTask
    | RegisterAgentGroup
    | ResetSession
    | ListSessions
    | ReadSession
    | SteerSession
    | Submit
)
