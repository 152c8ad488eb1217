"""How far a message has come that is not delivered yet: what its row's receipt says until then."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Progress:
    """`parts`: what the platform calls those that arrived. `doubt_since`: when the next one was first tried, by the
    database's clock, if that may have arrived as well."""

    parts: tuple[str | None, ...] = ()
    doubt_since: datetime | None = None

    @classmethod
    def of(cls, receipt: dict[str, Any] | None) -> "Progress":
        stored = receipt or {}
        since = stored.get("doubt_since")
        return cls(tuple(stored.get("parts", ())), datetime.fromisoformat(since) if since else None)

    def receipt(self) -> dict[str, Any] | None:
        stored: dict[str, Any] = {"parts": list(self.parts)} if self.parts else {}
        if self.doubt_since is not None:
            stored["doubt_since"] = self.doubt_since.isoformat()
        return stored or None

    def words(self) -> str:
        """For whoever is told that the rest was given up."""
        return f" ({len(self.parts)} of its parts arrived)" if self.parts else ""

    def doubting(self, since: datetime) -> "Progress":
        return replace(self, doubt_since=self.doubt_since or since)

    def beyond(self, platform_message_id: str | None) -> "Progress":
        """One more has arrived."""
        return Progress((*self.parts, platform_message_id))
