"""Limits for the fields of a scheduled task, the same for agents, operators and programs."""

from typing import Final

MAX_SCRIPT: Final = 20_000  # characters
MAX_JITTER: Final = 86_400  # seconds
MAX_PAUSE_AFTER: Final = 1_000  # failures in a row
MIN_USD: Final = 0.01  # a day
MAX_USD: Final = 1_000_000
