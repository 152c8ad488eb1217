"""A worker in a process of its own that runs one turn, to be killed in the middle of it.

`python -m tests.support.program_worker SETTINGS_JSON SESSION PROVIDER`"""

import asyncio
import json
import sys

from tests.support.fleet import Fleet
from workers.settings import Settings


async def main() -> None:
    settings, session_id, provider = sys.argv[1:]
    fleet = Fleet(Settings(**json.loads(settings)), name="doomed")
    sys.stdout.write(await fleet.wake(session_id, provider) + "\n")
    await fleet.close()


if __name__ == "__main__":
    asyncio.run(main())
