"""Accepting a message: check, dedupe, route, store, commit; the caller rings after that.

The same function behind every door (Celery producers, the command line, HTTP). It succeeds only after the commit, and
refuses with `RefusedError`, whose text is for whoever sent the message."""

import json
import uuid
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import ErrorClass
from adapters.registry import Registry
from models.base import AnyRow, new_id
from models.consent import answer_question, chosen_value, open_question
from models.database import Database
from models.fleet import reject
from models.groups import agent_folders, ensure_messaging_group, find_agent_group, wirings_of
from models.inbox import MessageIn
from models.people import remember_user
from models.sessions import Admission, admit, end_rest, ensure_session
from models.upsert import insert_ignoring
from scheduler.recurrence import check_timezone, next_after
from workers import routing
from workers.bells import Bells
from workers.settings import Settings

log = structlog.get_logger()

MAX_CONTENT_BYTES: Final = 256 * 1024
_PRINTABLE: Final = r"^[^\x00-\x1f]+$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_PRINTABLE)]
ShortName = Annotated[str, StringConstraints(min_length=1, max_length=50, pattern=_PRINTABLE)]
DisplayName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_PRINTABLE)]


class RefusedError(Exception):
    """The message cannot be accepted as it is; the text says what is wrong and what to do."""


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

    def stored_content(self) -> dict[str, Any]:
        content = dict(self.content) if self.content is not None else {_text_field(self.kind): self.text}
        if self.kind in ("chat", "chat-sdk"):
            content.setdefault("sender", self.sender_name or self.sender_id or "someone")
        return content


class Accepted(BaseModel):
    """What a producer learns: the id to follow; and what the door it came through has to ring for."""

    message_id: str
    session_id: str
    seq: int
    duplicate: bool = False
    # The turn whose question this message answered; it was no message of its own then.
    answered_turn: str | None = None
    wake_provider: str | None = None
    interrupts: bool = False

    def ring(self, bells: Bells) -> None:
        """After the commit: wake whoever must be woken."""
        if self.wake_provider is not None:
            bells.wake(self.session_id, self.wake_provider)
        if self.interrupts:
            bells.nudge(self.session_id)

    def public(self) -> dict[str, Any]:
        """What its sender is told."""
        return self.model_dump(exclude={"wake_provider", "interrupts"}, exclude_none=True)


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


async def accept(
    db: Database, registry: Registry, settings: Settings, incoming: Incoming, *, row_id: str | None = None
) -> Accepted:
    """Store the message. `row_id` (a Celery task's id) becomes the row's id, so that its sender can follow it and a
    second delivery of the same task finds it."""
    row_id = row_id or new_id()
    accepted = await db.transact(lambda conn: _store(conn, registry, settings, incoming, row_id))
    if accepted is None:
        accepted = await db.read(lambda conn: _existing(conn, incoming, row_id))
        log.info("message.duplicate", message=accepted.message_id, session=accepted.session_id)
    return accepted


async def _store(
    conn: AsyncConnection, registry: Registry, settings: Settings, incoming: Incoming, row_id: str
) -> Accepted | None:
    """None: it is already there (and nothing was written)."""
    if incoming.channel_type not in registry.channels.names:
        installed = ", ".join(registry.channels.names)
        raise RefusedError(f"channel_type: there is no channel {incoming.channel_type!r} here; installed: {installed}")
    route, group_provider = await _route(conn, incoming)
    follow_up = incoming.follow_up or route.follow_up
    # One with a date needs no wake now, and must not stand in the way of another's.
    admission = await _admit(conn, route, settings, wakes=route.wakes and incoming.process_after is None)
    provider = admission.provider or group_provider or settings.default_provider
    known = provider in registry.providers.names
    if follow_up == "reject" and admission.running:
        raise RefusedError("the agent is at work, and its wiring refuses messages meanwhile: send it again later")
    question = await _answer(conn, incoming, admission) if route.wakes else None
    values: dict[str, Any] = {
        "id": row_id,
        "session_id": admission.session_id,
        "agent_group_id": route.agent_group_id,
        "seq": admission.seq,
        "kind": incoming.kind,
        "wakes": route.wakes,
        "follow_up": "enqueue" if follow_up == "reject" else follow_up,
        "channel_type": incoming.channel_type,
        "platform_id": incoming.platform_id,
        "thread_id": incoming.thread_id,
        "platform_message_id": incoming.message_id,
        "sender_id": incoming.sender_id,
        "content": incoming.stored_content(),
    }
    if incoming.process_after is not None:
        values["process_after"] = incoming.process_after
    if incoming.recurrence is not None:
        values |= {"recurrence": incoming.recurrence, "timezone": incoming.timezone, "series_id": row_id}
    if question is not None:
        values |= {"status": "completed", "wakes": False}
    elif not known:
        reason = registry.providers.missing(provider)
        values |= {"status": "failed", "error_class": ErrorClass.UNKNOWN_PROVIDER, "error": reason}
    if not await insert_ignoring(conn, MessageIn, **values):
        await conn.rollback()  # gives the number back
        return None
    if incoming.sender_id is not None:
        await remember_user(
            conn, f"{incoming.channel_type}:{incoming.sender_id}"[:255], incoming.channel_type, incoming.sender_name
        )
    return Accepted(
        message_id=row_id,
        session_id=admission.session_id,
        seq=admission.seq,
        answered_turn=question.turn_id if question is not None else None,
        wake_provider=provider if known and (admission.ring or question is not None) else None,
        interrupts=route.wakes and question is None and admission.running and follow_up == "interrupt",
    )


