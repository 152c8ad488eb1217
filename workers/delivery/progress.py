"""How far a message has come that is not delivered yet: what its row's receipt says until then."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Progress:
    """`parts`: what the platform calls those that arrived. `doubt_since`: when the next one was first tried, by the
    database's clock, if that may have arrived as well. `begun`: the next one is being handed over; written down first
    where nobody could find that out afterwards."""

    parts: tuple[str | None, ...] = ()
    doubt_since: datetime | None = None
    begun: bool = False

    @classmethod
    def of(cls, receipt: dict[str, Any] | None) -> "Progress":
        stored = receipt or {}
        since = stored.get("doubt_since")
        parts = tuple(stored.get("parts", ()))
        return cls(parts, datetime.fromisoformat(since) if since else None, bool(stored.get("begun")))

    def receipt(self) -> dict[str, Any] | None:
        stored: dict[str, Any] = {"parts": list(self.parts)} if self.parts else {}
        if self.doubt_since is not None:
            stored["doubt_since"] = self.doubt_since.isoformat()
        if self.begun:
            stored["begun"] = True
        return stored or None

    def words(self) -> str:
        """For whoever is told that the rest was given up."""
        return f" ({len(self.parts)} of its parts arrived)" if self.parts else ""

    def doubting(self, since: datetime) -> "Progress":
        return replace(self, doubt_since=self.doubt_since or since)

    def beginning(self) -> "Progress":
        return replace(self, begun=True)

    def over(self) -> "Progress":
        """Nothing is being handed over any more."""
        return replace(self, begun=False)

    def beyond(self, platform_message_id: str | None) -> "Progress":
        """One more has arrived."""
        return Progress((*self.parts, platform_message_id))
