"""`POST /channels/{type}`: what platforms send. The raw body is verified before anything of it is read.

A channel without a secret has no route, and looks like one that does not exist. Platforms are answered 200 also for
what was refused, since anything else would only make them send it again; only while the database is away they are to
(503). A program that reads our answers is told why (422)."""

from typing import Any

import structlog
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from adapters.channel_port import Channel, InboundRequest, Received
from adapters.errors import AdapterError, MalformedError, SignatureError
from gateway.http.dependencies import HouseDep, NewsDep
from gateway.http.waiting import answer, asked_to_wait
from workers.house import House
from workers.intake.doors import TakenIn, take_in

log = structlog.get_logger()


router = APIRouter()


@router.post("/channels/{channel_type}")
async def receive(house: HouseDep, news: NewsDep, channel_type: str, request: Request) -> Response:
    channel = _channel(house, channel_type)
    received = _read(channel, InboundRequest(_headers(request), await request.body()))
    taken = await take_in(house, channel, received)
    if received.answer is not None:
        return Response(received.answer.body, media_type=received.answer.media_type)
    if channel.capabilities.explains and taken.refused:
        raise HTTPException(422, taken.refused[0].reason)
    if channel.capabilities.explains and len(taken.accepted) == 1:
        return await answer(house.db, news, taken.accepted[0], asked_to_wait(request.headers.get("prefer")))
    return JSONResponse(_summary(taken))


def _channel(house: House, name: str) -> Channel:
    try:
        channel = house.registry.channels.get(name)
    except AdapterError:
        raise HTTPException(404) from None
    if not channel.receives:
        raise HTTPException(404)
    return channel


def _read(channel: Channel, request: InboundRequest) -> Received:
    try:
        channel.verify(request)
    except SignatureError as error:
        log.warning("door.forged", channel=channel.channel_type, reason=str(error))
        # Not which part of it: that would help whoever is guessing.
        raise HTTPException(401, "the request is not signed as this channel wants it") from None
    try:
        return channel.receive(request)
    except MalformedError as error:
        log.warning("door.malformed", channel=channel.channel_type, reason=str(error))
        raise HTTPException(400, str(error)) from None


def _headers(request: Request) -> dict[str, str]:
    """Names in lower case. Of one that comes twice, the first: what follows may have been added on the way."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers.setdefault(name.lower(), value)
    return headers


def _summary(taken: TakenIn) -> dict[str, Any]:
    summary: dict[str, Any] = {"accepted": [accepted.public() for accepted in taken.accepted]}
    if ignored := len(taken.outcomes) - len(taken.accepted):
        summary["ignored"] = ignored
    return summary
