"""What a gateway's routes share. Routes are made once, when their modules are imported; what they work with belongs to
the gateway that a request came to, and `gateway.http.app` puts it into the request's state."""

from typing import Annotated, Any

import redis.asyncio
from fastapi import Depends
from starlette.requests import HTTPConnection

from gateway.http.api.handing_in import Known
from gateway.http.api.streams import Streams
from gateway.http.callers import Doorkeeper
from gateway.http.news import News
from gateway.http.trust import Trust
from gateway.http.waiting import Waits
from gateway.queue_states import Lists
from workers.house import House
from workers.provider_states import Lookout


def from_state(name: str) -> Any:
    """A dependency that `Gateway` has put into the request's state under this name."""

    async def find(connection: HTTPConnection) -> Any:
        return getattr(connection.state, name)

    return Depends(find)


HouseDep = Annotated[House, from_state("house")]
DoorDep = Annotated[Doorkeeper, from_state("door")]
NewsDep = Annotated[News, from_state("news")]
StreamsDep = Annotated[Streams, from_state("streams")]
LookoutDep = Annotated[Lookout, from_state("lookout")]
TrustDep = Annotated[Trust[Known], from_state("trust")]
WaitsDep = Annotated[Waits, from_state("waits")]
ListsDep = Annotated[Lists, from_state("lists")]
RedisDep = Annotated[redis.asyncio.Redis, from_state("client")]
