"""Where a turn's answers go: back to where its last message came from, decided by the fleet and not by the agent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models.base import new_id


@dataclass(frozen=True)
class ReplyTo:
    session_id: str
    message_id: str
    kind: str
    channel_type: str
    platform_id: str
    thread_id: str | None
    sender_id: str | None
    subject: str | None = None  # of a mail: its answer has the same

    @classmethod
    def to_last_of(cls, session_id: str, messages: Sequence[Any]) -> "ReplyTo":
        last = next((m for m in reversed(messages) if m.kind != "system"), messages[-1])
        # A task or webhook is answered in words, as a chat message.
        kind = last.kind if last.kind in ("chat", "chat-sdk") else "chat"
        subject = last.content.get("subject")
        place = (last.channel_type, last.platform_id, last.thread_id)
        return cls(session_id, last.id, kind, *place, last.sender_id, subject if isinstance(subject, str) else None)

    def outbound(self, *, content: dict[str, Any], turn_id: str, key: str, kind: str | None = None) -> dict[str, Any]:
        """A row for messages_out, without its number. One key for all attempts to write or send it."""
        return {
            "id": new_id(),
            "session_id": self.session_id,
            "turn_id": turn_id,
            "in_reply_to": self.message_id,
            "kind": kind or self.kind,
            "idempotency_key": key,
            "channel_type": self.channel_type,
            "platform_id": self.platform_id,
            "thread_id": self.thread_id,
            "content": content if self.subject is None else {"subject": self.subject} | content,
        }
