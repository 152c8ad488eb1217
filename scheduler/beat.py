"""Beat's static table: it rings for upkeep, and nothing else has a date of its own in Celery.

Two beats ring twice, which does no harm; a missing beat delays only what needs the sweep."""

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

# Beat's clock says when a ring expires, and the worker's clock whether it has: a worker that is ahead by more than
# this would throw every ring away, and nothing would ever be swept. What waited for long is cheap all the same, since
# whoever takes it sees that another has just begun; the limit is only for a broker that nobody reads for days.
EXPIRES_SECONDS: Final = 3600.0
PRUNE_SECONDS: Final = 600.0

_STARTED: Final = datetime.now(UTC), time.monotonic()


def beat_schedule(sweep_seconds: float) -> dict[str, dict[str, Any]]:
    """Each entry's `schedule` is the number of seconds between two rings."""
    options = {"queue": "upkeep", "expires": EXPIRES_SECONDS}
    return {
        "sweep": {
            "task": "upkeep.sweep",
            "schedule": sweep_seconds,
            "kwargs": {"rung_by": f"beat@{socket.gethostname()}:{os.getpid()}"},
            "options": options,
        },
        # Begun once an hour, whoever rings; rung more often, since beat counts anew with every start.
        "prune": {"task": "upkeep.prune", "schedule": PRUNE_SECONDS, "options": options},
    }


def steady_now() -> datetime:
    """A clock for beat that goes on evenly: by the machine's own, beat would be silent for an hour when somebody sets
    it back by one."""
    began, mark = _STARTED
    return began + timedelta(seconds=time.monotonic() - mark)
