"""`/v1/messages`: handing in messages for agents, and what came of them.

The same message as by Celery, checked by the same rules. It is stored before it is answered, and rung for after that;
what is refused is told to whoever sent it, and kept nowhere else."""

import json
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, HTTPException, Request, Response
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from adapters.errors import AdapterError
from gateway.http.api.handing_in import HOME, Known, Producer, own_message_id
from gateway.http.belongings import message_of
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, HouseDep, NewsDep, TrustDep, WaitsDep
from gateway.http.problems import documented
from gateway.http.trust import Trust
from gateway.http.waiting import asked_to_wait, wait_for_end
from models.base import AnyRow
from models.fates import Fate
from models.groups import find_agent_group
from workers.access import Act
from workers.house import House
from workers.intake.incoming import Incoming, parse_incoming
from workers.intake.ingest import Accepted, accept
from workers.intake.switchboard import Found
from workers.operations.keys import row_id_for, taken_once
from workers.operations.tasks import check_provider_options
from workers.refusals import RefusedError

MessageId = Annotated[str, InPath(max_length=36, pattern=r"^[^\x00-\x1f\x7f]+$", description="a message's id")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=150,
        pattern=r"^[\x20-\x7e]+$",
        description="your own name for this request: sent again with the same one, it is taken once",
    ),
]


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Whole by itself: a route that reads its body itself has nowhere else to put what its schema refers to."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]] | {k: v for k, v in schema.items() if k != "$ref"}
    return {name: _inlined(value, definitions) for name, value in schema.items() if name != "$defs"}


_PUBLISHED: Final = Incoming.model_json_schema()
_SCHEMA: Final = _inlined(_PUBLISHED, _PUBLISHED["$defs"])
_BODY: Final = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}


class AcceptedView(BaseModel):
    """It is stored. Ask `GET /v1/messages/{id}` what came of it."""

    id: str
    session: str
    seq: int = Field(description="its number in the session")
    duplicate: bool = Field(description="it was there before, and nothing was stored now")
    answered_turn: str | None = Field(description="the turn whose question it answered, instead of beginning one")


class Answer(BaseModel):
    id: str
    seq: int
    kind: str
    status: str
    text: str
    created_at: datetime


class MessageState(BaseModel):
    """What came of a message."""

    id: str
    session: str
    seq: int
    agent: str
    kind: str
    status: Literal["waiting", "working", "parked", "paused", "completed", "failed", "cancelled", "discarded"] = Field(
        description="`waiting` for its agent; `working`; `parked`: its agent has asked a person; `paused`: it waits to "
        "be let in, or its task was paused; `completed`; `failed`: a dead letter; `cancelled`; `discarded`"
    )
    turn: str | None
    tries: int
    answers: list[Answer] = Field(description="what was said to the place it came from")
    error_class: str | None
    error: str | None
    created_at: datetime
    process_after: datetime = Field(description="it is not begun before")


router = APIRouter(tags=["messages"])


@router.post(
    "/messages", status_code=202, response_model=AcceptedView, responses=documented(404, 409), openapi_extra=_BODY
)
async def send_message(
    house: HouseDep,
    door: DoorDep,
    trust: TrustDep,
    request: Request,
    caller: Annotated[Caller, needs("send", often=True)],
    key: Key = None,
) -> Response:
    """Hand in a message for an agent you are an admin of; without `agent_group` the wirings decide, which is for
    owners and global admins. 202: it is stored. The same `Idempotency-Key` or `message_id` is taken once.
    A task (`kind`) needs the scope `operate` as well.
    409: the key was used for something else, or the agent is at work and its wiring refuses messages meanwhile."""
    incoming = await _read(request, key)
    if incoming.kind == "task":
        caller.check("operate")
    given = incoming.message_id if incoming.channel_type != HOME else None
    if given is not None and not (await door.reach(caller)).everything:
        incoming = incoming.model_copy(update={"message_id": own_message_id(caller.user_id, given)})
    row_id = row_id_for("message", caller.user_id, key) if key is not None else None
    accepted = await taken_once(house, row_id, incoming, lambda: _accept(house, trust, caller, incoming, row_id))
    accepted.ring(house.bells)
    return accepted_answer(accepted)


