"""Putting a request to those who decide: the approval's row, a card for each of them, and a word where it came from.

A card shows the whole payload, so that what is approved is what was seen. What an agent wrote stands in code marks it
cannot leave; everything around it is ours."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from models.approvers import name_of
from models.base import new_id
from models.cards import put_card, token
from models.consent import find_approval, put_approval
from models.outbox import MessageOut
from models.quoting import fenced_json, named, quoted
from models.sessions import take_numbers
from models.upsert import insert_ignoring
from workers.consent.approvers import Approver
from workers.notices import notice

APPROVE: Final = "approve"
OPTIONS: Final = ({"label": "Approve", "value": APPROVE}, {"label": "Deny", "value": "deny"})
_STYLES: Final = ("good", "bad")


def hash_of(payload: Mapping[str, Any]) -> str:
    """Of what it says: a database may give back 10.0 for 1e1."""
    return hashlib.sha256(json.dumps(_canonical(payload), sort_keys=True).encode()).hexdigest()


def _canonical(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case Mapping():
            return {key: _canonical(item) for key, item in value.items()}
        case list() | tuple():
            return [_canonical(item) for item in value]
        case _:
            return value


def code_of(subject_id: str) -> str:
    """By which people name an approval or a question."""
    return subject_id[-8:]


@dataclass(frozen=True)
class Place:
    channel_type: str
    platform_id: str
    thread_id: str | None = None


@dataclass(frozen=True)
class Request:
    """What is to be approved. `agent`: its folder; `asked_by`: in whose name it acts, as user ids (None: nobody's);
    `here`: where the request came from, for a word on it (`waiting`), and for the card itself if nobody else can be
    reached; without it, it is only listed then."""

    approval_id: str
    session_id: str
    category: str
    summary: str
    risk: Literal["low", "medium", "high"]
    payload: dict[str, Any]
    agent: str
    asked_by: Sequence[str | None] = ()
    turn_id: str | None = None
    here: Place | None = None
    waiting: str | None = None


async def put_request(
    conn: AsyncConnection, request: Request, approvers: Sequence[Approver], seconds: float
) -> list[str]:
    """Write it all down, once; it waits for so many seconds. Returns the messages to ring for. Their numbers are the
    session's, whose row is locked by this."""
    payload_hash = hash_of(request.payload)
    await put_approval(
        conn,
        seconds,
        id=request.approval_id,
        session_id=request.session_id,
        turn_id=request.turn_id,
        category=request.category[:50],
        summary=request.summary,
        risk=request.risk,
        payload=request.payload,
        payload_hash=payload_hash,
    )
    written = await find_approval(conn, request.approval_id)
    assert written is not None
    text = await _text(conn, request, written.expires_at)
    rows: list[tuple[dict[str, Any], str | None, str | None]] = []  # the message, its card, whom it is put to
    if request.here is not None and request.waiting is not None and approvers:
        rows.append((_row(request, request.here, request.waiting), None, None))
    for approver in approvers:
        place = Place(approver.channel_type, approver.platform_id)
        rows.append((_row(request, place, text), new_id(), approver.user_id))
    if request.here is not None and not approvers:
        rows.append((_row(request, request.here, text), new_id(), None))
    return await _store(conn, request, payload_hash, rows)


async def _store(
    conn: AsyncConnection,
    request: Request,
    payload_hash: str,
    rows: Sequence[tuple[dict[str, Any], str | None, str | None]],
) -> list[str]:
    if not rows:
        return []
    deliveries = []
    first = await take_numbers(conn, request.session_id, len(rows)) - len(rows) + 1
    for number, (row, card_id, user_id) in enumerate(rows):
        row |= {"seq": first + number, "idempotency_key": f"{request.approval_id}:approval:{number}"}
        if card_id is not None:
            row["content"] |= {"buttons": _buttons(card_id)}
        if not await insert_ignoring(conn, MessageOut, **row):
            continue
        deliveries.append(str(row["id"]))
        if card_id is not None:
            subject = {"subject_id": request.approval_id, "payload_hash": payload_hash, "user_id": user_id}
            await put_card(conn, card_id, "approval", row, OPTIONS, **subject)
    return deliveries


def _row(request: Request, place: Place, text: str) -> dict[str, Any]:
    return notice(
        session_id=request.session_id,
        seq=0,
        key="",
        channel_type=place.channel_type,
        platform_id=place.platform_id,
        thread_id=place.thread_id,
        text=text,
    )


def _buttons(card_id: str) -> list[dict[str, str]]:
    return [
        {"label": option["label"], "token": token(card_id, number), "style": style}
        for number, (option, style) in enumerate(zip(OPTIONS, _STYLES, strict=True), 1)
    ]


async def _text(conn: AsyncConnection, request: Request, expires_at: datetime) -> str:
    people = [await name_of(conn, user_id) for user_id in request.asked_by if user_id is not None]
    whose = f"Asked by {', '.join(people)}. " if people else ""
    code = code_of(request.approval_id)
    return "\n".join(
        [
            f"**{named(request.agent)} asks for an approval** ({request.risk} risk, {named(request.category)})",
            quoted(request.summary),
            "",
            fenced_json(request.payload),
            "",
            f"{whose}Decide until {expires_at:%Y-%m-%d %H:%M}Z; once, and for exactly this.",
            f"In words: `approve {code}` or `deny {code}`. At a terminal: `longshore approve {code}` (or deny)",
        ]
    )
