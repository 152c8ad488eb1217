"""`reset_session`: an agent that wants to begin anew."""

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.actions import ResetSession
from workers.actions.caller import Caller, Performed


async def reset(conn: AsyncConnection, caller: Caller, action: ResetSession, step_id: str, number: int) -> Performed:
    """Only words: the turn's end does it, if it comes to a good end (`workers/session_reset.py`)."""
    return Performed("When this turn is over, you begin anew: what was said so far will not be before you any more.")
