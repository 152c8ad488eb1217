"""What stands before every route: bodies that are neither too long nor too slow."""

import asyncio
from typing import Final

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES: Final = 1 << 20
BODY_SECONDS: Final = 20.0  # for all of it: who sends slowly must not keep others out
_CLOSE: Final = {"Connection": "close"}  # the rest of the body is on its way: nobody wants to read it


class BodyLimit:
    """Ends reading, and so the request, at the first byte too many, said beforehand or not, and when it takes too
    long."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"0")
        too_long = not said.isdigit() or len(said) > 15 or int(said) > MAX_BODY_BYTES
        size = 0
        deadline: float | None = asyncio.get_running_loop().time() + BODY_SECONDS

        async def bounded() -> Message:
            nonlocal size, deadline
            if too_long:
                raise _too_long()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the body took longer than {BODY_SECONDS:g} s", _CLOSE) from None
            if not message.get("more_body"):
                deadline = None  # what comes now is that they hang up
            size += len(message.get("body", b""))
            if size > MAX_BODY_BYTES:
                raise _too_long()
            return message

        await self._app(scope, bounded, send)


def _too_long() -> HTTPException:
    return HTTPException(413, f"the body is too long: at most {MAX_BODY_BYTES} bytes are taken", _CLOSE)
