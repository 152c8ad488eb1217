"""Beat's static table: it rings the sweep, and nothing else has a date of its own in Celery.

Two beats ring twice, which does no harm; a missing beat delays only what needs the sweep."""

import os
import socket
from typing import Any


def beat_schedule(sweep_seconds: float) -> dict[str, dict[str, Any]]:
    return {
        "sweep": {
            "task": "upkeep.sweep",
            "schedule": sweep_seconds,
            "kwargs": {"rung_by": f"beat@{socket.gethostname()}:{os.getpid()}"},
            # A sweep nobody took in time is pointless: the next one sees the same.
            "options": {"queue": "upkeep", "expires": max(10.0, 5 * sweep_seconds)},
        }
    }
