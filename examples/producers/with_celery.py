"""Send a message to an agent from a service that has Celery and the broker's address, and nothing of Longshore.

pip install "celery[redis]"
REDIS_URL=redis://... python with_celery.py AGENT TEXT [KEY]

The same KEY is taken once, however often it is sent: use your own name for what happened, such as an order's number.
"""

import json
import os
import sys
from pathlib import Path
from uuid import NAMESPACE_OID, uuid4, uuid5

from celery import Celery
from kombu.exceptions import OperationalError


def broker_url() -> str:
    """REDIS_URL, or the embedded broker of a `make up` that runs in this folder."""
    if url := os.environ.get("REDIS_URL"):
        return url
    try:
        return str(json.loads(Path(".longshore/embedded.json").read_text())["redis_url"])
    except FileNotFoundError:
        sys.exit("set REDIS_URL to the broker's address, such as redis://:password@host:6379/0")


def main(agent: str, text: str, key: str) -> None:
    app = Celery(broker=broker_url())
    try:
        sent = app.send_task(
            "messages.ingest",
            queue="messages",
            kwargs={"agent_group": agent, "text": text, "message_id": key},
            # Made from the key, so that whoever sends again learns the id of the row that is there.
            task_id=str(uuid5(NAMESPACE_OID, f"{agent}/{key}")),
            # What monitors of the broker show instead of the text.
            argsrepr="()",
            kwargsrepr=repr({"message_id": key}),
            ignore_result=True,
            retry=False,
        )
    except OperationalError as error:
        sys.exit(f"the broker did not take it ({error}): send it again with the key {key}")
    print(f"queued as {sent.id}, key {key}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} AGENT TEXT [KEY]")
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else f"order-{uuid4()}")
