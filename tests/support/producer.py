"""Messages from a plain Celery producer, and what became of them."""

from typing import Any

import celery

from tests.support.processes import Operator


def producer(operator: Operator) -> celery.Celery:
    """Another team's service: it has Celery and the broker's address, and nothing of ours."""
    return celery.Celery(broker=operator.broker.url)


def ingest(operator: Operator, app: celery.Celery | None = None, **kwargs: Any) -> str:
    given = {"agent_group": "demo", "text": "hello"} | kwargs
    return str((app or producer(operator)).send_task("messages.ingest", kwargs=given, queue="messages").id)


def status(operator: Operator, message_id: str) -> str | None:
    value: str | None = operator.value("SELECT status FROM messages_in WHERE id = %s", message_id)
    return value
