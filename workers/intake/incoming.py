"""A message as a producer sends it: the published contract, and the check that it is kept."""

import json
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from adapters.task_limits import MAX_JITTER, MAX_PAUSE_AFTER, MAX_USD, MIN_USD
from models.series import DEFAULT_TERMS, CatchUp, Overlap, Terms
from scheduler.recurrence import check_recurrence, check_timezone
from workers.refusals import RefusedError
from workers.task_terms import changed_terms

MAX_CONTENT_BYTES: Final = 256 * 1024
_PRINTABLE: Final = r"^[^\x00-\x1f]+$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_PRINTABLE)]
ShortName = Annotated[str, StringConstraints(min_length=1, max_length=50, pattern=_PRINTABLE)]
DisplayName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_PRINTABLE)]
_NO_SCRIPT: Final = (
    "a script is no part of a message: it is set at the command line (longshore tasks add --script), or by an agent's "
    "tool, where an admin asks for it or approves it"
)


class IncomingTerms(BaseModel):
    """How a task is run, whichever of its dates is meant."""

    model_config = ConfigDict(extra="forbid")

    catch_up: CatchUp = Field(
        DEFAULT_TERMS.catch_up,
        description="dates that came while nobody could run it: none, one run for all of them, or each",
    )
    overlap: Overlap = Field(
        DEFAULT_TERMS.overlap, description="dates that come while it runs: passed over, or run afterwards"
    )
    jitter_seconds: int = Field(0, ge=0, le=MAX_JITTER, description="each run begins up to so much later")
    pause_after: int = Field(
        DEFAULT_TERMS.pause_after,
        ge=0,
        le=MAX_PAUSE_AFTER,
        description="so many failures in a row pause it; 0: none do",
    )
    daily_usd: float | None = Field(None, ge=MIN_USD, le=MAX_USD, description="what its runs may cost in a day")
    provider: ShortName | None = Field(None, description="who runs it, instead of the agent's own provider")
    model: DisplayName | None = Field(None, description="with which model, instead of the agent's own")

    @model_validator(mode="before")
    @classmethod
    def _no_script(cls, given: Any) -> Any:
        if isinstance(given, dict) and "script" in given:
            raise ValueError(_NO_SCRIPT)
        return given


# What `_complete` asks for, as far as a schema can say it.
_RULES: Final[dict[str, Any]] = {
    "allOf": [
        {
            "oneOf": [
                {
                    "description": "text",
                    "required": ["text"],
                    "properties": {
                        "text": {"type": "string", "pattern": r"\S"},
                        "content": {"type": "null"},
                        "kind": {"enum": ["chat", "chat-sdk", "task"]},
                    },
                },
                {
                    "description": "or content",
                    "required": ["content"],
                    "properties": {
                        "text": {"type": "null"},
                        "content": {
                            "type": "object",
                            "properties": {"attachments": {"type": "array", "items": {"type": "object"}}},
                        },
                    },
                },
            ]
        },
        {
            "anyOf": [
                {"description": "a task", "required": ["kind"], "properties": {"kind": {"const": "task"}}},
                {
                    "description": "or neither of these",
                    "properties": {"recurrence": {"type": "null"}, "terms": {"type": "null"}},
                },
            ]
        },
    ]
}


class Incoming(BaseModel):
    """A message as a producer sends it. Its JSON Schema is the published contract."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_RULES)

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
    process_after: datetime | None = Field(
        None, description="not before; with a UTC offset. With a recurrence: at most a day ago"
    )
    recurrence: str | None = Field(
        None,
        max_length=100,
        description="cron, or @daily and the like; needs kind task. Without process_after: first at its next date",
    )
    timezone: str = Field("UTC", max_length=50)
    terms: IncomingTerms | None = Field(None, description="for kind task: how it is run, as far as not as usual")
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
            check_recurrence(self.recurrence, self.timezone)
        if self.kind == "task":
            # What a script says is shown to the agent as such: only scripts may say it.
            if not {"script", "script_output"}.isdisjoint(self.content or {}):
                raise ValueError(f"content: {_NO_SCRIPT}")
        elif self.recurrence is not None:
            raise ValueError("recurrence needs kind task")
        elif self.terms is not None:
            raise ValueError("terms need kind task")
        return self

    @property
    def words(self) -> str:
        """What is said, for rules to look at."""
        return self.text if self.text is not None else str((self.content or {}).get("text") or "")

    def run_on(self, script: str | None = None) -> Terms:
        """The terms that it asks for; `script` is for those who may set one."""
        given = self.terms.model_dump() if self.terms is not None else {}
        return changed_terms(DEFAULT_TERMS, **given, script=script)

    def stored_content(self) -> dict[str, Any]:
        content = dict(self.content) if self.content is not None else {_text_field(self.kind): self.text}
        content.pop("raw", None)  # what makes a text a command to a program is for the reception to say
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
