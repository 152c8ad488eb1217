"""The HTTP API, version 1: one file per resource. Every route asks the doorkeeper who calls; what it does is done by
`workers` (`operations`, `consent`, `intake`, `timetable`), the same as for the command line and the console."""

from fastapi import APIRouter

from gateway.http.api.approvals import approval_routes
from gateway.http.api.audit import audit_routes
from gateway.http.api.dead import dead_routes
from gateway.http.api.events import event_routes
from gateway.http.api.fleet import fleet_routes
from gateway.http.api.groups import group_routes
from gateway.http.api.messages import message_routes
from gateway.http.api.providers import provider_routes
from gateway.http.api.questions import question_routes
from gateway.http.api.replays import replay_routes
from gateway.http.api.sessions import session_routes
from gateway.http.api.streams import Streams
from gateway.http.api.tasks import task_routes
from gateway.http.api.turns import turn_routes
from gateway.http.api.usage import usage_routes
from gateway.http.api.wirings import wiring_routes
from gateway.http.api.workflows import workflow_routes
from gateway.http.callers import Doorkeeper
from gateway.http.news import News
from gateway.http.problems import documented
from workers.house import House
from workers.provider_states import Lookout


def api_routes(house: House, door: Doorkeeper, news: News, streams: Streams, lookout: Lookout) -> APIRouter:
    # What any of them may answer with, whoever calls.
    router = APIRouter(prefix="/v1", responses=documented(401, 403, 413, 422, 429, 503))
    router.include_router(message_routes(house, door, news))
    for routes in (session_routes, turn_routes, replay_routes, dead_routes, approval_routes, question_routes):
        router.include_router(routes(house, door))
    for routes in (group_routes, wiring_routes, task_routes, usage_routes, fleet_routes, audit_routes, workflow_routes):
        router.include_router(routes(house, door))
    router.include_router(provider_routes(door, lookout))
    router.include_router(event_routes(house, door, news, streams))
    return router
