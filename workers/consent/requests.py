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

from models.approvers import name_and_id
from models.base import AnyRow, new_id
from models.cards import put_card, token
from models.consent import find_approval, put_approval
from models.outbox import MessageOut, notice
from models.quoting import fenced, fenced_json, named, quoted
from models.sessions import take_numbers
from models.upsert import insert_ignoring
from workers.consent.approvers import Approver

APPROVE: Final = "approve"
# What the place a request came from is told, if the card cannot be put there either.
UNASKED: Final = (
    "I wait for an approval before I go on, and nobody who decides about it can be reached. "
    "Whoever runs me can decide at a terminal: `longshore approvals`"
)
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
    """`is_public`: anybody may read there, so no card is put there."""

    channel_type: str
    platform_id: str
    thread_id: str | None = None
    is_public: bool = False


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


@dataclass(frozen=True)
class Letter:
    """A message about an approval: a card with its buttons, or words without. `user_id`: whom a card is put to. `key`:
    the same one is written once."""

    place: Place
    key: str
    content: dict[str, Any]
    is_card: bool = False
    user_id: str | None = None


async def put_request(
    conn: AsyncConnection, request: Request, approvers: Sequence[Approver], seconds: float
) -> list[str]:
    """Write it all down, once; it waits for so many seconds. Returns the messages to ring for. Their numbers are the
    session's, whose row is locked by this."""
    is_new = await put_approval(
        conn,
        seconds,
        id=request.approval_id,
        session_id=request.session_id,
        turn_id=request.turn_id,
        category=request.category[:50],
        summary=request.summary,
        risk=request.risk,
        payload=request.payload,
        payload_hash=hash_of(request.payload),
    )
    if not is_new:
        return []
    written = await find_approval(conn, request.approval_id)
    assert written is not None
    content = {"text": await text_of(conn, request, written.expires_at)}
    letters = [
        Letter(Place(one.channel_type, one.platform_id), _key(request, number), content, True, one.user_id)
        for number, one in enumerate(approvers, 1)
    ]
    if request.here is not None:
        first = place_key(request.approval_id)
        if not approvers and not request.here.is_public:
            letters = [Letter(request.here, first, content, True)]
        elif (words := request.waiting if approvers else UNASKED) is not None:
            letters.insert(0, Letter(request.here, first, {"text": words}))
    return await post(conn, written, letters)


def place_key(approval_id: str) -> str:
    """Of what is said about it in the place it came from."""
    return f"{approval_id}:approval:0"


def _key(request: Request, number: int) -> str:
    return f"{request.approval_id}:approval:{number}"


async def post(conn: AsyncConnection, approval: AnyRow, letters: Sequence[Letter]) -> list[str]:
    """Write them down, in the order of their numbers. Returns what to ring for."""
    if not letters:
        return []
    deliveries = []
    seq = await take_numbers(conn, approval.session_id, len(letters)) - len(letters)
    for letter in letters:
        seq += 1
        place = letter.place
        card_id = new_id()
        content = letter.content
        if letter.is_card:
            content = content | {"buttons": _buttons(card_id), "answer_code": code_of(approval.id)}
        row = notice(
            session_id=approval.session_id,
            seq=seq,
            key=letter.key,
            channel_type=place.channel_type,
            platform_id=place.platform_id,
            thread_id=place.thread_id,
            content=content,
        )
        if not await insert_ignoring(conn, MessageOut, **row):
            continue
        deliveries.append(str(row["id"]))
        if letter.is_card:
            subject = {"subject_id": approval.id, "payload_hash": approval.payload_hash, "user_id": letter.user_id}
            await put_card(conn, card_id, "approval", row, OPTIONS, **subject)
    return deliveries


def _buttons(card_id: str) -> list[dict[str, str]]:
    return [
        {"label": option["label"], "token": token(card_id, number), "style": style}
        for number, (option, style) in enumerate(zip(OPTIONS, _STYLES, strict=True), 1)
    ]


async def text_of(conn: AsyncConnection, request: Request, expires_at: datetime) -> str:
    people = [await name_and_id(conn, user_id) for user_id in request.asked_by if user_id is not None]
    whose = f"Asked by {', '.join(people)}. " if people else ""
    code = code_of(request.approval_id)
    return "\n".join(
        [
            f"**{named(request.agent)} asks for an approval** ({request.risk} risk, {named(request.category)})",
            quoted(request.summary),
            "",
            shown(request.payload),
            "",
            f"{whose}Decide until {expires_at:%Y-%m-%d %H:%M}Z; once, and for exactly this.",
            f"In words: `approve {code}` or `deny {code}`. At a terminal: `longshore approve {code}` (or deny)",
        ]
    )


def shown(payload: Mapping[str, Any]) -> str:
    """The whole of it, for people to read; a program as it is written, since in JSON it would be one long line."""
    arguments = payload.get("arguments")
    script = arguments.get("script") if isinstance(arguments, Mapping) else None
    if not isinstance(script, str) or "\n" not in script:
        return fenced_json(payload)
    rest = {name: value for name, value in payload["arguments"].items() if name != "script"}
    return f"{fenced_json({**payload, 'arguments': rest})}\n\nThe script, line by line:\n{fenced(script)}"
