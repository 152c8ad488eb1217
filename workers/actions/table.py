"""Which function performs which action. Each checks everything before it writes anything, and refuses with ToolError;
all of it happens in the transaction that writes the tool's result."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import (
    Action,
    AddReaction,
    ChangeTask,
    EditMessage,
    ListSessions,
    ListTasks,
    ReadSession,
    RegisterAgentGroup,
    ResetSession,
    ScheduleTask,
    Send,
    SendToAgent,
    SteerSession,
    Submit,
)
from adapters.errors import ToolError
from workers.actions import groups, messages, overseeing, sessions, steering, tasks, workflows
from workers.actions.caller import Caller, Performed

# Connection, caller, action, the step it belongs to, and the message number taken for it (if it needs one).
Performer = Callable[[AsyncConnection, Caller, Any, str, int], Awaitable[Performed]]

_PERFORMERS: Final[dict[type[Any], Performer]] = {
    Send: messages.send,
    EditMessage: messages.edit,
    AddReaction: messages.react,
    SendToAgent: messages.send_to_agent,
    ScheduleTask: tasks.schedule,
    ListTasks: tasks.list_tasks,
    ChangeTask: tasks.change,
    RegisterAgentGroup: groups.register,
    ResetSession: sessions.reset,
    ListSessions: overseeing.list_sessions,
    ReadSession: overseeing.read_session,
    SteerSession: steering.steer,
    Submit: workflows.submit,
}
# A task is a message too: one to the agent's own session.
_NUMBERED: Final = (Send, EditMessage, AddReaction, SendToAgent, ScheduleTask)


# In a replay, what is said is kept from leaving by whoever delivers; these would last, or act at some later time.
_LASTING: Final = (ScheduleTask, ChangeTask, RegisterAgentGroup, ResetSession, SteerSession)
IN_A_REPLAY: Final = (
    "this is a replay of an earlier conversation: tasks, reminders, agents and sessions are not changed in it. Nothing "
    "was done; go on without"
)


def _would_last(action: Action) -> bool:
    return isinstance(action, _LASTING) or (isinstance(action, Send) and action.is_reminder)


def numbers_for(action: Action) -> int:
    """How many message numbers it takes."""
    return 1 if isinstance(action, _NUMBERED) else 0


async def perform(conn: AsyncConnection, caller: Caller, action: Action, step_id: str, number: int) -> Performed:
    if caller.turn.replay_of is not None and _would_last(action):
        raise ToolError(IN_A_REPLAY)
    return await _PERFORMERS[type(action)](conn, caller, action, step_id, number)
