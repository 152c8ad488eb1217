"""Who is not signed in is not listened to for long: a form is read before anybody is asked who they are, and reading a
long one takes everybody's time."""

from typing import Final

from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.console.security import COOKIE
from models.database import Database
from models.sign_ins import find_visitor

# A token, a link's code, and where to go then.
MAX_BYTES: Final = 16 * 1024
_CLOSE: Final = {"Connection": "close"}  # the rest is on its way: nobody wants to read it


class Threshold:
    """Asks for the sign-in at the first byte too many; ordinary forms are not asked for it twice."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0
        is_known = False

        async def bounded() -> Message:
            nonlocal size, is_known
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BYTES and not is_known:
                is_known = await _is_signed_in(HTTPConnection(scope))
                if not is_known:
                    text = f"sign in first: of others at most {MAX_BYTES} bytes are read"
                    raise HTTPException(413, text, _CLOSE)
            return message

        await self._app(scope, bounded, send)


async def _is_signed_in(connection: HTTPConnection) -> bool:
    db: Database = connection.state.house.db
    secret = connection.cookies.get(COOKIE, "")
    return bool(secret) and await db.read(lambda conn: find_visitor(conn, secret)) is not None
