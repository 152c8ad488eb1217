"""All routes of the API, below `/v1`."""

from fastapi import APIRouter

from gateway.http.api import (
    approvals,
    audit,
    dead,
    events,
    fleet,
    groups,
    messages,
    providers,
    questions,
    replays,
    sessions,
    tasks,
    turns,
    usage,
    wirings,
    workflows,
)
from gateway.http.problems import documented

# Problems that every route may answer with.
router = APIRouter(prefix="/v1", responses=documented(401, 403, 413, 422, 429, 503))
for resource in (
    messages,
    sessions,
    turns,
    replays,
    dead,
    approvals,
    questions,
    groups,
    wirings,
    tasks,
    usage,
    fleet,
    audit,
    workflows,
    providers,
    events,
):
    router.include_router(resource.router)
