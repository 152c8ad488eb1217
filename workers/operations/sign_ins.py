"""Who comes into the console and goes: each with a line in the audit log, in the transaction of the act.

Who is refused leaves none there: anybody can be refused, as often as they like."""

from sqlalchemy.ext.asyncio import AsyncConnection

from models import sign_ins
from models.audit import note
from models.tokens import Bearer

_IN, _OUT = "console.sign_in", "console.sign_out"


async def come_in_by_token(conn: AsyncConnection, browser_secret: str, bearer: Bearer) -> None:
    await sign_ins.sign_in(conn, browser_secret, bearer)
    await note(conn, bearer.user_id, _IN, bearer.user_id, by="token", token=bearer.token_id)


async def come_in_by_link(conn: AsyncConnection, link: str, browser_secret: str) -> bool:
    """False: it is no link, or no longer, or somebody was faster."""
    user_id = await sign_ins.use_link(conn, link, browser_secret)
    if user_id is None:
        return False
    await note(conn, user_id, _IN, user_id, by="link")
    return True


async def leave(conn: AsyncConnection, visitor: sign_ins.Visitor) -> None:
    await sign_ins.sign_out(conn, visitor.sign_in_id)
    await note(conn, visitor.user_id, _OUT, visitor.user_id)


async def send_out(conn: AsyncConnection, by: str, user_id: str) -> int:
    """Out of all their browsers, as many as there are; and no link lets them in again."""
    browsers = await sign_ins.sign_out_everywhere(conn, user_id)
    await note(conn, by, _OUT, user_id, browsers=browsers)
    return browsers
