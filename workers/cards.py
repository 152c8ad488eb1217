"""Cards: buttons (or numbered text) under what an agent asks, and what a press of one does."""

from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.channel_port import ButtonPress
from models.database import Database


@dataclass
class Pressed:
    """What whoever pressed is told, and what to ring for after the commit."""

    text: str
    wakes: list[tuple[str, str | None]] = field(default_factory=list)  # session, provider (None: the default one)
    deliveries: list[str] = field(default_factory=list)


async def press(db: Database, channel_type: str, pressed: ButtonPress) -> Pressed:
    """Do what a button says, if it is one of ours, in its own place, in time, and pressed by somebody who may."""
    raise NotImplementedError


async def answer_by_text(
    conn: AsyncConnection, *, channel_type: str, platform_id: str, thread_id: str | None, user_id: str, text: str
) -> Pressed | None:
    """The same by words, where there are no buttons. None: the text answers no card of this place."""
    return None
