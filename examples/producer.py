"""Send a message to an agent from a service that knows nothing of Longshore but its broker's address.

pip install "celery[redis]"
REDIS_URL=redis://... python examples/producer.py demo "what time is it?"
"""

import json
import os
import sys
from pathlib import Path
from uuid import uuid4

from celery import Celery


def broker_url() -> str:
    """REDIS_URL, or the embedded broker of a `make up` that runs in this folder."""
    return os.environ.get("REDIS_URL") or str(json.loads(Path(".longshore/embedded.json").read_text())["redis_url"])


def main(agent: str, text: str) -> None:
    app = Celery(broker=broker_url())
    message = {"agent_group": agent, "text": text, "sender_name": "producer", "message_id": f"order-{uuid4()}"}
    sent = app.send_task("messages.ingest", kwargs=message, queue="messages", ignore_result=True)
    print(f"queued as {sent.id}, key {message['message_id']}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
