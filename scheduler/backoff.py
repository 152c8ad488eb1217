"""When a failed attempt may be made again: at once, +5 s, +10 s, +20 s, +40 s, then never."""

import random
from dataclasses import dataclass

# Who asks for more than this (or for an infinity) is not taken at their word.
MAX_WAIT_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Backoff:
    """`base_seconds` is the wait before the second try; it doubles. `max_tries` counts the first one too.

    Jitter (up to a fifth on top) keeps a thousand sessions that failed together from coming back together; it only
    ever adds, so that nothing is tried earlier than promised."""

    base_seconds: float = 5.0
    max_tries: int = 5
    jitter: float = 0.2

    def delay(self, tries: int, retry_after: float | None = None) -> float | None:
        """Seconds to wait after `tries` attempts have failed; None: that was the last.

        What a provider asked for (`retry_after`) is obeyed to the second, without jitter."""
        if tries >= self.max_tries:
            return None
        if retry_after is not None and retry_after < MAX_WAIT_SECONDS:
            return retry_after
        doubled = self.base_seconds * float(2 ** (tries - 1))
        return doubled * (1 + random.uniform(0, self.jitter))  # noqa: S311 - not a secret
