"""A message as a producer sends it: the published contract, and the check that it is kept."""

import json
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from scheduler.recurrence import check_timezone, next_after
from workers.refusals import RefusedError

MAX_CONTENT_BYTES: Final = 256 * 1024
_PRINTABLE: Final = r"^[^\x00-\x1f]+$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_PRINTABLE)]
ShortName = Annotated[str, StringConstraints(min_length=1, max_length=50, pattern=_PRINTABLE)]
DisplayName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_PRINTABLE)]


class Incoming(BaseModel):
    """A message as a producer sends it. Its JSON Schema is the published contract."""

    model_config = ConfigDict(extra="forbid")

    agent_group: Name | None = Field(None, description="the agent, by folder name or id; else the wirings decide")
    channel_type: ShortName = Field("local", description="the platform the answer goes to")
    platform_id: Name = Field("inbox", description="the place on that platform (chat, channel, endpoint)")
    thread_id: Name | None = None
    message_id: Name | None = Field(None, description="the platform's id or your own key: the same one is taken once")
    kind: Literal["chat", "chat-sdk", "task", "webhook"] = "chat"
    text: str | None = Field(None, description="for kind chat and task: what is said or to be done")
    content: dict[str, Any] | None = Field(None, description="the whole content, instead of text")
    sender_id: Name | None = None
    sender_name: DisplayName | None = None
    is_mention: bool = False
    process_after: datetime | None = Field(None, description="not before; with a UTC offset")
    recurrence: str | None = Field(None, max_length=100, description="cron; needs kind task and process_after")
    timezone: str = Field("UTC", max_length=50)
    follow_up: Literal["enqueue", "interrupt", "reject", "separate"] | None = Field(
        None, description="if the agent is at work: join, interrupt, be refused, or wait; else the wiring decides"
    )

    @model_validator(mode="after")
    def _complete(self) -> "Incoming":
        if (self.text is None) == (self.content is None):
            raise ValueError("give either text or content")
        if self.text is not None and not self.text.strip():
            raise ValueError("text is empty")
        if self.text is not None and self.kind == "webhook":
            raise ValueError("a webhook message has content (source, event, payload), not text")
        if self.process_after is not None and self.process_after.tzinfo is None:
            raise ValueError("process_after needs a UTC offset, for example 2026-01-31T09:00:00+01:00")
        if self.process_after is not None and not 1970 < self.process_after.year < 3000:
            raise ValueError("process_after must lie between the years 1971 and 2999")
        attachments = (self.content or {}).get("attachments", [])
        if not isinstance(attachments, list) or not all(isinstance(one, dict) for one in attachments):
            raise ValueError(
                "content.attachments must be a list of objects, each with a name, and url or data (base64)"
            )
        check_timezone(self.timezone)
        if self.recurrence is not None:
            if self.kind != "task" or self.process_after is None:
                raise ValueError("recurrence needs kind task and process_after")
            next_after(self.recurrence, self.process_after, self.timezone)
        return self

    @property
    def words(self) -> str:
        """What is said, for rules to look at."""
        return self.text if self.text is not None else str((self.content or {}).get("text") or "")

    def stored_content(self) -> dict[str, Any]:
        content = dict(self.content) if self.content is not None else {_text_field(self.kind): self.text}
        if self.kind in ("chat", "chat-sdk"):
            content.setdefault("sender", self.sender_name or self.sender_id or "someone")
        return content


def parse_incoming(kwargs: dict[str, Any]) -> Incoming:
    try:
        incoming = Incoming.model_validate(kwargs)
    except ValidationError as error:
        complaints = [f"{'.'.join(map(str, e['loc'])) or 'message'}: {_plain(e['msg'])}" for e in error.errors()[:5]]
        raise RefusedError("; ".join(complaints)) from None
    try:
        size = len(
            json.dumps(incoming.stored_content(), allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")
        )
    except (ValueError, TypeError):
        raise RefusedError("content: JSON has no NaN, no infinity and no values that refer to themselves") from None
    except RecursionError:
        raise RefusedError("content: it is nested too deeply") from None
    if size > MAX_CONTENT_BYTES:
        raise RefusedError(
            f"the content has {size} bytes; at most {MAX_CONTENT_BYTES} are taken: send a reference instead"
        )
    return incoming


def _text_field(kind: str) -> str:
    return "prompt" if kind == "task" else "text"


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
