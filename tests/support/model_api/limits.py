"""The headers with which the vendors tell how much of a rate limit is left."""

from datetime import UTC, datetime, timedelta

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from tests.support.model_api.conversation import WireName


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Limits:
    """Requests and tokens per minute, what is left of them, and in how many seconds they are whole again."""

    requests: int = 50
    requests_left: int = 49
    tokens: int = 40_000
    tokens_left: int = 39_000
    reset: float = 60.0

    def headers(self, wire: WireName) -> dict[str, str]:
        if wire == "gemini":
            return {}  # Google sends none
        return self._anthropic() if wire == "anthropic" else self._openai()

    def _anthropic(self) -> dict[str, str]:
        at = (datetime.now(UTC) + timedelta(seconds=self.reset)).strftime("%Y-%m-%dT%H:%M:%SZ")
        prefix = "anthropic-ratelimit"
        return {
            f"{prefix}-requests-limit": str(self.requests),
            f"{prefix}-requests-remaining": str(self.requests_left),
            f"{prefix}-requests-reset": at,
            f"{prefix}-tokens-limit": str(self.tokens),
            f"{prefix}-tokens-remaining": str(self.tokens_left),
            f"{prefix}-tokens-reset": at,
        }

    def _openai(self) -> dict[str, str]:
        wait = duration(self.reset)
        return {
            "x-ratelimit-limit-requests": str(self.requests),
            "x-ratelimit-remaining-requests": str(self.requests_left),
            "x-ratelimit-reset-requests": wait,
            "x-ratelimit-limit-tokens": str(self.tokens),
            "x-ratelimit-remaining-tokens": str(self.tokens_left),
            "x-ratelimit-reset-tokens": wait,
        }


def duration(seconds: float) -> str:
    """As OpenAI writes it: 6m0s, 1.5s, 20ms, 1h0m0s."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{rest:g}s"
