"""Senders to be killed: a process that has everything imported and forks for each message it is told to send.

A fork costs milliseconds, a new Python more than a second. Whenever it forks it has no thread and no event loop. It is
told the ids of messages, one a line, and says the pid of each sender, and later how that ended. The first message it
sends itself: what that loads and compiles, the forks find done."""

import asyncio
import ctypes
import functools
import gc
import json
import os
import select
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

import models.database
from adapters.channels.telegram import TelegramChannel
from adapters.channels.webhook import WebhookChannel
from adapters.registry import Drivers, Registry
from tests.support import root_certificates
from tests.support.fleet import HeldBells, fleet_settings
from tests.support.process_group import PR_SET_PDEATHSIG
from workers import delivery
from workers.runtime import Node, Runtime


class UnlimitedTelegram(TelegramChannel):
    """A hundred messages in a few seconds are more than Telegram's limits let through."""

    capabilities = replace(TelegramChannel.capabilities, per_chat=None, overall=None)


def channels() -> Registry:
    """The real drivers, set up by the environment as ever."""
    made: dict[str, Any] = {"webhook": WebhookChannel(), "telegram": UnlimitedTelegram()}
    return Registry(Drivers("provider", {}), Drivers("channel", made), Drivers("tool", {}))


async def send(where: dict[str, str], message_id: str) -> None:
    settings = fleet_settings(where["database_url"], where["redis_url"], Path(where["folder"]))
    runtime = Runtime(settings, HeldBells(), channels(), Node("sender"))
    await delivery.send(runtime, message_id)
    await runtime.close()


def _child(where: dict[str, str], message_id: str) -> None:
    """Never returns: what a fork shares with its parent is not cleaned up here."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(2, 1)  # the answers are the parent's to write
        asyncio.run(send(where, message_id))
    except BaseException:  # noqa: BLE001 - all of it belongs in the log
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def main() -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    where = json.loads(sys.argv[1])
    root_certificates.read_once()
    # An engine has compiled its statements after the first message, and no connections.
    models.database._make_engine = functools.cache(models.database._make_engine)
    asyncio.run(send(where, where["first"]))
    gc.collect()
    gc.freeze()
    asking = open(0, "rb", buffering=0)  # noqa: SIM115 - a line that waits in a buffer is not seen by poll
    poll = select.poll()
    poll.register(0, select.POLLIN)
    running: dict[int, int] = {}
    while True:
        for ready, _ in poll.poll():
            if ready != 0:
                pid = running.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                print("ended", pid, os.waitstatus_to_exitcode(status), flush=True)
            elif not (line := asking.readline()):
                return
            else:
                message_id = line.decode().strip()
                if (pid := os.fork()) == 0:
                    _child(where, message_id)
                ended = os.pidfd_open(pid)
                poll.register(ended, select.POLLIN)
                running[ended] = pid
                print("began", message_id, pid, flush=True)


if __name__ == "__main__":
    main()
