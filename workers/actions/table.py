"""Which function performs which action. Each checks everything before it writes anything, and refuses with ToolError;
all of it happens in the transaction that writes the tool's result."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import Action, AddReaction, EditMessage, Send, SendToAgent
from workers.actions import messages
from workers.actions.caller import Caller, Performed

# Connection, caller, action, the step it belongs to, and the message number taken for it (if it needs one).
Performer = Callable[[AsyncConnection, Caller, Any, str, int], Awaitable[Performed]]

_PERFORMERS: Final[dict[type[Any], Performer]] = {
    Send: messages.send,
    EditMessage: messages.edit,
    AddReaction: messages.react,
    SendToAgent: messages.send_to_agent,
}
_SENDS: Final = (Send, EditMessage, AddReaction, SendToAgent)


def numbers_for(action: Action) -> int:
    """How many message numbers it takes."""
    return 1 if isinstance(action, _SENDS) else 0


async def perform(conn: AsyncConnection, caller: Caller, action: Action, step_id: str, number: int) -> Performed:
    return await _PERFORMERS[type(action)](conn, caller, action, step_id, number)
