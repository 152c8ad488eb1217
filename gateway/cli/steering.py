"""`longshore cancel`, `reset` and `close`: stopping what a session is at, beginning anew, ending it."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from gateway.cli.desk import BY, AsJson, Desk, print_done, run
from gateway.cli.sessions import one_session
from workers.house import Done, House
from workers.operations import sessions as operations

SessionName = Annotated[str, typer.Argument(help="the session's id (its end is enough)")]


def cancel(session: SessionName, as_json: AsJson = False) -> None:
    """Stop the turn a session is in: running, waiting or parked. Its messages are put away; what waits goes on."""
    _steer(operations.cancel, session, as_json)


def reset(session: SessionName, as_json: AsJson = False) -> None:
    """Let a conversation begin anew, as /clear does: a new session, with all that waits."""
    _steer(operations.reset, session, as_json)


def close(session: SessionName, as_json: AsJson = False) -> None:
    """End a session. What waits in it moves to the conversation's next one; a replay ends with its folder."""
    _steer(operations.close, session, as_json)


def _steer(act: Callable[[House, str, str], Awaitable[Done]], session: str, as_json: bool) -> None:
    async def command(desk: Desk) -> None:
        session_id = await one_session(desk, session)
        done = await act(desk, BY, session_id)
        print_done(done.text, as_json, session=session_id)

    run(command, broker=True)
