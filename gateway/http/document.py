"""The OpenAPI document (`/openapi.json`): every route below `/v1`, with the scope it needs and its problems.

Not in it, on purpose: `/channels/*`, whose form is each platform's own; `/web/*`, which docs/channels/web.md has; and
the console, which is for people."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from gateway.http.problems import MEDIA_TYPE, Problem

_DESCRIPTION: Final = """Hand in messages for agents, watch what they do, and steer them.

Whoever calls says who they are with a token (`Authorization: Bearer lst_…`, from `longshore token add`). Its scopes
narrow what it may be used for, and its user's standing with each agent narrows it further: what is none of theirs does
not exist for them (404). Every answer that is no success is a problem document (RFC 9457) whose `detail` says what was
wrong and what to do. Lists are read page by page: give `next` as `after`."""
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_TAGS: Final = {
    "messages": "handing in messages, and what came of them",
    "sessions": "conversations of agents: looking, saying something, cancelling, resetting, closing",
    "turns": "what an agent did, turn by turn and step by step",
    "replays": "the same messages again, on another provider or model, beside each other",
    "dead letters": "what went wrong for good, and trying it again",
    "approvals": "what waits for a decision of the caller's",
    "questions": "what agents ask",
    "agents": "agents and how each of them runs",
    "wirings": "which agent listens in which place",
    "tasks": "scheduled work",
    "workflows": "work of several agents with one result: looking, stopping, going on",
    "usage": "tokens, cost and budgets",
    "fleet": "the fleet at a glance",
    "providers": "AI backends: health, versions and limits",
    "audit": "who did what",
    "events": "what agents do, as it happens (server-sent events)",
    "health": "for probes",
}


def operation_id(route: APIRoute) -> str:
    """The name of its function, which is unique among all routes of the API."""
    return route.name


def describe(app: FastAPI) -> None:
    """Make the app say all that is true of it."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title,
                version=app.version,
                description=_DESCRIPTION,
                routes=app.routes,
                tags=[{"name": name, "description": words} for name, words in _TAGS.items()],
            )
            app.openapi_schema = _with_problems(made)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _with_problems(document: dict[str, Any]) -> dict[str, Any]:
    schemas = document["components"]["schemas"]
    schemas["Problem"] = Problem.model_json_schema()
    # What FastAPI would answer with: ours are problems.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    other = {"description": "any other problem", "content": {MEDIA_TYPE: {"schema": _PROBLEM}}}
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].setdefault("default", other)
    return document
