"""A worker in a process of its own that is killed around the commit in which a tool call is done: with everything
written and nothing committed, or with everything committed and nobody told.

`python -m tests.support.steering_worker SETTINGS_JSON SESSION before|after`"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from models.turns import finish_step
from tests.support.fleet import Fleet
from workers import toolbox
from workers.journal import Journal
from workers.settings import Settings


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def doom(point: str) -> None:
    if point == "before":

        async def written(*args: Any, **kwargs: Any) -> None:
            await finish_step(*args, **kwargs)
            die()

        toolbox.finish_step = written  # type: ignore[attr-defined]
        return
    write = Journal.write

    async def committed(self: Journal, *args: Any, **kwargs: Any) -> None:
        await write(self, *args, **kwargs)
        if kwargs.get("activity") == "calling model":
            die()

    Journal.write = committed  # type: ignore[method-assign]


async def main() -> None:
    settings, session_id, point = sys.argv[1:]
    doom(point)
    await Fleet(Settings(**json.loads(settings)), name="doomed").wake(session_id)
    sys.exit("nobody killed me")


if __name__ == "__main__":
    asyncio.run(main())