@router.get("/messages/{message_id}", responses=documented(404))
async def show_message(
    house: HouseDep,
    news: NewsDep,
    waits: WaitsDep,
    message_id: MessageId,
    caller: Annotated[Caller, needs("send")],
    response: Response,
    prefer: Annotated[
        str | None, Header(max_length=200, description="`wait=30`: answer when its turn has ended, or after 30 s")
    ] = None,
) -> MessageState:
    """What came of a message: how it stands, and what was answered."""
    row = await house.db.read(lambda conn: message_of(conn, caller.user_id, message_id, Act.PRODUCE))
    with waits.room_for(caller.user_id, asked_to_wait(prefer)) as seconds:
        fate = await wait_for_end(house.db, news, row.session_id, row.id, seconds)
    if seconds:
        response.headers["Preference-Applied"] = f"wait={seconds}"
        row = await house.db.read(lambda conn: message_of(conn, caller.user_id, message_id, Act.PRODUCE))
    return _state(row, fate)


def accepted_answer(accepted: Accepted) -> Response:
    return JSONResponse(accepted.public(), 202, {"Location": f"/v1/messages/{quote(accepted.message_id, safe='')}"})


async def _read(request: Request, key: str | None) -> Incoming:
    """By the door's own checks, so that their texts are the same at every door."""
    try:
        given = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise HTTPException(422, "the body is not JSON: send an object with the message's fields") from None
    if not isinstance(given, dict):
        raise HTTPException(422, "the body is no JSON object: send one with the message's fields")
    if key is not None and given.get("message_id") is not None:
        raise HTTPException(422, "give either an Idempotency-Key or a message_id, not both")
    try:
        return parse_incoming(given)
    except RefusedError as error:
        raise HTTPException(422, str(error)) from None


async def _accept(
    house: House, trust: Trust[Known], caller: Caller, incoming: Incoming, row_id: str | None
) -> Accepted:
    producer = Producer(caller.user_id, trust)

    async def find(conn: AsyncConnection, wanted: Incoming) -> Found:
        found = await producer.find(conn, wanted)
        if wanted.terms is not None and wanted.terms.provider is not None:
            assert found.route is not None
            group = await find_agent_group(conn, found.route.agent_group_id)
            assert group is not None
            check_provider_options(house.registry, group, wanted.terms.provider)
        return found

    try:
        accepted = await accept(
            house.db,
            house.registry,
            house.settings,
            incoming,
            row_id=row_id,
            may_decide=caller.may_decide,
            find=find,
            besides=producer.besides(incoming),
        )
    except AdapterError as error:
        raise HTTPException(422, f"terms.provider: {error}") from None
    except RefusedError as error:
        raise HTTPException(409 if error.kind == "busy" else 422, str(error)) from None
    if not accepted.duplicate:
        producer.remember()
    return accepted


def _state(row: AnyRow, fate: Fate) -> MessageState:
    facts: dict[str, Any] = {name: getattr(row, name) for name in ("id", "seq", "kind", "tries", "created_at")}
    facts |= {name: getattr(row, name) for name in ("error_class", "error", "process_after")}
    answers = [answer_view(said) for said in fate.said if "operation" not in said.content]
    return MessageState(
        session=row.session_id,
        agent=row.folder,
        status=_status(row.status, fate.status),
        turn=row.turn_id,
        answers=answers,
        **facts,
    )


def _status(own: str, turn: str | None) -> Any:
    if turn != "cancelled" and own in ("failed", "discarded", "paused"):
        return own
    if turn is not None:
        return turn
    return "waiting" if own == "pending" else "working"


def answer_view(row: AnyRow) -> Answer:
    shown = {name: getattr(row, name) for name in ("id", "seq", "kind", "status", "created_at")}
    return Answer(text=str(row.content.get("text") or ""), **shown)
