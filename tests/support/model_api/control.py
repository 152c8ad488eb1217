"""The door for other processes: what was asked, what was wrong with it, and what shall go wrong next."""

from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from tests.support.model_api.faults import Fault

if TYPE_CHECKING:
    from tests.support.model_api.server import ModelApi

_FAULTS: TypeAdapter[list[Fault]] = TypeAdapter(list[Fault])


def add_routes(app: web.Application, api: "ModelApi") -> None:
    """`POST /_faults` takes one fault or a list of them; `DELETE /_faults` heals and lets go on what hangs."""

    async def requests(request: web.Request) -> web.Response:
        return web.json_response([one.public("bodies" in request.query) for one in api.requests])

    async def problems(request: web.Request) -> web.Response:
        return web.json_response(api.problems)

    async def fail(request: web.Request) -> web.Response:
        given = await request.json()
        try:
            faults = _FAULTS.validate_python(given if isinstance(given, list) else [given])
        except ValidationError as error:
            return web.json_response({"error": str(error)}, status=400)
        api.fail(*faults)
        return web.json_response({"queued": len(faults)})

    async def heal(request: web.Request) -> web.Response:
        api.heal()
        return web.json_response({"queued": 0})

    app.router.add_get("/_requests", requests)
    app.router.add_get("/_problems", problems)
    app.router.add_post("/_faults", fail)
    app.router.add_delete("/_faults", heal)
