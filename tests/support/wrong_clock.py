"""`python -m tests.support.wrong_clock +600 celery -A workers.app worker ...`: a machine whose clock is wrong.

The command runs in this very interpreter: what reads the time of day in Python, or makes an id out of it, is off by so
many seconds. What measures how long something takes (the monotonic clock) is right, as it is on such a machine."""

import sys
import time
from datetime import timedelta
from importlib.metadata import entry_points
from uuid import UUID

import time_machine
import uuid_utils.compat

_real_uuid7 = uuid_utils.compat.uuid7


def set_wrong(seconds: float) -> None:
    """From now on, for as long as the process lives."""
    time_machine.travel(timedelta(seconds=seconds), tick=True).start()
    uuid_utils.compat.uuid7 = _uuid7


def _uuid7(*, nanoseconds: int | None = None) -> UUID:
    """The real one reads the clock past Python, so it is told what time it is."""
    return _real_uuid7(nanoseconds=time.time_ns() if nanoseconds is None else nanoseconds)


def main(seconds: str, *command: str) -> None:
    [program] = entry_points(group="console_scripts", name=command[0])
    set_wrong(float(seconds))
    sys.argv = list(command)
    sys.exit(program.load()())


if __name__ == "__main__":
    main(*sys.argv[1:])