async def _answer(conn: AsyncConnection, incoming: Incoming, admission: Admission) -> AnyRow | None:
    """A chat message to a session whose turn has asked a person is the answer; anything else waits behind it. Returns
    the question, if it was one."""
    busy = admission.resting or admission.running  # it may have asked and not be parked yet
    if not busy or incoming.kind not in ("chat", "chat-sdk") or incoming.process_after is not None:
        return None
    question = await open_question(conn, admission.session_id)
    if question is None:
        return None
    text = chosen_value(question.question, incoming.text or str((incoming.content or {}).get("text") or ""))
    if not await answer_question(conn, question.id, text, incoming.sender_id):
        return None
    await end_rest(conn, admission.session_id)
    return question


async def _route(conn: AsyncConnection, incoming: Incoming) -> tuple[routing.Route, str | None]:
    """Where it goes, and the agent group's own provider."""
    if incoming.agent_group is not None:
        group = await find_agent_group(conn, incoming.agent_group)
        if group is None:
            known = ", ".join(await agent_folders(conn)) or "none yet (make one: longshore groups add NAME)"
            raise RefusedError(f"there is no agent group {incoming.agent_group!r}; there are: {known}")
        place = await ensure_messaging_group(conn, incoming.channel_type, incoming.platform_id)
        return routing.Route(group.id, place, incoming.thread_id or "", True, "addressed"), group.provider
    wirings = await wirings_of(conn, incoming.channel_type, incoming.platform_id)
    if not wirings:
        raise RefusedError(
            f"no agent is wired to {incoming.channel_type} {incoming.platform_id!r}: "
            "name an agent_group, or wire one (longshore wire)"
        )
    content = incoming.content or {}
    heard = routing.Heard(
        text=incoming.text or str(content.get("text", "")),
        sender_id=incoming.sender_id,
        thread_id=incoming.thread_id,
        is_mention=incoming.is_mention,
    )
    route = routing.choose(wirings, heard)
    if route is None:
        raise RefusedError(f"no agent in {incoming.channel_type} {incoming.platform_id!r} listens to such a message")
    provider = next(row.provider for row in wirings if row.agent_group_id == route.agent_group_id)
    return route, provider


async def _admit(conn: AsyncConnection, route: routing.Route, settings: Settings, *, wakes: bool) -> Admission:
    key = (route.agent_group_id, route.messaging_group_id, route.thread_id)
    admission = await admit(conn, *key, wakes=wakes, repeat_seconds=settings.repeat_seconds)
    if admission is None:
        await ensure_session(conn, *key)
        admission = await admit(conn, *key, wakes=wakes, repeat_seconds=settings.repeat_seconds)
    assert admission is not None, "a session that was just made is there"
    return admission


async def _existing(conn: AsyncConnection, incoming: Incoming, row_id: str) -> Accepted:
    same = MessageIn.id == row_id
    if incoming.message_id is not None:
        route, _ = await _route(conn, incoming)
        same |= and_(
            MessageIn.agent_group_id == route.agent_group_id,
            MessageIn.channel_type == incoming.channel_type,
            MessageIn.platform_id == incoming.platform_id,
            MessageIn.platform_message_id == incoming.message_id,
        )
    row: AnyRow = (await conn.execute(select(MessageIn.id, MessageIn.session_id, MessageIn.seq).where(same))).first()  # type: ignore[assignment]
    return Accepted(message_id=row.id, session_id=row.session_id, seq=row.seq, duplicate=True)


async def record_rejection(db: Database, task_id: str, source: str, reason: str, payload: dict[str, Any]) -> None:
    """Keep what was refused where people can see it (`longshore dead --rejected`)."""
    try:
        kept = json.dumps(payload, default=repr)
    except (ValueError, RecursionError):
        kept = repr(type(payload))
    stored = json.loads(kept) if len(kept) <= MAX_CONTENT_BYTES else {"cut": kept[:2000]}
    stored = stored if isinstance(stored, dict) else {"unreadable": stored}
    await db.transact(lambda conn: reject(conn, row_id_of(task_id), source, reason, stored))


def row_id_of(task_id: str) -> str:
    """A Celery task's id as a row's. Other clients make ids of any length; the same one gives the same row."""
    return task_id if len(task_id) <= 36 and task_id.isprintable() else str(uuid.uuid5(uuid.NAMESPACE_OID, task_id))


def _text_field(kind: str) -> str:
    return "prompt" if kind == "task" else "text"


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
